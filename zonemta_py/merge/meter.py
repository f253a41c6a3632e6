"""The cost of a template's work, and the values it may use.

The unit is a character, or about 10 ns of one core: operations that take longer, or more memory, for their size cost
more. So WORK_MAX bounds a message's time (some 50 ms) and memory (some 40 MB), whatever it is made of. What is the same
at each turn of a loop (`TURN`, `NODE`, text) is counted when the template is compiled; what depends on values is
charged where it happens, before it happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from markupsafe import Markup

WORK_MAX = 4_000_000
NUMBER_MAX = 10**15
STEP = 100
"""A filter or test."""
CALL = 400
PIECE = 16
"""Of what is printed, besides its characters."""
TURN = 40
NODE = 16
"""An expression, or an element of a list."""
SEARCH = 16
"""A character of a text that another is looked for in: short needles take a hundred steps for each, at the worst."""
WORDS = 64
"""A character of a text that is taken apart, or percent-encoded."""
WIDE = 4
"""A character that is not ASCII, on its way out."""
_STRIPS = frozenset({"lstrip", "rstrip", "strip", "trim"})
_FREE = frozenset({"count", "d", "default", "first", "last", "length"})
_QUICK = frozenset(
    {"capitalize", "e", "endswith", "escape", "forceescape", "lower", "safe", "startswith", "truncate", "upper"}
)
_BY_WORDS = frozenset({"title", "urlencode", "wordcount"})
_NUMBERS = ("divisibleby", "even", "odd")
_FREE_TESTS = frozenset({"defined", "false", "none", "number", "string", "true", "undefined"})
_PRINTABLE = (str, int, float, Undefined)  # StrictUndefined raises when it is printed


class MeteredContext(Context):
    """What one part of a message is rendered with. left: units that the message may still spend."""

    left = WORK_MAX

    def spend(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            raise SecurityError(f"the template does more than {WORK_MAX:,} characters of work; make its loops shorter")


def size(value: object) -> int:
    """Characters, or elements with all that is in them."""
    kind = type(value)
    if kind is str or kind is Markup:
        return len(value)  # type: ignore[arg-type]
    if kind is list or kind is tuple:
        return NODE * len(value) + sum(map(size, value))  # type: ignore[arg-type, call-overload]
    if kind is dict:
        return NODE * len(value) + sum(map(size, value)) + sum(map(size, value.values()))  # type: ignore
    return NODE * len(value) if kind is range else 1  # type: ignore[arg-type]


def scalar(value: Any) -> Any:
    """What can be printed. Raises SecurityError."""
    if isinstance(value, _PRINTABLE):
        return value
    if value is None:
        raise SecurityError("there is nothing to print (none)")
    raise SecurityError(f"a {type(value).__name__} cannot be printed; use |join, |first or a loop")


def number(value: Any) -> Any:
    """A result of arithmetic. Raises SecurityError."""
    if isinstance(value, int) and abs(value) > NUMBER_MAX:
        raise SecurityError(f"a number is above {NUMBER_MAX:,}")
    return value


@pass_context
def printed(context: MeteredContext, value: Any) -> Any:
    """Optimised: it is called for each field of each message."""
    kind = type(value)
    if kind is str or kind is Markup:
        context.left = left = context.left - PIECE - (len(value) if value.isascii() else WIDE * len(value))
        if left < 0:
            context.spend(0)
        return value
    context.spend(PIECE)
    return scalar(value)


@pass_context
def each(context: MeteredContext, values: Iterable[Any], cost: int) -> Iterator[Any]:
    for value in values:
        context.spend(cost)
        yield value


@pass_context
def charge(context: MeteredContext, nothing: str, cost: int) -> str:
    context.spend(cost)
    return nothing


@pass_context
def weighed(context: MeteredContext, value: Any) -> Any:
    """What is compared or cut."""
    context.spend(size(value))
    return value


@pass_context
def searched(context: MeteredContext, value: Any) -> Any:
    context.spend(SEARCH * size(value))
    return value


def price(name: str, value: Any, args: tuple[Any, ...]) -> int:
    """Of a filter, or a method of a text."""
    if name in _FREE:
        return STEP
    whole, cost = size(value), STEP
    if args:
        cost += sum(map(size, args))
    if name in _QUICK:
        return cost + 2 * whole
    if name in _STRIPS:  # each character is looked for among those given
        return cost + whole * (1 + sum(len(one) for one in args if isinstance(one, str)) // 8)
    if name == "striptags":  # the rest is copied behind each tag
        return cost + whole * (1 + (value.count("<") if isinstance(value, str) else 1) // 128)
    return cost + whole * (WORDS if name in _BY_WORDS else SEARCH)


def metered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged for; a generator's result becomes a list."""
    wants = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

    @pass_context
    def paid(context: MeteredContext, value: Any, *args: Any, **named: Any) -> Any:
        context.spend(price(name, value, (*args, *named.values()) if named else args))
        if wants == "environment":
            result = function(context.environment, value, *args, **named)
        elif wants == "eval_context":
            result = function(context.eval_ctx, value, *args, **named)
        else:
            result = function(value, *args, **named)
        if isinstance(result, Iterator):
            return list(each(context, result, NODE))
        return number(result)

    return paid


def tested(name: str, test: Callable[..., bool]) -> Callable[..., Any]:
    """A test that is charged for, where its time depends on its values."""
    if name in _FREE_TESTS:
        return test
    if name in _NUMBERS:
        return _of_numbers(name, test)
    weight = SEARCH if name == "in" else 1

    @pass_context
    def paid(context: MeteredContext, value: Any, *args: Any) -> bool:
        context.spend(STEP + weight * (size(value) + sum(map(size, args))))
        return test(value, *args)

    return paid


def _of_numbers(name: str, test: Callable[..., bool]) -> Callable[..., bool]:
    """Of a text it would be a format, of any width."""

    def checked(*values: Any) -> bool:
        if not all(isinstance(value, int | float) for value in values):
            raise SecurityError(f"only numbers can be {name}; use |int first")
        return test(*values)

    return checked
