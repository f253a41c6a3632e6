"""One rule about replies: what it asks of a reply, which class the reply then is, and what is to be done.

Rules are data (TOML). A rule holds for a reply if all it names agree: `pattern`, a regular expression searched in the
reply's text without regard to case; `code`, 550 or "55x" or "5xx"; `enhanced`, "5.7.1", or "5.7" for all that begin so,
or "x.7.1" for both classes; `stage`; `provider`. Each but the pattern may be a list, of which one must agree.
Everything wrong with a table is a RulesError of one sentence that names file, rule and remedy.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from zonemta_py.mail.reply import Reply
from zonemta_py.mail.reroute import SKIP, RerouteTarget
from zonemta_py.mail.rules.classes import AGREEABLE, CLASSES, SUBJECTS
from zonemta_py.mail.rules.pattern import FLAGS

STAGES = (
    "connect",
    "banner",
    "ehlo",
    "tls",
    "tls-policy",
    "auth",
    "mail",
    "rcpt",
    "data",
    "body",
    "dot",
    "dns",
    "report",
)
"""Those at which a remote server has replied; "report": a reply that somebody's bounce message quotes."""
OTHER_NAMES = {"greeting": "banner", "helo": "ehlo", "starttls": "tls", "end-of-data": "dot"}
"""What people call them, too."""
QUOTED = frozenset(("rcpt", "data", "body", "dot"))
"""A reply in a report came at one of these: rules for one of them hold for it too."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_CODE = re.compile(r"[245](?:xx|[0-9](?:x|[0-9]))")
_ENHANCED = re.compile(r"[245x]\.\d{1,3}(?:\.\d{1,3})?")
_LINE = re.compile(r"([245]\d\d)(?:[ -]+|$)(.*)", re.DOTALL)


class RulesError(ValueError):
    """One sentence: file, rule, what is wrong, what to do."""


@dataclass(slots=True, frozen=True)
class Action:
    """What a rule asks of the queue, besides what the reply's code says.

    verdict: "" as the code says, "retry" though it is 5xx, "bounce" though it is 4xx. delay_s: not tried again sooner.
    These two hold for every reply; all below only from the `after`-th reply of this rule within `within_s` seconds on
    (1: at once), counted for each source IP at each site. slow: lower the rate there. fewer: lower the concurrency.
    rest_s: this source IP sends nothing there for so long. no_tls: the host is spoken to without TLS, if allowed;
    never for what came in stage "tls-policy".
    suspend: "destination", "tenant" or "campaign" stops for `suspend_s` seconds. reroute: the zone's mail for that site
    goes another way for `reroute_s` seconds: as `mail.reroute`, and "skip" for the host that has replied.
    """

    verdict: str = ""
    delay_s: float = 0.0
    slow: bool = False
    fewer: bool = False
    rest_s: float = 0.0
    no_tls: bool = False
    suspend: str = ""
    suspend_s: float = 0.0
    reroute: str = ""
    reroute_s: float = 0.0
    after: int = 1
    within_s: float = 0.0


OPINION = ".opinion"
"""Behind the name of a rule whose class a second opinion has corrected."""


class Classified(NamedTuple):
    """rule: its name, "" if none held; with OPINION behind it if kind is another's than the rule's. kind: one of
    CLASSES. agreed: code, text and stage agree that this recipient does not exist or never takes mail, so that one
    reply is enough to write to them no more."""

    rule: str
    kind: str
    action: Action
    agreed: bool = False

    @property
    def counted_as(self) -> str:
        """The rule's own name."""
        return self.rule.removesuffix(OPINION)


class Example(NamedTuple):
    """A reply as it was seen, where, and from which provider ("" for any)."""

    line: str
    reply: Reply
    stage: str
    provider: str


@dataclass(slots=True, frozen=True)
class Rule:
    """words: the vocabulary reads its class in the text. second_opinion: it may name another class (`opinion`). about:
    of whom its replies speak, one of SUBJECTS. signature: a provider's own form, of which one 5xx at RCPT is enough to
    suppress; for classes about the recipient. pattern "" and codes, stages, providers None ask nothing; enhanced ()
    likewise."""

    file: str
    name: str
    kind: str
    action: Action
    pattern: str = ""
    codes: frozenset[int] | None = None
    enhanced: tuple[str, ...] = ()
    stages: frozenset[str] | None = None
    providers: frozenset[str] | None = None
    words: bool = False
    second_opinion: bool = False
    about: str = ""
    signature: bool = False
    examples: tuple[Example, ...] = ()
    not_examples: tuple[Example, ...] = ()

    def admits(self, code: int, enhanced: str, stage: str, provider: str) -> bool:
        """All but the pattern."""
        return (
            (self.codes is None or code in self.codes)
            and (self.stages is None or stage in self.stages or (stage == "report" and bool(self.stages & QUOTED)))
            and (self.providers is None or provider in self.providers)
            and (not self.enhanced or any(_begins(enhanced, wanted) for wanted in self.enhanced))
        )


