"""What a question to the queue is, and how what it is asked with is compared with what it takes, before it is answered.

So a question that somebody has worded wrongly is refused with a sentence (`Refused`), and any other exception while it
is answered is a fault of ours, which is logged with its traceback.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from zonemta_py.mail.schedule_fields import InvalidValue

P = ParamSpec("P")
A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")

_PLAIN = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object",
          list: "a list", bytes: "bytes", tuple: "a list", type(None): "nothing"}  # fmt: skip
_Kinds = tuple[tuple[type, ...], tuple[type, ...]]
"""The classes that a value may have, and those of what is in a list; none if that cannot be said."""


class Refused(InvalidValue):
    """One sentence for whoever asks: what is wrong with the question, or why it cannot be done, and what can be."""


class Question(str, Generic[P, A]):
    """A question's name, which is all of it that travels. P: what it is asked with; A: what it is answered with."""

    declared: Callable[..., Any]

    @classmethod
    def of(cls, declared: Callable[P, A], name: str = "") -> Question[P, A]:
        """name: default: the function's, as `in-doubt` for `in_doubt`, and `list` for `list_`."""
        made: Question[P, A] = cls(name or declared.__name__.rstrip("_").replace("_", "-"))
        made.declared = declared
        return made

    @cached_property
    def takes(self) -> inspect.Signature:
        return inspect.signature(self.declared)

    @cached_property
    def _kinds(self) -> dict[str, _Kinds]:
        """What is plain of the types of its arguments."""
        annotations = typing.get_type_hints(self.declared)
        named = [one.name for one in self.takes.parameters.values() if one.kind != one.VAR_KEYWORD]
        return {name: _kinds(annotations[name]) for name in named}

    def check(self, arguments: dict[str, Any]) -> None:
        """Raises Refused."""
        parameters, kinds = self.takes.parameters, self._kinds
        for name in arguments:
            if name not in kinds and len(kinds) == len(parameters):
                known = f"it takes {', '.join(kinds)}" if kinds else "it takes nothing"
                raise Refused(f"the question {str(self)!r} takes no {str(name)[:80]!a}; {known}")
        for name in kinds:
            if name not in arguments and parameters[name].default is inspect.Parameter.empty:
                raise Refused(f"the question {str(self)!r} needs {name!r}; give it")
        for name, value in arguments.items():
            wanted, each = kinds.get(name, ((), ()))
            if wanted and not isinstance(value, wanted):
                raise Refused(f"the question {str(self)!r}: {name!r} is {_words(type(value))}; give {_words(*wanted)}")
            if (
                each
                and isinstance(value, (list, tuple))
                and not all(issubclass(kind, each) for kind in set(map(type, value)))
            ):
                raise Refused(f"the question {str(self)!r}: {name!r} has something else than {_words(*each)} in it")
            if fault := _fault(value):
                raise Refused(f"the question {str(self)!r}: {str(name)[:80]!a} {fault}")


def _fault(value: Any) -> str:
    """Why nothing can be done with a value, or with one in a list."""
    several = value if isinstance(value, (list, tuple)) else (value,)
    if set(map(type, several)) == {str}:  # an address list of many thousand: all at once, or nobody's mail moves
        several = ("".join(several),)
    for one in several:
        if isinstance(one, str) and not one.isascii() and one.encode("utf-8", "replace").decode() != one:
            return "is no text in Unicode; give one"
        if isinstance(one, int) and not -(1 << 63) <= one < 1 << 63:
            return "is far too large; give a smaller number"
        if isinstance(one, float) and not math.isfinite(one):
            return "is no number; give one"
    return ""


NO_CURSOR = "is not a cursor"
"""In each sentence that refuses one."""


def number(after: int | str) -> int:
    """A cursor that is a number, also in digits, "": the first page's; of several queues it is another text. Raises
    ValueError."""
    if isinstance(after, str) and after and not (after.isascii() and after.isdigit() and len(after) < 19):
        raise Refused(f"{after[:80]!a} {NO_CURSOR}; use the one that the previous page ended with, or omit it")
    return int(after or 0)


def _words(*kinds: type) -> str:
    return " or ".join(dict.fromkeys(_PLAIN.get(kind, kind.__name__) for kind in kinds))


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


class Given:
    """An order that all of several queues carry out, while this one does. sure: another one has taken it, so no name in
    it is checked. repeated: another one tells of it in events and counts. settled: arguments by which the others carry
    it out, as this one has found out what is meant."""

    __slots__ = ("repeated", "settled", "sure")

    def __init__(self, sure: bool, repeated: bool) -> None:
        self.sure, self.repeated, self.settled = sure, repeated, dict[str, Any]()


_given: ContextVar[Given | None] = ContextVar("given", default=None)


@contextmanager
def given(sure: bool, repeated: bool) -> Iterator[Given]:
    """What is done in this block is such an order."""
    order = Given(sure, repeated)
    before = _given.set(order)
    try:
        yield order
    finally:
        _given.reset(before)


def is_sure() -> bool:
    """Whether names are not checked: another queue knows them."""
    order = _given.get()
    return order is not None and order.sure


def is_given() -> bool:
    """Whether what is done now is such an order."""
    return _given.get() is not None


def is_repeated() -> bool:
    """Whether another queue tells of what is done now."""
    order = _given.get()
    return order is not None and order.repeated


def settle(**arguments: Any) -> None:
    """What is meant by an order, for the other queues if there are any."""
    if (order := _given.get()) is not None:
        order.settled |= arguments


class Ask(Protocol):
    """Asks the queue."""

    async def __call__(self, question: Question[P, A], *args: P.args, **arguments: P.kwargs) -> A:
        """Raises ValueError, QueueRefusal."""
        raise NotImplementedError


class AnsweredBy(NamedTuple):
    """A question with the function that answers it."""

    question: Question[..., Any]
    function: Callable[..., Awaitable[Any]]


class AnswerTable(dict[str, AnsweredBy], Generic[C]):
    """By name. Each function gets C, and what was asked, which mypy compares with what its question says; that what it
    returns is what the question says too, is for tests (`tests/queue/test_questions.py`)."""

    def to(
        self, question: Question[P, A]
    ) -> Callable[[Callable[Concatenate[C, P], Awaitable[R]]], Callable[Concatenate[C, P], Awaitable[R]]]:
        def answered(function: Callable[Concatenate[C, P], Awaitable[R]]) -> Callable[Concatenate[C, P], Awaitable[R]]:
            self[question] = AnsweredBy(question, function)
            return function

        return answered
