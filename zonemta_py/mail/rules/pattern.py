"""Analysis of a regular expression: the text it cannot match without, and whether it may take very long.

Both are read off the parse tree that the `re` module makes of the pattern. The tree is private to `re`, and the same
since Python 3.11; tests hold `needed` to its promise against `re` itself.
Promise: whenever the pattern matches somewhere in a text, the lower-cased text has at least one string of `needed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _parser  # type: ignore[attr-defined]
from typing import Any

FLAGS = re.IGNORECASE | re.ASCII
"""Of every pattern here. ASCII, so that lower-casing text and literal is the same as ignoring case."""
_MANY = 100
"""A quantifier that allows this often, or oftener, counts as unbounded."""
_ALTERNATIVES_MAX = 24
_WILDCARDS_MAX = 2
_WIDE = 96
"""So many of the 128 characters make a set a wildcard."""
_ROUNDS = 10
"""With fewer rounds even a loose quantifier comes to an end soon."""

Tree = Iterable[tuple[Any, Any]]


def needed(pattern: str) -> tuple[str, ...]:
    """Lower-case strings of which every match holds at least one; ("",) if nothing can be said. Raises re.error."""
    return max(_offers(_parser.parse(pattern, FLAGS)), key=_worth, default=("",))


GENERIC = frozenset((
    "access", "account", "address", "administratively", "bad", "banned", "blocked", "busy", "closed", "command",
    "connection", "data", "delivery", "denied", "disabled", "domain", "error", "exceeded", "failed", "failure",
    "full", "host", "idle", "invalid", "length", "limit", "local", "lookup", "mail", "mailbox", "mapping",
    "message", "network", "policy", "prohibited", "quota", "recipient", "refused", "rejected", "remote",
    "resource", "sender", "server", "service", "size", "system", "temporarily", "temporary", "timeout", "unable",
    "unavailable", "unknown", "unreachable", "user", "verification", "verify",
))  # fmt: skip
"""Words that replies of many classes have."""
_EDGES = re.compile(r"\\b|[\^$]")


def generic(pattern: str) -> str:
    """An alternative that is nothing but one word that says little by itself; "" if there is none."""
    return next((one for one in _alternatives(pattern) if _EDGES.sub("", one).lower() in GENERIC), "")


def _alternatives(pattern: str) -> list[str]:
    """The outermost ones, as they are written; also within a group around all of them."""
    found, start, depth, within = list[str](), 0, 0, False
    for at in re.finditer(r"\\.|[][()|]", pattern, re.DOTALL):
        if within or at[0] == "[":
            within = at[0] != "]"
        elif at[0] in ("(", ")"):
            depth += 1 if at[0] == "(" else -1
        elif at[0] == "|" and not depth:
            found.append(pattern[start : at.start()])
            start = at.end()
    found.append(pattern[start:])
    whole = re.fullmatch(r"(?:\\b)?\((?:\?:)?([^()]*)\)(?:\\b)?", pattern)
    return whole[1].split("|") if whole else found


def risk(pattern: str) -> str:
    """Why matching may take time far beyond the text's length, as a phrase; "" if it does not.

    Found are quantifiers within quantifiers, alternatives that begin alike within one, two side by side for the same
    characters, more than two unbounded wildcards, and a wildcard at the beginning.
    """
    tree = _parser.parse(pattern, FLAGS)
    if _nested(tree, False):
        return "a quantifier within a quantifier; write the inner one with a bound such as {0,40}"
    if any(_loose(inner) for inner in _repeated(tree)):
        return "a quantifier around what can match the same text in several ways; begin each alternative differently"
    if _side_by_side(tree):
        return "two adjacent quantifiers for the same characters; merge them"
    wildcards = [_wild(operator, value) for operator, value in tree]
    if wildcards[:1] == [True]:
        return "it begins with an unbounded wildcard, which has no effect; remove it"
    if sum(wildcards) > _WILDCARDS_MAX:
        return f"more than {_WILDCARDS_MAX} unbounded wildcards; bound them, such as .{{0,40}}"
    return ""


def _worth(offer: tuple[str, ...]) -> tuple[int, int]:
    """Long strings are rare in a text; many alternatives take long to look for."""
    return min(map(len, offer)), -len(offer)


def _offers(tree: Tree) -> list[tuple[str, ...]]:
    """Each offer alone is needed."""
    offers: list[tuple[str, ...]] = []
    run = ""
    for operator, value in _flat(tree):
        if operator is _parser.LITERAL and value < 128:
            run += chr(value).lower()
            continue
        offers += [(run,)] if run else []
        run = ""
        if operator is _parser.BRANCH:
            offers += _of_branches(value[1])
        elif operator in _REPEATS and value[0] > 0:
            offers += _offers(value[2])
    return [*offers, (run,)] if run else offers


def _of_branches(branches: list[Tree]) -> list[tuple[str, ...]]:
    """What all the branches need, together."""
    together: list[str] = []
    for branch in branches:
        best = max(_offers(branch), key=_worth, default=())
        if not best:
            return []
        together += best
    return [tuple(together)] if len(together) <= _ALTERNATIVES_MAX else []


def _flat(tree: Tree) -> Iterable[tuple[Any, Any]]:
    """The sequence with its groups opened, so that text runs on through them."""
    for operator, value in tree:
        if operator is _parser.SUBPATTERN:
            yield from _flat(value[3])
        elif operator not in _INVISIBLE:
            yield operator, value
        elif operator in (_parser.ASSERT, _parser.ASSERT_NOT):
            continue  # looks ahead or behind: takes up no text of its own
        else:
            yield operator, value


def _nested(tree: Tree, within: bool) -> bool:
    for operator, value in tree:
        many = operator in _REPEATS and value[1] >= _MANY
        if (many and within) or any(_nested(inner, within or many) for inner in _inner(operator, value)):
            return True
    return False


def _inner(operator: Any, value: Any) -> list[Tree]:
    if operator is _parser.SUBPATTERN:
        return [value[3]]
    if operator is _parser.BRANCH:
        return list(value[1])
    if operator in _REPEATS:
        return [value[2]]
    return [value[1]] if operator in (_parser.ASSERT, _parser.ASSERT_NOT) else []


def _wild(operator: Any, value: Any) -> bool:
    """For nearly all characters, however many."""
    return operator in _REPEATS and value[1] >= _MANY and len(_begins(value[2])[0]) > _WIDE


def _repeated(tree: Tree) -> Iterable[Tree]:
    """What stands under a quantifier that allows more than a few rounds."""
    for operator, value in tree:
        if operator in _REPEATS and value[1] >= _ROUNDS:
            yield value[2]
        for inner in _inner(operator, value):
            yield from _repeated(inner)


def _loose(tree: Tree) -> bool:
    """Whether a round may match nothing, or be cut in another way: nothing in it is fixed, or alternatives overlap."""
    items = list(_flat(tree))
    if any(operator is _parser.BRANCH and _overlap(value[1]) for operator, value in items):
        return True
    return bool(items) and all(operator in _REPEATS and value[0] != value[1] for operator, value in items)


def _overlap(branches: list[Tree]) -> bool:
    """Whether two of them may begin alike, or both be empty."""
    seen: set[int] = set()
    empty = False
    for branch in branches:
        first, nullable = _begins(branch)
        if seen & first or (nullable and empty):
            return True
        seen |= first
        empty |= nullable
    return False


def _side_by_side(tree: Tree) -> bool:
    before: set[int] = set()
    for operator, value in _flat(tree):
        many = operator in _REPEATS and value[1] >= _MANY
        here = _begins(value[2])[0] if many else set()
        if before & here:
            return True
        optional = operator in _REPEATS and not value[0]
        before = here | before if optional else here
        if any(_side_by_side(inner) for inner in _inner(operator, value)):
            return True
    return False


def _begins(tree: Tree) -> tuple[set[int], bool]:
    """The ASCII characters that a match may begin with, and whether it may be empty."""
    found: set[int] = set()
    for operator, value in _flat(tree):
        if operator in _REPEATS:
            first, empty = _begins(value[2])
            empty = empty or not value[0]
        elif operator is _parser.BRANCH:
            each = [_begins(branch) for branch in value[1]]
            first, empty = set().union(*(one for one, _ in each)), any(nothing for _, nothing in each)
        else:
            first, empty = _characters(operator, value), False
        found |= first
        if not empty:
            return found, False
    return found, True


def _characters(operator: Any, value: Any) -> set[int]:
    """Of one character of the pattern; all, if it is not known."""
    if operator is _parser.LITERAL:
        return {ord(case) for case in (chr(value).lower() + chr(value).upper())}
    if operator is _parser.NOT_LITERAL:
        return _ALL - _characters(_parser.LITERAL, value)
    if operator is _parser.RANGE:
        return set().union(*(_characters(_parser.LITERAL, code) for code in range(value[0], min(value[1], 127) + 1)))
    if operator is _parser.CATEGORY:
        return _ALL & _CATEGORIES.get(value, _ALL)
    if operator is _parser.IN:
        named = set().union(*(_characters(*one) for one in value if one[0] is not _parser.NEGATE))
        return _ALL - named if value[0][0] is _parser.NEGATE else named
    return _ALL


_ALL = set(range(128))
_CATEGORIES = {
    getattr(_parser, f"CATEGORY_{name}"): {code for code in _ALL if re.match(shape, chr(code), re.ASCII)}
    for name, shape in (
        ("DIGIT", r"\d"), ("NOT_DIGIT", r"\D"), ("SPACE", r"\s"), ("NOT_SPACE", r"\S"), ("WORD", r"\w"),
        ("NOT_WORD", r"\W"),
    )
}  # fmt: skip


_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT, _parser.POSSESSIVE_REPEAT)
_INVISIBLE = (_parser.ASSERT, _parser.ASSERT_NOT, _parser.AT)
