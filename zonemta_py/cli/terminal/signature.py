"""Commands whose options are put together of several parts: typer reads them from a function's signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

Option = tuple[Any, Any]
"""(annotation, default)."""


def extended(
    command: Callable[..., Any], run: Callable[..., Any], before: dict[str, Option], after: dict[str, Option],
    without: Collection[str] = (),
) -> Callable[..., Any]:  # fmt: skip
    """`run` with the name, the help and the options of `command`, but for those `without`; and with these around it.

    An option that the command has itself is its own.
    """
    own = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY

    def made(options: dict[str, Option]) -> list[inspect.Parameter]:
        return [
            inspect.Parameter(name, keyword, default=default, annotation=kind)
            for name, (kind, default) in options.items()
            if name in without or name not in own.parameters
        ]

    kept = [one.replace(kind=keyword) for name, one in own.parameters.items() if name not in without]
    signature = own.replace(parameters=[*made(before), *kept, *made(after)])
    functools.update_wrapper(run, command)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return run
