"""Classification of replies: which rule matches a reply, hence its class and what is to be done.

The first rule that matches, in the order of the files and within them, decides. A file holds [[rules]] tables (see
`rule`) and [classes.NAME] tables with the action that all rules of a class take where they do not say otherwise; of
several files the first that speaks of a class's action key has the say. Where the rule allows it a second opinion
(`opinion`) may name another class.
Promises: `judge` always answers (class "undefined" if no rule holds), the same for the same arguments; it remembers
what it answered, in bounded room; a text is looked at up to TEXT_MAX characters.
Failures: only `load`, with RulesError of one sentence.

How it is fast: the rules that a code, enhanced code, stage and provider leave over are kept as a list; of each only
its literal text (`pattern.needed`) is looked for before its regular expression is tried.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.opinion import because, opinion, prepare
from zonemta_py.mail.rules.pattern import FLAGS, needed
from zonemta_py.mail.rules.precedence import SEEN, agreed, bar, trimmed
from zonemta_py.mail.rules.reading import Reading, addresses_in, elsewhere, read
from zonemta_py.mail.rules.repair import repaired
from zonemta_py.mail.rules.rule import ACTION_KEYS, OPINION, Action, Classified, Rule, RulesError, action_of, rule_of
from zonemta_py.mail.vocabulary import matcher
from zonemta_py.mail.vocabulary.spelling import folded

__all__ = ["CLASSES", "UNDEFINED", "Action", "Classified", "Rule", "Rules", "RulesError"]

SECOND_OPINION = "second_opinion"
TEXT_MAX = 1_000
REMEMBERED_MAX = 8_192
"""Answers, and lists of rules, kept at most; then all are forgotten and collected anew."""
_NO_ACTION = Action()
UNDEFINED = Classified("", "undefined", _NO_ACTION)
OWN = "own-"
"""The names of rules for what no server said begin so."""

_SOFTENED = re.compile(r"server refused to talk to us: ([45]\d\d) ?(?:([45]\.\d{1,3}\.\d{1,3})(?: |$))?(.*)", re.DOTALL)
"""What `classify.judge` makes of a 5xx that came before MAIL: the rules look at the server's own words."""
_ADDRESS = re.compile(r"""[^\s<>\[\]()"',;:@]{1,64}@[^\s<>\[\]()"',;:@]{1,255}""")
_CLIENT = re.compile(
    r"\b(?:client|your|sending|connecting|source|remote)\b[^.;:,]{0,24}[\[( ](?:\d{1,3}\.){3}\d", re.IGNORECASE
)
"""Client host [192.0.2.1]: us, by whatever address."""
_SPACES = re.compile(r" {2,}")
_QMAIL_STATUS = re.compile(r"\(#([45]\.\d{1,3}\.\d{1,3})\)")
"""qmail puts the enhanced code behind its text."""

_Test = tuple[str, tuple[str, ...], Callable[[str], Any], Classified]
"""First needed string, the other ones, the pattern's search, the result if it matches."""


