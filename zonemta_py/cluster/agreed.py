"""What the configurations of all nodes must have alike, and what may follow from what: limits that nodes share, quotas,
what orders and the suppression list mean, how long things are kept, replicas, the format of records.

The cluster keeps them as numbered versions (`versions.py`). A node whose values are not those of the newest version is
*behind* until it has had that version: it goes on, and of each limit that differs the stricter number holds there
(`stricter`). A node that has had the newest version may make another one of it, unless `forbidden` says why not.
Pure; ClusterState is what a node notes of it in its folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zonemta_py.config import Config
from zonemta_py.config.accounts import Account
from zonemta_py.config.difference import ABSENT, Change, leaves_of
from zonemta_py.config.limits import Throttle, rate
from zonemta_py.disk.files import replace_file
from zonemta_py.journal.folders import FOLDER
from zonemta_py.journal.records import FORMAT

FILE = "agreed"
"""In `queues/` of the node's folder."""
_THROTTLE = ("per", "only", "connections", "messages", "recipients", "new_connections", "bytes", "burst")
_RATES = ("messages", "recipients", "new_connections", "bytes")
_ACCOUNT = ("messages", "recipients", "sessions")
_QUEUE = ("request_h", "undo_s", "keep_bounced_s", "campaign_days", "campaign_names")
_ZONES, _FORMAT, _REPLICAS = "zones.", "format", "cluster.replicas"
SHOWN = 20
"""Keys that differ, as a node tells others of them."""
AGREES, BEHIND, NEWER = "agrees", "behind", "newer"


class Version(NamedTuple):
    """node, by: who has made it; ms: when, UNIX."""

    number: int
    node: str
    by: str
    ms: int
    values: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest(self.values)


class AgreedState(NamedTuple):
    """Of a node. number: of the newest version that it knows; had: of the newest that its own configuration was alike.
    own: values of its file; values: of the newest version."""

    number: int = 0
    had: int = 0
    own: dict[str, Any] = {}  # noqa: RUF012 (nobody changes it)
    values: dict[str, Any] = {}  # noqa: RUF012

    @property
    def differs(self) -> list[Change]:
        return differing(self.own, self.values) if self.values else []


def values_of(config: Config) -> dict[str, Any]:
    """By the full names of keys, ready for JSON."""
    found: dict[str, Any] = {_FORMAT: FORMAT, _REPLICAS: config.cluster.replicas}
    found["cluster.dead_after_s"] = config.cluster.dead_after_s
    queue = config.queue.model_dump(mode="json")
    found |= {f"queue.{name}": queue[name] for name in _QUEUE}
    found |= dict(leaves_of("suppression", config.suppression.model_dump(mode="json"), ("name",)))
    for kind, names in (("throttles", _THROTTLE), ("accounts", _ACCOUNT)):
        for section in getattr(config, kind):
            dumped = section.model_dump(mode="json")
            found |= {f"{kind}.{section.name}.{name}": dumped[name] for name in names}
    found |= {f"{_ZONES}{zone.name}.connections": zone.connections for zone in config.zones}
    ready: dict[str, Any] = json.loads(json.dumps(found))
    return ready


def digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def differing(own: dict[str, Any], values: dict[str, Any]) -> list[Change]:
    """key, the node's own value, the cluster's. Of zones only those that both have: not all nodes have all."""
    return [
        Change(key, own.get(key, ABSENT), values.get(key, ABSENT))
        for key in sorted({*own, *values})
        if own.get(key, ABSENT) != values.get(key, ABSENT)
        and not (key.startswith(_ZONES) and (key not in own or key not in values))
    ]