def reply_of(line: str) -> Reply:
    """A reply as logs show it, its lines joined or not: "550-5.1.1 No such 550 5.1.1 user". Raises ValueError."""
    found = _LINE.match(line.strip())
    if found is None:
        raise ValueError(f"{line[:60]!r} is not a reply; write one such as 550 5.1.1 No such user")
    code = found[1]
    lines = re.split(rf"[\r\n]+(?:{code}[ -])?|\s+{code}[ -](?=[245]\.\d{{1,3}}\.\d)", found[2])
    return Reply.from_lines(int(code), lines)


def action_of(table: dict[str, Any], where: str) -> Action:
    """Checks the action keys of a table, which may hold nothing else. Raises RulesError."""
    for key, value in table.items():
        kind, meaning = _ACTION_KEYS[key]
        if not kind(value):
            raise RulesError(f"{where}: {key} is {value!r}; it must be {meaning}")
    action = Action(**table)
    if bool(action.suspend) != bool(action.suspend_s):
        raise RulesError(f"{where}: suspend and suspend_s need each other; give both or neither")
    if bool(action.reroute) != bool(action.reroute_s):
        raise RulesError(f"{where}: reroute and reroute_s need each other; give both or neither")
    if action.reroute and action.reroute != SKIP:
        try:
            RerouteTarget.of(action.reroute)
        except ValueError as error:
            raise RulesError(f"{where}: reroute: {error}") from None
    if (action.after > 1) != bool(action.within_s):
        raise RulesError(f"{where}: after and within_s need each other; give both or neither")
    return action


def rule_of(table: dict[str, Any], file: str, number: int, actions: dict[str, dict[str, Any]]) -> Rule:
    """A [[rules]] table, the `number`-th of its file; actions: of classes. Raises RulesError."""
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RulesError(f"{file}: rule {number} has no name of the form provider-what; give it one")
    if name.endswith(OPINION):
        raise RulesError(
            f"{file}: rule {name!r}: {OPINION} marks what a second opinion has corrected; name it otherwise"
        )
    where = f"{file}: rule {name!r}"
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            raise RulesError(f"{where}: there is no key {key!r}; {_instead(near, 'remove it')}")
    kind = table.get("class")
    if kind not in CLASSES:
        near = difflib.get_close_matches(str(kind), CLASSES, 1)
        remedy = _instead(near, "see `zonemta rules list` for all classes")
        raise RulesError(f"{where}: there is no class {kind!r}; {remedy}")
    stages = _one_of(_listed(table, "stage", where), STAGES, "stage", where)
    providers = _listed(table, "provider", where)
    return Rule(
        file,
        name,
        str(kind),
        action_of(actions.get(str(kind), {}) | {key: table[key] for key in table if key in _ACTION_KEYS}, where),
        _pattern(table.get("pattern", ""), where),
        _codes(_listed(table, "code", where), where),
        _enhanced(_listed(table, "enhanced", where), where),
        frozenset(stages) or None,
        frozenset(providers) or None,
        _given(table, "words", where),
        _given(table, "second_opinion", where),
        _about(table, where),
        _signature(table, str(kind), where),
        tuple(_example(entry, stages, providers, where) for entry in _entries(table, "examples", where)),
        tuple(_example(entry, stages, providers, where) for entry in _entries(table, "not_examples", where)),
    )


def _example(entry: Any, stages: list[str], providers: list[str], where: str) -> Example:
    """An example without stage or provider has the first that the rule names."""
    table = {"reply": entry} if isinstance(entry, str) else entry
    if not isinstance(table, dict) or "reply" not in table or not table.keys() <= {"reply", "stage", "provider"}:
        raise RulesError(f'{where}: an example is a reply, or {{reply = "…", stage = "…", provider = "…"}}; correct it')
    line = str(table["reply"])
    try:
        reply = reply_of(line)
    except ValueError as error:
        raise RulesError(f"{where}: example {error}") from None
    stage = str(table.get("stage", stages[0] if stages else "rcpt"))
    _one_of([stage], STAGES, "stage", where)
    return Example(line, reply, stage, str(table.get("provider", providers[0] if providers else "")))


