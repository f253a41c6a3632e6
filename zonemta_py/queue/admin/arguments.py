"""What a question is asked with, compared with what its answer takes, before that begins.

So a question that somebody has worded wrongly is refused with a sentence, and an exception while it is answered is a
fault of ours, which is logged with its traceback.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

_PLAIN = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object",
          list: "a list", bytes: "bytes", tuple: "a list", type(None): "nothing"}  # fmt: skip


def check(handler: Callable[..., Any], question: str, arguments: dict[str, Any]) -> None:
    """handler: a function, or a partial one, that gets the queue and then these by their names. Raises ValueError with
    one sentence."""
    function, given = (handler.func, len(handler.args)) if isinstance(handler, partial) else (handler, 0)
    names, needed, kinds, more = _taken(function, given + 1)
    for name in arguments:
        if name not in names and not more:
            known = f"it takes {', '.join(names)}" if names else "it takes nothing"
            raise ValueError(f"the question {question!r} takes no {str(name)[:80]!r}; {known}")
    for name in needed:
        if name not in arguments:
            raise ValueError(f"the question {question!r} needs {name!r}; give it")
    for name, value in arguments.items():
        wanted, each = kinds.get(name, ((), ()))
        if wanted and not isinstance(value, wanted):
            raise ValueError(f"the question {question!r}: {name!r} is {_words(type(value))}; give {_words(*wanted)}")
        if each and isinstance(value, (list, tuple)) and not all(isinstance(one, each) for one in value):
            raise ValueError(f"the question {question!r}: {name!r} has something else than {_words(*each)} in it")


def _words(*kinds: type) -> str:
    return " or ".join(dict.fromkeys(_PLAIN.get(kind, kind.__name__) for kind in kinds))


_Kinds = tuple[tuple[type, ...], tuple[type, ...]]
"""The classes that a value may have, and those of what is in a list; none if that cannot be said."""


@lru_cache(256)
def _taken(function: Callable[..., Any], given: int) -> tuple[list[str], list[str], dict[str, _Kinds], bool]:
    """Names of its arguments behind the first `given`, those without a default, and what is plain of their types;
    whether it takes any others."""
    inner = getattr(function, "asks", function)
    every = list(inspect.signature(inner).parameters.values())
    own = [
        one for one in every[given - (inner is not function) :] if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    more = any(one.kind == one.VAR_KEYWORD for one in every)
    annotations = typing.get_type_hints(inner)
    kinds = {one.name: _kinds(annotations.get(one.name)) for one in own}
    return [one.name for one in own], [one.name for one in own if one.default is one.empty], kinds, more


def _kinds(annotation: Any) -> _Kinds:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        parts = [_kinds(one) for one in typing.get_args(annotation)]
        known = all(part[0] for part in parts)
        return tuple(kind for part in parts for kind in part[0]) if known else (), next(
            (part[1] for part in parts if part[1]), ()
        )
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is float:
        return (float, int), ()
    if origin in (list, tuple, Sequence):
        return (list, tuple), _kinds(inner[0])[0] if inner else ()
    return ((origin,) if origin in _PLAIN else ()), ()
