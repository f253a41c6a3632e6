"""The filter of tasks and lists: which recipients are meant. A plain dict outside, a `Where` inside.

    id, sender, recipient, domain, site, provider, zone, source, campaign, tenant, user: texts, `*` stands for any part
    subject                 a part of it, in any case
    state                   queued, deferred, leased, held, deleted, bounced
    class                   of the latest reply (`mail/rules/classes.py`)
    older_s, younger_s      how long ago it was accepted
    priority                -9 … 9
    header                  {name: a part of its value, in any case}
    all                     True: no other key is needed

Each key may have a list: any of these. All keys must hold. What costs least to know is asked first, and nothing is read
that is not asked for. Failures: `Where.of` raises ValueError with one sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from zonemta_py.mail.glob import expression
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.queue.questions.question import Refused

STATES = ("queued", "deferred", "leased", "held", "deleted", "bounced")
_EXACT = frozenset(("id", "zone", "campaign", "tenant", "user", "source"))
"""Texts in which upper and lower case differ."""
_MAY_BE_EMPTY = frozenset(("sender", "source", "campaign", "tenant", "user", "provider"))
_NO_DOMAIN = re.compile(r"[?@/,;%$\s]")
"""What is in no domain: what has it was meant as a pattern, a list or an address, and would find nobody."""
_COST = {
    "zone": 0, "id": 0, "state": 1, "domain": 1, "recipient": 1, "older_s": 1, "younger_s": 1, "campaign": 2,
    "tenant": 2, "priority": 2, "class": 3, "site": 3, "provider": 3, "source": 3, "sender": 4, "user": 4,
    "subject": 4, "header": 5,
}  # fmt: skip
"""Keys by what has to be known: 0, 1 the key, 2 the note, 3 the schedule and rules, 4 the metadata, 5 the header."""


class Facts(Protocol):
    """What is known of one recipient; a property is computed when it is asked for."""

    @property
    def id(self) -> str: ...
    @property
    def zone(self) -> str: ...
    @property
    def recipient(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def age_s(self) -> float: ...
    @property
    def campaign(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def kind(self) -> str:
        """The class of its latest reply; "" if there was none."""
        ...

    @property
    def site(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def sender(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def subject(self) -> str: ...
    def header(self, name: str) -> list[str]:
        """The values of that header field, unfolded."""
        ...


Test = Callable[[Facts], bool]


class Condition(NamedTuple):
    """One key of a filter. cost: see _COST."""

    name: str
    values: tuple[Any, ...]
    cost: int
    test: Test


class _Addressed(NamedTuple):
    """What an address alone says."""

    recipient: str
    domain: str


class Where:
    """A checked filter. given: the dict it was made of, as plain values."""

    __slots__ = ("_of_address", "_tests", "conditions", "given")

    def __init__(self, given: dict[str, Any], conditions: list[Condition]) -> None:
        self.given = given
        self.conditions = tuple(conditions)
        self._tests = tuple(one.test for one in sorted(conditions, key=lambda one: one.cost))
        self._of_address = tuple(one.test for one in conditions if one.name in ("domain", "recipient"))

    @classmethod
    def of(cls, given: dict[str, Any], needed: bool = True) -> Where:
        """needed: without any key, `all` has to be there: nobody means everything by accident. Raises ValueError."""
        if not isinstance(given, dict):
            raise Refused(f"a filter is an object of names and values, not {given!r}")
        kept = {name: value for name, value in given.items() if value is not None}
        everything = kept.pop("all", False)
        if everything not in (True, False):
            raise Refused(f"all is {everything!r}; write true, or leave it out")
        conditions = [_condition(name, value) for name, value in kept.items()]
        if needed and not conditions and not everything:
            raise Refused("the filter is empty; name what is meant, or say all: true")
        return cls(kept | ({"all": True} if everything else {}), conditions)

    def matches(self, facts: Facts) -> bool:
        """Raises StoreError if what it asks for cannot be read."""
        for test in self._tests:  # noqa: SIM110 (runs for every recipient of the queue)
            if not test(facts):
                return False
        return True

    def is_to(self, address: str) -> bool:
        """Whether a recipient of that address may be meant."""
        if not self._of_address:
            return True
        facts: Any = _Addressed(address, address.rpartition("@")[2])
        return all(test(facts) for test in self._of_address)

    def values(self, name: str) -> tuple[Any, ...] | None:
        """The values without a `*` that key may have; None: any."""
        for one in self.conditions:
            if one.name == name and not any(isinstance(value, str) and "*" in value for value in one.values):
                return one.values
        return None

    def words(self) -> str:
        """The filter as a part of a sentence."""
        return " and ".join(_words(one) for one in self.conditions) if self.conditions else "everything"


def _condition(name: str, value: Any) -> Condition:
    if name not in _COST:
        raise Refused(f"there is no filter {name!r}; use {', '.join(_COST)}")
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not values:
        raise Refused(f"the filter {name} has no value; give one, or leave it out")
    made = _MADE.get(name)
    test = made(name, values) if made else _texts(name, values)
    return Condition(name, values, _COST[name], test)


def _texts(name: str, values: tuple[Any, ...]) -> Test:
    exact: set[str] = set()
    patterns: list[str] = []
    fold = name not in _EXACT
    for value in values:
        if not isinstance(value, str) or (not value and name not in _MAY_BE_EMPTY):
            raise Refused(f"the filter {name} is {value!r}; write a text")
        text = value.lower() if fold else value
        if name == "domain" and (wrong := _NO_DOMAIN.search(text)):
            raise Refused(
                f"the filter domain is {value!r}, and no domain has {wrong[0]!r} in it; * stands for any text"
            )
        if "*" in text:
            patterns.append(expression(text))
        else:
            exact.add(text)
    full = re.compile("|".join(patterns), re.DOTALL).fullmatch if patterns else None

    def matches(facts: Facts) -> bool:
        found: str = getattr(facts, name)
        text = found.lower() if fold else found
        return text in exact or (full is not None and full(text) is not None)

    return matches


def _parts(name: str, values: tuple[Any, ...]) -> Test:
    parts = [_part(name, value) for value in values]

    def matches(facts: Facts) -> bool:
        text = facts.subject.casefold()
        return any(part in text for part in parts)

    return matches


def _part(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Refused(f"the filter {name} is {value!r}; write a part of the text")
    return value.casefold()


def _state(name: str, values: tuple[Any, ...]) -> Test:
    for value in values:
        if value not in STATES:
            raise Refused(f"there is no state {value!r}; use {', '.join(STATES)}")
    chosen = frozenset(values)
    return lambda facts: facts.state in chosen


def _class(name: str, values: tuple[Any, ...]) -> Test:
    for value in values:
        if value not in CLASSES:
            raise Refused(f"there is no class {value!r}; use {', '.join(CLASSES)}")
    chosen = frozenset(values)
    return lambda facts: facts.kind in chosen


def _age(name: str, values: tuple[Any, ...]) -> Test:
    if len(values) != 1 or not _is_number(values[0]) or not 0 <= values[0] < math.inf:
        raise Refused(f"the filter {name} is {values[0]!r}; write a number of seconds")
    seconds: float = values[0]
    if name == "older_s":
        return lambda facts: facts.age_s > seconds
    return lambda facts: facts.age_s < seconds


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _priority(name: str, values: tuple[Any, ...]) -> Test:
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not -9 <= value <= 9:
            raise Refused(f"the filter priority is {value!r}; use -9 to 9")
    chosen = frozenset(values)
    return lambda facts: facts.priority in chosen


def _header(name: str, values: tuple[Any, ...]) -> Test:
    asked: list[list[tuple[str, str]]] = []
    for value in values:
        if not isinstance(value, dict) or not value or not all(isinstance(field, str) and field for field in value):
            raise Refused('the filter header is {"name of a field": "part of its value"}')
        asked.append([(field.lower(), _part(f"header {field}", part)) for field, part in value.items()])

    def matches(facts: Facts) -> bool:
        return any(
            all(any(part in text.casefold() for text in facts.header(field)) for field, part in fields)
            for fields in asked
        )

    return matches


_MADE: dict[str, Callable[[str, tuple[Any, ...]], Test]] = {
    "subject": _parts, "state": _state, "class": _class, "older_s": _age, "younger_s": _age, "priority": _priority,
    "header": _header,
}  # fmt: skip

_SAID = {
    "id": "message", "sender": "from", "recipient": "to", "domain": "domain", "site": "site", "provider": "provider",
    "zone": "zone", "source": "source", "campaign": "campaign", "tenant": "tenant", "user": "login", "state": "state",
    "class": "class", "priority": "priority",
}  # fmt: skip


def _words(one: Condition) -> str:
    if one.name == "subject":
        return "subject with " + " or ".join(repr(value) for value in one.values)
    if one.name in ("older_s", "younger_s"):
        than = "older" if one.name == "older_s" else "younger"
        return f"{than} than {duration(one.values[0])}"
    if one.name == "header":
        return " or ".join(
            " and ".join(f"{field} with {part!r}" for field, part in value.items()) for value in one.values
        )
    return f"{_SAID[one.name]} " + " or ".join("(none)" if value == "" else str(value) for value in one.values)


def duration(seconds: float) -> str:
    """As a person writes it: 90 s, 2 h, 1.5 d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