def _pattern(pattern: Any, where: str) -> str:
    if not isinstance(pattern, str):
        raise RulesError(f"{where}: pattern is not text; write a regular expression in single quotes")
    try:
        re.compile(pattern, FLAGS)
    except re.error as error:
        raise RulesError(f"{where}: pattern {pattern!r} is not a regular expression ({error}); correct it") from None
    return pattern


def _given(table: dict[str, Any], key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise RulesError(f"{where}: {key} is {value!r}; it must be true or false")
    return value


def _signature(table: dict[str, Any], kind: str, where: str) -> bool:
    found = _given(table, "signature", where)
    if found and kind not in AGREEABLE:
        raise RulesError(
            f"{where}: signature is for classes {', '.join(kind for kind in CLASSES if kind in AGREEABLE)}; remove it"
        )
    return found


def _about(table: dict[str, Any], where: str) -> str:
    about = table.get("about", "")
    if about not in ("", *SUBJECTS):
        raise RulesError(f"{where}: about is {about!r}; it must be one of {', '.join(SUBJECTS)}")
    return str(about)


def _codes(codes: list[str], where: str) -> frozenset[int] | None:
    for code in codes:
        if not _CODE.fullmatch(code):
            raise RulesError(f"{where}: {code!r} is not a reply code; write 550 or 55x or 5xx")
    return frozenset[int]().union(*map(_meant, codes)) or None


@cache
def _meant(code: str) -> frozenset[int]:
    """550, or all that 55x or 5xx stand for."""
    least, most = int(code.replace("x", "0")), int(code.replace("x", "9"))
    return frozenset(range(least, most + 1))


def _enhanced(values: list[str], where: str) -> tuple[str, ...]:
    for value in values:
        if not _ENHANCED.fullmatch(value):
            raise RulesError(f"{where}: {value!r} is not an enhanced status code; write 5.7.1 or 5.7 or x.7.1")
    return tuple(values)


def _begins(enhanced: str, wanted: str) -> bool:
    if wanted[0] == "x":
        enhanced, wanted = enhanced[1:], wanted[1:]
    return enhanced == wanted or (enhanced.startswith(f"{wanted}.") and wanted.count(".") == 1)


def _listed(table: dict[str, Any], key: str, where: str) -> list[str]:
    """The value, or values, of a key, as text."""
    value = table.get(key, [])
    values = value if isinstance(value, list) else [value]
    if (key in table and not values) or not all(isinstance(v, str | int) and v != "" for v in values):
        raise RulesError(f"{where}: {key} is {value!r}; give one value or a list of them, or leave it out")
    return [str(v) for v in values]


def _entries(table: dict[str, Any], key: str, where: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise RulesError(f"{where}: {key} is not a list; put it in [ ]")
    return value


def _one_of(values: list[str], known: tuple[str, ...], what: str, where: str) -> list[str]:
    for value in values:
        if value not in known:
            raise RulesError(f"{where}: there is no {what} {value!r}; use one of {', '.join(known)}")
    return values


def _instead(near: list[str], otherwise: str) -> str:
    return f"did you mean {near[0]!r}?" if near else otherwise


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _choice(*values: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in values, "one of " + ", ".join(repr(value) for value in values)


_ACTION_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "verdict": _choice("", "retry", "bounce"),
    "suspend": _choice("", "destination", "tenant", "campaign"),
    **dict.fromkeys(("slow", "fewer", "no_tls"), (_flag, "true or false")),
    "reroute": (lambda value: isinstance(value, str), "a text"),
    **dict.fromkeys(("delay_s", "rest_s", "suspend_s", "reroute_s", "within_s"), (_seconds, "a number of seconds")),
    "after": (lambda value: isinstance(value, int) and value >= 1 and not isinstance(value, bool), "a number from 1"),
}
assert _ACTION_KEYS.keys() == {field.name for field in fields(Action)}
ACTION_KEYS = frozenset(_ACTION_KEYS)
_KEYS = (
    "name",
    "class",
    "pattern",
    "code",
    "enhanced",
    "stage",
    "provider",
    "words",
    "second_opinion",
    "about",
    "signature",
    "examples",
    "not_examples",
    *_ACTION_KEYS,
)
