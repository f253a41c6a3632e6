"""What a regular expression says about itself: the text it cannot do without, and whether it may run away.

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

Tree = Iterable[tuple[Any, Any]]


def needed(pattern: str) -> tuple[str, ...]:
    """Lower-case strings of which every match holds at least one; ("",) if nothing can be said. Raises re.error."""
    return max(_offers(_parser.parse(pattern, FLAGS)), key=_worth, default=("",))


def risk(pattern: str) -> str:
    """Why matching may take time out of all proportion to the text's length, as half a sentence; "" if it does not.

    Found are quantifiers within quantifiers, more than two unbounded wildcards, and a wildcard at the beginning.
    """
    tree = _parser.parse(pattern, FLAGS)
    if _nested(tree, False):
        return "a quantifier within a quantifier; write the inner one with a bound such as {0,40}"
    wildcards = [_wild(operator, value) for operator, value in tree]
    if wildcards[:1] == [True]:
        return "it begins with an unbounded wildcard, which says nothing; leave it out"
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
    return operator in _REPEATS and value[1] >= _MANY and any(inner is _parser.ANY for inner, _ in value[2])


_REPEATS = (_parser.MAX_REPEAT, _parser.MIN_REPEAT, _parser.POSSESSIVE_REPEAT)
_INVISIBLE = (_parser.ASSERT, _parser.ASSERT_NOT, _parser.AT)