class Rules:
    """The rules of some files, in order."""

    def __init__(self, rules: Iterable[Rule], classes: dict[str, Action] | None = None) -> None:
        """classes: the action of each class that has one."""
        self.rules, self._classes = tuple(rules), classes or {}
        self._tests = [(rule, _test(rule)) for rule in self.rules]
        self._by_words = frozenset(rule.name for rule in self.rules if rule.words)
        self._signed = frozenset(rule.name for rule in self.rules if rule.signature)
        self._about = {rule.name: rule.about for rule in self.rules if rule.about}
        alone = {rule.name for rule in self.rules if not rule.second_opinion}
        self._second = frozenset(rule.name for rule in self.rules) - alone
        self._left_over: dict[tuple[int, str, str, str], tuple[_Test, ...]] = {}
        self._answers: dict[tuple[str, int, str, str, str, bool], Classified] = {}

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Rules:
        """Reads the files, the one that has precedence first, and the vocabulary. Raises RulesError."""
        matcher.prepare()
        prepare()
        return cls.parse((str(path), _text(path)) for path in paths)

    @classmethod
    def parse(cls, texts: Iterable[tuple[str, str]]) -> Rules:
        """From (name of the file, its TOML)… Raises RulesError."""
        documents = [(file, _document(file, text)) for file, text in texts]
        actions: dict[str, dict[str, Any]] = {}
        for file, document in reversed(documents):
            for kind, table in _class_actions(file, document).items():
                actions[kind] = actions.get(kind, {}) | table
        return cls(
            (
                rule_of(_second_opinion(file, document) | table, file, number, actions)
                for file, document in documents
                for number, table in enumerate(_tables(file, document), 1)
            ),
            {kind: action_of(table, f"classes.{kind}") for kind, table in actions.items()},
        )

    def judge(self, reply: Reply, stage: str, provider: str, ours: Collection[str] = ()) -> Classified:
        """What a reply that came in `stage` (names of `Outcome.stage`) from `provider` ("" for none known) means. ours:
        the IP addresses by which the server may know us, if they are known: of others that it names once it has seen
        the message, it has read them there."""
        text = _anonymous(reply.text)
        foreign = bool(ours) and stage in SEEN and _names_others(text, ours)
        key = (text, reply.code, reply.enhanced, stage, provider, foreign)
        classified = self._answers.get(key)
        if classified is None:
            if len(self._answers) >= REMEMBERED_MAX:
                self._answers.clear()
            said = _as_said(reply, text)
            foreign = foreign and not (_CLIENT.search(text) or "source" in reading_of(said, stage).speaks)
            classified = self._answers[key] = self._judge(said, stage, provider, foreign)
        return classified

    def own(self, kind: str, stage: str) -> Classified:
        """Of what no server said: its class is known, and no rule looks at its words. Its action is the class's; TLS
        that failed, and was not demanded, is left out for a while."""
        action = self._classes.get(kind, _NO_ACTION)
        if kind == "tls" and stage == "tls" and not action.no_tls:
            action = dataclasses.replace(action, no_tls=True)
        return Classified(f"{OWN}{kind}", kind, action)

    def matching(self, reply: Reply, stage: str, provider: str) -> list[Rule]:
        """All rules that match, the deciding one first."""
        return [rule for rule, barred in self.candidates(reply, stage, provider) if not barred]

    def candidates(self, reply: Reply, stage: str, provider: str) -> list[tuple[Rule, str]]:
        """All rules whose conditions hold, in order, and why they have no say all the same ("" if they have)."""
        said = as_said(reply)
        reading, lowered = reading_of(said, stage), said.text.lower()
        return [
            (rule, bar(rule.kind, rule.about, said, stage, reading))
            for rule, (first, others, search, _) in self._tests
            if (first in lowered or any(other in lowered for other in others))
            and rule.admits(said.code, said.enhanced, stage, provider)
            and search(said.text)
            and (not rule.words or reading.kind == rule.kind)
        ]

    def reading(self, reply: Reply, stage: str) -> Reading:
        """Of whom the reply speaks, and what it says."""
        return reading_of(as_said(reply), stage)

    def because(self, reply: Reply, stage: str, kind: str) -> tuple[str, ...]:
        """What in a reply speaks most for a class, to the second opinion."""
        return because(as_said(reply), stage, kind)

    def _judge(self, reply: Reply, stage: str, provider: str, foreign: bool = False) -> Classified:
        """foreign: the IP addresses that it names are not ours."""
        text, lowered = reply.text, reply.text.lower()
        reading = reading_of(Reply(reply.code, reply.enhanced, elsewhere(text)) if foreign else reply, stage)
        for first, others, search, classified in self._tests_for(reply.code, reply.enhanced, stage, provider):
            # Written out since it runs some hundred times for a reply: a generator for `others` would double its time.
            if first not in lowered:
                for other in others:
                    if other in lowered:
                        break
                else:
                    continue
            if search(text) and not self._passed_over(classified, reply, stage, reading):
                settled = _settled(classified, self._about.get(classified.rule, ""), reply, stage, reading)
                if classified.rule in self._signed and stage == "rcpt" and reply.permanent:
                    return settled._replace(agreed=True)
                return self._corrected(settled, reply, stage, reading)
        return UNDEFINED

    def _corrected(self, classified: Classified, reply: Reply, stage: str, reading: Reading) -> Classified:
        """With the class of the second opinion, if it is much surer of it, and may be asked."""
        if classified.rule not in self._second or classified.agreed:
            return classified
        other = opinion(reply, stage)
        if not other.corrects(classified.kind) or bar(other.kind, "", reply, stage, reading):
            return classified
        action = trimmed(other.kind, self._classes.get(other.kind, _NO_ACTION), "", reply, stage, reading)
        return Classified(f"{classified.rule}{OPINION}", other.kind, action)

    def _passed_over(self, classified: Classified, reply: Reply, stage: str, reading: Reading) -> bool:
        by_words = classified.rule in self._by_words
        about = self._about.get(classified.rule, "")
        return (by_words and reading.kind != classified.kind) or bool(
            bar(classified.kind, about, reply, stage, reading)
        )

    def _tests_for(self, code: int, enhanced: str, stage: str, provider: str) -> tuple[_Test, ...]:
        key = (code, enhanced, stage, provider)
        tests = self._left_over.get(key)
        if tests is None:
            if len(self._left_over) >= REMEMBERED_MAX // 8:
                self._left_over.clear()
            tests = tuple(test for rule, test in self._tests if rule.admits(code, enhanced, stage, provider))
            self._left_over[key] = tests
        return tests


