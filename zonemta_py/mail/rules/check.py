"""Whether rules do what their examples promise, found by trying them.

A problem is a rule without an example, an example that another rule of the same file claims (that rule shadows it) or
that none claims, a name used twice, a pattern that may take very long, an unknown provider, codes of replies that are
never classified. That a rule of an earlier file claims an example of a later file is not a problem: that is what the
earlier file is for.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator

from zonemta_py.mail.rules.classes import ABOUT_RECIPIENT, ABOUT_US
from zonemta_py.mail.rules.pattern import generic, risk
from zonemta_py.mail.rules.rule import Example, Rule
from zonemta_py.mail.rules.rules import Rules


def problems(rules: Rules, providers: Collection[str] | None = None) -> list[str]:
    """One sentence each: file, rule, what is wrong, what to do. Empty: all is well.

    providers: the names that sites can have; None: not looked at.
    """
    found = [sentence for rule in rules.rules for sentence in _of_rule(rules, rule)]
    if providers is not None:
        found += [sentence for rule in rules.rules for sentence in _unheard_of(rule, providers)]
    return found + list(_twice(rules))


CROSSED = ("banner", "mail", "rcpt", "data", "dot", "report")
"""Stages at which every example is tried, wherever it came."""


def contradictions(rules: Rules) -> list[str]:
    """One sentence for each example that at some stage would suppress its recipient at once though its rule says
    nothing of recipients, or rest a source at the same time; and for each that rules of one file take for a matter of
    the recipient and, equally plainly, of us."""
    return [
        sentence for rule in rules.rules for example in rule.examples for sentence in _crossed(rules, rule, example)
    ]


def disagreeing(matching: Iterable[Rule]) -> list[Rule]:
    """Rules after the first that speak of somebody else, or do the contrary with the message: of those of its file, and
    without those that look at a status or code alone."""
    worded = [rule for rule in matching if rule.pattern]
    return [rule for first in worded[:1] for rule in worded[1:] if rule.file == first.file and _contrary(first, rule)]


def _contrary(first: Rule, rule: Rule) -> bool:
    theirs = (first.kind in ABOUT_RECIPIENT) != (rule.kind in ABOUT_RECIPIENT) and {first.kind, rule.kind} & ABOUT_US
    return bool(theirs) or {first.action.verdict, rule.action.verdict} == {"retry", "bounce"}


def _crossed(rules: Rules, rule: Rule, example: Example) -> Iterator[str]:
    where = f"{rule.file}: rule {rule.name!r}: example {example.line!r}"
    for stage in CROSSED:
        judged = rules.judge(example.reply, stage, example.provider)
        if judged.agreed and (rule.kind not in ABOUT_RECIPIENT or judged.action.rest_s):
            yield f"{where} would suppress its recipient at once in stage {stage}, by {judged.rule!r}; narrow that rule"
    claim = _claim(rules, example)
    if claim and claim[0] is rule:
        for other in disagreeing(rules.matching(example.reply, example.stage, example.provider)):
            yield f"{where} is {rule.kind}, but {other.name!r} would take it for {other.kind}; narrow that one"


def overridden(rules: Rules) -> list[tuple[Rule, Rule]]:
    """(rule, the rule of an earlier file that claims an example of it)…, each pair once."""
    found = {
        (rule.file, rule.name, claim.file, claim.name): (rule, claim)
        for rule in rules.rules
        for example in rule.examples
        for claim in _claim(rules, example)
        if claim.file != rule.file
    }
    return list(found.values())


def _of_rule(rules: Rules, rule: Rule) -> Iterator[str]:
    where = f"{rule.file}: rule {rule.name!r}"
    if not rule.examples:
        yield f"{where} has no example; add a real reply to `examples`"
    if rule.codes is not None and max(rule.codes) < 400:
        yield f"{where} never matches: only refusals are classified; use a 4xx or 5xx code"
    why = risk(rule.pattern) if rule.pattern else ""
    if why:
        yield f"{where}: pattern {rule.pattern!r} may take very long: {why}"
    word = generic(rule.pattern) if rule.pattern and not _narrowed(rule) else ""
    if word:
        yield (
            f"{where}: the alternative {word!r} is one word that many replies have; add the words beside it in real"
            " replies, or narrow the rule by `provider` or `enhanced`"
        )
    for counter in rule.not_examples:
        if rule in rules.matching(counter.reply, counter.stage, counter.provider):
            yield f"{where} holds for its counter-example {counter.line!r}; narrow its pattern"
    rests = [rules.judge(example.reply, example.stage, example.provider).action.rest_s for example in rule.examples]
    if rule.action.rest_s and rests and not any(rests):
        yield (
            f"{where}: rest_s has no effect, since no example names our address, host or connection; add one that does,"
            ' or about = "source" if its words mean us'
        )
    claims = [(example, _claim(rules, example)) for example in rule.examples]
    shadows = {id(claim[0]): claim[0] for _, claim in claims if claim and _shadows(claim[0], rule)}
    if rule.examples and all(claim and _shadows(claim[0], rule) for _, claim in claims):
        names = " and ".join(repr(shadow.name) for shadow in shadows.values())
        yield f"{where} never matches, {names} before it claims all its examples; move it up or remove one of them"
        return
    for example, claim in claims:
        yield from _of_example(where, rule, example, claim)


def _narrowed(rule: Rule) -> bool:
    return bool(rule.providers or rule.enhanced or rule.words)


def _unheard_of(rule: Rule, providers: Collection[str]) -> Iterator[str]:
    for name in sorted((rule.providers or frozenset()) - set(providers)):
        near = difflib.get_close_matches(name, providers, 1)
        remedy = f"did you mean {near[0]!r}?" if near else "name one of providers.toml, or add it there"
        yield f"{rule.file}: rule {rule.name!r}: there is no provider {name!r}; {remedy}"


def _of_example(where: str, rule: Rule, example: Example, claim: list[Rule]) -> Iterator[str]:
    if not claim:
        yield f"{where} does not match its example {example.line!r}, nor does any other; correct pattern or example"
    elif _shadows(claim[0], rule):
        shadow = claim[0].name
        yield f"{where} is shadowed: {shadow!r} claims its example {example.line!r}; move it up or narrow that one"


def _shadows(claim: Rule, rule: Rule) -> bool:
    return claim is not rule and claim.file == rule.file


def _claim(rules: Rules, example: Example) -> list[Rule]:
    return rules.matching(example.reply, example.stage, example.provider)[:1]


def _twice(rules: Rules) -> Iterator[str]:
    """The journal knows a rule by its name alone, so names are unique over all files."""
    seen: dict[str, Rule] = {}
    for rule in rules.rules:
        if rule.name in seen:
            yield f"{rule.file}: rule {rule.name!r} is also in {seen[rule.name].file}; rename one of them"
        seen.setdefault(rule.name, rule)
