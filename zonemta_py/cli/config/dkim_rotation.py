"""Rotating a DKIM key without failures: which step a domain's keys are at, and what to do next.

Publish the new key and wait until it is visible; sign with both; retire the old one; once the last mail that it signed
has arrived, remove it from DNS. Keys of one algorithm rotate among themselves; the last one is new.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from typing import NamedTuple

from zonemta_py.config import DkimKey
from zonemta_py.pipeline.findings.toml_text import own_end, tables

DUAL_DAYS = 1
"""How long both sign: until no resolver remembers that the new one was not there."""
ARRIVE_DAYS = 7
"""After the retry life: forwarders and mailboxes verify late."""
_STATE = re.compile(r"^[ \t]*state[ \t]*=.*$", re.MULTILINE)


class RotationState(NamedTuple):
    """A key and its record in DNS."""

    settings: DkimKey
    dns: str


class Step(NamedTuple):
    """publish: selectors whose records are to be shown. change: the key and the state that it should get."""

    number: int
    name: str
    todo: str
    publish: tuple[str, ...] = ()
    change: tuple[DkimKey, str] | None = None


def next_step(states: Sequence[RotationState], life_h: float) -> Step:
    """states: the keys of one domain and algorithm, in the order of the configuration; at least one."""
    active = [state for state in states if state.settings.state == "active"]
    published = [state for state in states if state.settings.state == "published"]
    retired = [state for state in states if state.settings.state == "retired"]
    unseen = tuple(state.settings.selector for state in (*active, *published) if state.dns != "ok")
    if unseen:
        names = " and ".join(unseen)
        return Step(
            2, "publish", f"DNS does not have the right record for {names}; publish it, then run this again:", unseen
        )
    if published:
        new = published[-1].settings
        todo = f"{new.selector} is in DNS; let it sign too, then restart zonemta:"
        return Step(3, "dual-sign", todo, change=(new, "active"))
    if len(active) > 1:
        old, new = active[0].settings, active[-1].settings
        todo = (
            f"both sign; after {DUAL_DAYS} day stop signing with {old.selector} ({new.selector} stays), then restart:"
        )
        return Step(4, "switch", todo, change=(old, "retired"))
    visible = [state.settings.selector for state in retired if state.dns not in ("missing", "revoked")]
    if visible:
        days = round(life_h / 24 + ARRIVE_DAYS)
        todo = f"{days} days after its last signature, remove {' and '.join(visible)} from DNS (or publish an empty p=)"
        return Step(5, "retire", todo + "; then run this again")
    if retired:
        names = " and ".join(state.settings.selector for state in retired)
        return Step(5, "retire", f"done; delete the [[dkim]] table and the key file of {names}")
    return Step(1, "begin", _begin(states[-1].settings))


def _begin(settings: DkimKey) -> str:
    return (
        f"make a new key with `zonemta dkim new {settings.domain} {successor(settings.selector)}`,"
        ' add its table (state = "published") to the configuration, then run this again'
    )


def successor(selector: str) -> str:
    """A name for the next one: its last number plus one, or a 2 after it."""
    found = re.search(r"\d+(?=\D*$)", selector)
    if found is None:
        return selector + "2"
    return f"{selector[: found.start()]}{int(found[0]) + 1:0{len(found[0])}}{selector[found.end() :]}"


def table(settings: DkimKey) -> str:
    """The key as a table of the configuration."""
    return (
        f'[[dkim]]\ndomain = "{settings.domain}"\nselector = "{settings.selector}"\n'
        f'key = {_quoted(str(settings.key))}\nstate = "{settings.state}"'
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def diff(text: str, name: str, settings: DkimKey, state: str) -> str:
    """How the configuration's text has to change, as a unified diff; in words if the table cannot be found."""
    for start, end in tables(text):
        part = text[start:end]
        if not _is(part, settings):
            continue
        line = f'state = "{state}"'
        changed = _STATE.sub(line, part, count=1) if _STATE.search(part) else _added(part, line)
        before, after = text.splitlines(), (text[:start] + changed + text[end:]).splitlines()
        return "\n".join(difflib.unified_diff(before, after, name, name, lineterm=""))
    return f'set state = "{state}" in the [[dkim]] table of {settings.domain}, {settings.selector}'


def _is(part: str, settings: DkimKey) -> bool:
    try:
        [row] = tomllib.loads(part)["dkim"]
        other = DkimKey.model_validate(row)
    except (ValueError, KeyError, TypeError):  # no table of a key, or not a whole one
        return False
    return (other.domain, other.selector) == (settings.domain, settings.selector)


def _added(part: str, line: str) -> str:
    """Behind the table's own lines."""
    end = own_end(part, 0, len(part))
    return part[:end].rstrip("\n") + f"\n{line}\n" + part[end:]
