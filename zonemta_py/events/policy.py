"""Events of a STANDING record: what was stopped, lifted, learned or ordered (FORMAT.md, "STANDING"). Pure.

A lift ends whatever its kind names: a stop, or something learned, which is forgotten then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from zonemta_py.journal.facts import Stood
from zonemta_py.journal.records.orders import CONFIGURATION, WAITED
from zonemta_py.mail.reroute import REROUTE, parts_of
from zonemta_py.schedule.flow import split_key

Told = tuple[str, dict[str, Any]]
_NAMED = ("campaign", "tenant", "zone", "source")
"""Kinds whose name is a field that filters know."""
_LIFTED = {
    "rate": "rate_changed", "concurrency": "concurrency_changed", "recipients": "manner_changed",
    "pipelining": "manner_changed", "guard": "guard_lifted", REROUTE: "reroute_ended",
}  # fmt: skip


def told(fact: Stood) -> Iterator[Told]:
    if fact.again or fact.what == WAITED:
        return
    tell = _TELLERS.get(fact.what)
    if tell is not None:
        yield tell(str(fact.kind), str(fact.name), fact.value, str(fact.cause or ""))
        return
    yield "policy_changed", _about(fact.kind, fact.name, fact.cause) | {"reason": str(fact.what)}


def _about(kind: str, name: str, cause: str) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": kind, "name": name}
    if kind in _NAMED:
        data[kind] = name
    elif kind in ("concurrency", "resting"):
        zone, _, rest = name.partition(" ")
        site, _, source = rest.partition(" ")
        way = (("zone", zone), ("site", split_key(site)[0]), ("source", source))
        data |= {key: value for key, value in way if value}
    elif kind == REROUTE:
        data |= {"zone": zone} if (zone := parts_of(name)[0]) else {}
    elif kind == "rest":
        source, _, site = name.partition(" ")
        data |= {"source": source, "site": site}
    elif kind == "guard":
        provider, _, source = name.partition(" ")
        data |= {"provider": provider} | ({"source": source} if source else {})
    elif kind in ("no-tls", "recipients", "pipelining"):
        data["site"] = name
    if cause:
        data["cause"] = cause
    return data


def _stop(kind: str, name: str, value: Any, cause: str) -> Told:
    until_ms, since_ms = value[:2]
    times = {"until_ms": until_ms, "since_ms": since_ms}
    if kind == REROUTE:
        times |= {"reason": f"to {value[5]}" if len(value) > 5 else ""}
        return "rerouted", _about(kind, name, cause) | {key: one for key, one in times.items() if one}
    told = "guard_raised" if kind == "guard" else "suspended"
    return told, _about(kind, name, cause) | {key: ms for key, ms in times.items() if ms}


def _lift(kind: str, name: str, value: Any, cause: str) -> Told:
    return _LIFTED.get(kind, "resumed"), _about(kind, name, cause)


def _rate(source: str, provider: str, value: Any, cause: str) -> Told:
    rate = (value or {}).get("rate")
    data: dict[str, Any] = {"kind": "rate", "name": f"{source} {provider}".strip()}
    data |= {key: text for key, text in (("source", source), ("provider", provider), ("cause", cause)) if text}
    return "rate_changed", data | ({"rate": rate} if rate else {})


def _warmup(source: str, provider: str, value: Any, cause: str) -> Told:
    data = {"kind": "warmup", "name": f"{source} {provider}", "source": source, "provider": provider}
    data |= {"cause": cause} if cause else {}
    return "warmup_changed", data | ({"good_days": value[0]} if value else {})


def _concurrency(kind: str, name: str, value: Any, cause: str) -> Told:
    """The window is the first of the state's values (`zones.feedback`)."""
    state, since_ms = value[:2]
    data = _about("concurrency", name, cause) | {"window": state[0]}
    return "concurrency_changed", data | ({"since_ms": since_ms} if since_ms else {})


def _manner(kind: str, name: str, value: Any, cause: str) -> Told:
    most, since_ms = value[:2]
    return "manner_changed", _about(kind, name, cause) | {"most": most} | ({"since_ms": since_ms} if since_ms else {})


def _begin(kind: str, name: str, value: Any, cause: str) -> Told:
    known = {key: value.get(key) for key in ("tenant", "sender", "zone", "planned")}
    return "campaign_begun", {"campaign": name} | {key: one for key, one in known.items() if one}


def _cancel(kind: str, name: str, value: Any, cause: str) -> Told:
    return "campaign_canceled", {"campaign": name} | ({"cause": cause} if cause else {})


def _complete(kind: str, name: str, value: Any, cause: str) -> Told:
    return "campaign_completed", {"campaign": name} | ({"cause": cause} if cause else {})


def _winner(kind: str, name: str, value: Any, cause: str) -> Told:
    return "campaign_decided", {"campaign": name, "winner": value[2]} | ({"cause": cause} if cause else {})


def _configuration(kind: str, name: str, value: Any, cause: str) -> Told:
    return "configuration_changed", {"changed": [str(key) for key in value]}


def _clock(kind: str, name: str, value: Any, cause: str) -> Told:
    return "clock_set", {"cause": cause} if cause else {}


def _lost(kind: str, name: str, value: Any, cause: str) -> Told:
    data: dict[str, Any] = {"name": name} | ({"cause": cause} if cause else {})
    return "orders_lost", data | ({"since_ms": value} if value else {})


_TELLERS: dict[str, Callable[[str, str, Any, str], Told]] = {
    "stop": _stop,
    "lift": _lift,
    "rate": _rate,
    "warmup": _warmup,
    "concurrency": _concurrency,
    "manner": _manner,
    "begin": _begin,
    "cancel": _cancel,
    "complete": _complete,
    "winner": _winner,
    CONFIGURATION: _configuration,
    "clock": _clock,
    "lost": _lost,
}