def _test(rule: Rule) -> _Test:
    first, *others = needed(rule.pattern)
    return first, tuple(others), re.compile(rule.pattern, FLAGS).search, Classified(rule.name, rule.kind, rule.action)


def reading_of(reply: Reply, stage: str) -> Reading:
    """Of whom the reply, in the server's own words, speaks."""
    return read(folded(reply.text), reply.code, reply.enhanced, stage)


def _names_others(text: str, ours: Collection[str]) -> bool:
    """Whether IP addresses stand in it, and none of ours."""
    named = addresses_in(text.lower())
    return bool(named) and not any(address in ours for address in named)


def _settled(classified: Classified, about: str, reply: Reply, stage: str, reading: Reading) -> Classified:
    action = trimmed(classified.kind, classified.action, about, reply, stage, reading)
    enough = agreed(classified.kind, reply, stage, reading)
    if action is classified.action and not enough:
        return classified
    return classified._replace(action=action, agreed=enough)


def _anonymous(text: str) -> str:
    """What of a text is looked at. Addresses are not: mail to virus@example.com has no virus, and replies that differ
    in the address alone are one and the same to our memory."""
    text = repaired(text[:TEXT_MAX])
    if "  " in text:
        text = _SPACES.sub(" ", text)
    return _ADDRESS.sub("@", text) if "@" in text else text


def names_another(text: str, addresses: Collection[str]) -> bool:
    """Whether a reply's text names an address that is none of these, such as the sender's, or where mail goes on to."""
    if "@" not in text:
        return False
    known = {address.lower() for address in addresses}
    return any(found.lower().strip(".'\"") not in known for found in _ADDRESS.findall(text))


def as_said(reply: Reply) -> Reply:
    """What of a reply is looked at: the server's own words, repaired, without addresses."""
    return _as_said(reply, _anonymous(reply.text))


