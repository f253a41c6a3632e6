"""Rules as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from zonemta_py.mail.rules.rule import Action, Rule


def row(rule: Rule) -> dict[str, object]:
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
        if field.name == "suspend_s":
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
