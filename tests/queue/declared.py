"""Whether an answer is what its question says (`queue/questions/`)."""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import Question

ALL = {str(one): one for one in vars(questions).values() if isinstance(one, Question)}

ROWS = 100
"""Of a list, the first so many are looked at: tests that count calls measure the queue, and not this."""


@cache
def said(question: str, plain: bool) -> Any:
    """plain: asked with nothing."""
    asked = questions.size if question == questions.size and plain else ALL[question]
    return get_type_hints(asked.declared, include_extras=True)["return"]


@cache
def members(hint: Any) -> dict[str, Any]:
    return get_type_hints(hint, include_extras=True)


def fault(value: Any, hint: Any, where: str = "") -> str:
    """What differs; "": nothing."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return ""
    if origin in (Annotated, NotRequired):
        return fault(value, inner[0], where)
    if origin in (Union, UnionType):
        return "" if any(not fault(value, one) for one in inner) else f"{where} is {value!r}, not {hint}"
    if origin is Literal:
        return "" if value in inner else f"{where} is {value!r}, not one of {inner}"
    if is_typeddict(hint):
        if not isinstance(value, dict):
            return f"{where} is {value!r}, no {hint.__name__}"
        for name, one in members(hint).items():
            if name in value:
                if what := fault(value[name], one, f"{where}.{name}"):
                    return what
            elif get_origin(one) is not NotRequired and name not in hint.__optional_keys__:
                return f"{where} lacks {name}: {value!r}"
        return ""
    if origin is list:
        found = (
            (fault(one, inner[0], f"{where}[]") for one in value[:ROWS])
            if isinstance(value, list)
            else [f"{where}: no list"]
        )
        return next(filter(None, found), "")
    if origin is dict:
        found = (fault(one, inner[1], f"{where}.*") for one in value.values()) if isinstance(value, dict) else [where]
        return next(filter(None, found), "")
    kinds = (int, float) if hint is float else (NoneType if hint is None else hint,)
    return "" if isinstance(value, kinds) else f"{where} is {value!r}, not {hint}"