def _as_said(reply: Reply, text: str) -> Reply:
    """The reply in the server's own words, with its enhanced code if it has one anywhere."""
    softened = _SOFTENED.match(text)
    code, enhanced = reply.code, reply.enhanced
    if softened:
        code, enhanced, text = int(softened[1]), softened[2] or "", softened[3]
    status = None if enhanced else _QMAIL_STATUS.search(text)
    return Reply(code, status[1] if status else enhanced, text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(f"{path}: cannot be read ({error.strerror}); name an existing file of rules") from None
    except UnicodeDecodeError:
        raise RulesError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


def _document(file: str, text: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{file}: is not TOML: {error}; correct that line") from None
    unknown = sorted(document.keys() - {"rules", "classes", SECOND_OPINION})
    if unknown:
        raise RulesError(f"{file}: there is no key {unknown[0]!r}; write [[rules]] and [classes.NAME] tables")
    return document


def _second_opinion(file: str, document: dict[str, Any]) -> dict[str, Any]:
    """What all rules of a file say where they do not say otherwise."""
    value = document.get(SECOND_OPINION, False)
    if not isinstance(value, bool):
        raise RulesError(f"{file}: {SECOND_OPINION} is {value!r}; it must be true or false")
    return {SECOND_OPINION: value}


def _tables(file: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    tables = document.get("rules", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise RulesError(f"{file}: rules is not a list of tables; write [[rules]] before each")
    return tables


def _class_actions(file: str, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Checked, so that a mistake is reported where it was made and not in a rule of the class."""
    classes = document.get("classes", {})
    if not isinstance(classes, dict):
        raise RulesError(f"{file}: classes is not a table; write [classes.NAME]")
    for kind, table in classes.items():
        where = f"{file}: classes.{kind}"
        if kind not in CLASSES or not isinstance(table, dict):
            raise RulesError(f"{where}: there is no such class; use one of {', '.join(CLASSES)}")
        unknown = sorted(table.keys() - ACTION_KEYS)
        if unknown:
            raise RulesError(f"{where}: there is no key {unknown[0]!r}; a class has {', '.join(sorted(ACTION_KEYS))}")
        action_of(table, where)
    return classes


def rule_row(rule: Rule) -> dict[str, object]:
    """As people and programs read it."""
    given = {f.name: getattr(rule.action, f.name) for f in fields(rule.action)}
    changed = {f.name: given[f.name] for f in fields(rule.action) if given[f.name] != f.default}
    asks = conditions(rule)
    return {"rule": rule.name, "class": rule.kind, "asks": asks, "action": changed, "file": rule.file}


def effects(action: Action) -> str:
    """What differs from doing nothing, such as "verdict retry, rest 1800 s, from 3 in 300 s"."""
    does = []
    for field in fields(action):
        value = getattr(action, field.name)
        if value == field.default or field.name in ("after", "within_s"):
            continue
        if field.name in ("suspend_s", "reroute_s"):
            does.append(f"for {value:g} s")
        elif field.name.endswith("_s"):
            does.append(f"{field.name[:-2]} {value:g} s")
        else:
            does.append(field.name.replace("_", " ") if value is True else f"{field.name} {value}")
    if action.after > 1:
        does.append(f"from {action.after} in {action.within_s:g} s")
    return ", ".join(does)


def conditions(rule: Rule) -> str:
    """What a rule asks of a reply, as in its file."""
    asks = [f"/{rule.pattern}/"] if rule.pattern else []
    asks += [f"words of {rule.kind}"] if rule.words else []
    asks += [f"code {_codes(rule.codes)}"] if rule.codes else []
    asks += [f"enhanced {', '.join(rule.enhanced)}"] if rule.enhanced else []
    asks += [f"stage {', '.join(sorted(rule.stages))}"] if rule.stages else []
    asks += [f"provider {', '.join(sorted(rule.providers))}"] if rule.providers else []
    return "; ".join(asks) or "nothing: any reply"


def _codes(codes: Iterable[int]) -> str:
    """Whole classes as 4xx."""
    left = set(codes)
    names = []
    for first in (2, 4, 5):
        whole = set(range(first * 100, first * 100 + 100))
        if whole <= left:
            names.append(f"{first}xx")
            left -= whole
    return ", ".join(names + [str(code) for code in sorted(left)])
