"""A report on our mail in one sentence, for lists, the log and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMED_MAX = 3


def sentence(kind: str, said: Mapping[str, Any]) -> str:
    """kind: of feedback. said: as it is recorded."""
    if kind == "dmarc-report":
        return _of_dmarc(said)
    if kind == "tls-report":
        return _of_tls(said)
    return _of_reputation(said)


def share(part: int, whole: int) -> str:
    """Rounded down, so that what is not all is never 100 %."""
    return f"{int(part * 1000 / whole) / 10:.1f} %" if whole else "none"


def _of_dmarc(said: Mapping[str, Any]) -> str:
    get = said.get
    ours, passed, others = get("ours", 0), get("ours_passed", 0), get("messages", 0) - get("ours", 0)
    parts = [f"of {ours:,} messages from our sources {share(passed, ours)} passed DMARC" if ours else ""]
    failing = dict[str, int]()
    for row in get("rows", ()):
        if row["ours"] and not row["passed"]:
            failing[row.get("ip", "")] = failing.get(row.get("ip", ""), 0) + row["count"]
    worst = sorted(failing.items(), key=lambda one: -one[1])
    parts += [f"{ip} is not aligned: {number:,}" for ip, number in worst[:_NAMED_MAX]]
    parts.append(f"{len(worst) - _NAMED_MAX} more of our sources are not" if len(worst) > _NAMED_MAX else "")
    failed = others - (get("passed", 0) - passed)
    parts.append(f"{others:,} messages from others, {failed:,} of which failed" if others else "")
    return f"{get('domain', '')} at {get('org') or 'an unnamed receiver'}: " + (
        "; ".join(filter(None, parts)) or "no messages"
    )


def _of_tls(said: Mapping[str, Any]) -> str:
    get, failures = said.get, dict[str, int]()
    for one in get("failures", ()):
        what = f"{one.get('kind')} at {one['mx']}" if one.get("mx") else str(one.get("kind"))
        failures[what] = failures.get(what, 0) + one.get("count", 0)
    worst = sorted(failures.items(), key=lambda one: -one[1])[:_NAMED_MAX]
    named = "".join(f"; {what}: {number:,}" for what, number in worst)
    who = f"{get('domain', '')} at {get('org') or 'an unnamed sender'}"
    return f"{who}: {get('failed', 0):,} of {get('sessions', 0):,} TLS sessions failed{named}"


def _of_reputation(said: Mapping[str, Any]) -> str:
    get = said.get
    parts = [str(get("reputation", ""))]
    parts.append(f"complaints {said['complaint_rate'] * 100:.3g} %" if "complaint_rate" in said else "")
    parts.append(f"{get('traps'):,} spam traps" if get("traps") else "")
    return f"{get('name')} at {get('provider')} on {get('day')}: {', '.join(filter(None, parts)) or 'nothing told'}"