def joined(own: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The next version: this node's values, and those of zones that it does not have."""
    return {key: value for key, value in values.items() if key.startswith(_ZONES)} | own


def judged(own: dict[str, Any], had: int, newest: Version | None) -> str:
    """AGREES; BEHIND: it has not had the newest version; NEWER: it has, and was changed since."""
    if newest is None:
        return NEWER
    if not differing(own, newest.values):
        return AGREES
    return NEWER if had >= newest.number else BEHIND


def forbidden(own: dict[str, Any], newest: dict[str, Any], others: list[str], lacking: list[str]) -> list[str]:
    """Why these values may not follow the newest ones, a sentence each. others: nodes besides this one that live;
    lacking: NATS servers that are away."""
    found = list[str]()
    for key, mine, theirs in differing(own, newest):
        if key == _FORMAT and theirs != ABSENT and mine < theirs:
            found.append(
                f"the cluster writes records of format {theirs}, and this program only knows {mine}; start the newer"
                " version of it that was here, or upgrade"
            )
        elif key == _REPLICAS and theirs != ABSENT and mine < theirs and lacking:
            found.append(
                f"cluster.replicas cannot go from {theirs} to {mine} while NATS servers are away"
                f" ({', '.join(lacking)}): what only they have would count as kept; bring them back first"
            )
        elif others and _is_scope(key) and ABSENT not in (mine, theirs):
            name = key.removeprefix("throttles.").rpartition(".")[0]
            found.append(
                f"{key} cannot change from {theirs!r} to {mine!r} while other nodes count throttle {name!r} as before"
                f" ({', '.join(others)}); add the new limit under another name on all nodes, then remove {name!r}"
            )
    return found


def _is_scope(key: str) -> bool:
    return key.startswith("throttles.") and key.rpartition(".")[2] in ("per", "only")


def stricter(config: Config, values: dict[str, Any]) -> Config:
    """The configuration with the limits of the cluster's version where these are stricter, and those that it lacks."""
    limits = dict(_tables(values, "throttles"))
    throttles = [_stricter_throttle(one, limits.pop(one.name, {})) for one in config.throttles]
    throttles += [Throttle.model_validate({"name": name, **fields}) for name, fields in limits.items()]
    quotas = dict(_tables(values, "accounts"))
    accounts = [_stricter_account(one, quotas.get(one.name, {})) for one in config.accounts]
    slots = dict(_tables(values, "zones"))
    zones = [
        zone.model_copy(
            update={"connections": _least(zone.connections, slots.get(zone.name, {}).get("connections", 0))}
        )
        for zone in config.zones
    ]
    return config.model_copy(update={"throttles": throttles, "accounts": accounts, "zones": zones})


def _tables(values: dict[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    found = dict[str, dict[str, Any]]()
    for key, value in values.items():
        if key.startswith(f"{kind}."):
            name, _, field = key.removeprefix(f"{kind}.").rpartition(".")
            found.setdefault(name, {})[field] = value
    yield from found.items()


def _stricter_throttle(own: Throttle, other: dict[str, Any]) -> Throttle:
    if not other:
        return own
    found: dict[str, Any] = {"per": other["per"], "only": other["only"]}
    found["connections"] = _least(own.connections, other["connections"])
    for name in _RATES:
        found[name] = min(filter(None, (getattr(own, name), other[name])), key=_pace, default="")
    found["burst"] = min(_burst(own.model_dump()), _burst(other))
    return own.model_copy(update=found)


def _pace(text: str) -> float:
    found = rate(text)
    return found.amount / found.seconds


def _burst(fields: dict[str, Any]) -> float:
    """What goes at once: without a number, what one second allows, at least one."""
    paces = [_pace(fields[name]) for name in _RATES if fields[name]]
    return float(fields["burst"]) or (max(1.0, *paces) if len(paces) == 1 else 0.0)


def _stricter_account(own: Account, other: dict[str, Any]) -> Account:
    if not other:
        return own
    found: dict[str, Any] = {name: [*dict.fromkeys([*getattr(own, name), *other[name]])] for name in _ACCOUNT[:2]}
    return own.model_copy(update=found | {"sessions": _least(own.sessions, other["sessions"])})


def _least(one: int, other: int) -> int:
    """0: no limit."""
    return min(filter(None, (one, other)), default=0)


# -- what a node notes


def noted(folder: Path) -> AgreedState:
    """folder: the node's."""
    try:
        found = json.loads((folder / FOLDER / FILE).read_bytes())
        return AgreedState(int(found["number"]), int(found["had"]), dict(found["own"]), dict(found["values"]))
    except (OSError, ValueError, KeyError, TypeError):
        return AgreedState()


def note(folder: Path, state: AgreedState) -> None:
    """Of a configuration that holds now; a newer version that was seen meanwhile stays known. Raises OSError."""
    with _alone(folder):
        known = noted(folder)
        if known.number > state.number:
            state = state._replace(number=known.number, values=known.values)
        _write(folder, state)


def see(folder: Path, newest: Version) -> AgreedState | None:
    """That is the cluster's newest version; None: that is known. Raises OSError."""
    with _alone(folder):
        known = noted(folder)
        if not known.own or newest.number <= known.number:
            return None
        alike = not differing(known.own, newest.values)
        state = known._replace(
            number=newest.number, had=newest.number if alike else known.had, values=newest.values
        )  # fmt: skip
        _write(folder, state)
        return state


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The node's agent and what compares configurations write it."""
    place = folder / FOLDER
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _write(folder: Path, state: AgreedState) -> None:
    replace_file(folder / FOLDER / FILE, json.dumps(state._asdict()).encode() + b"\n", 0o600)


def applied(config: Config) -> Config:
    """What holds on this node: where its file differs from the cluster's newest version, the stricter limits."""
    state = noted(config.folder)
    return stricter(config, state.values) if state.had < state.number and state.differs else config
