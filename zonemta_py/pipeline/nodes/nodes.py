"""All nodes of a campaign as one: announced to each, controlled at each, with one common status.

The nodes of one cluster count as one: any of them answers for all.

Failures: those of `node`, which name the node.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import replace_file
from zonemta_py.pipeline.nodes.client import NodeAccess, NodeClient, NodeRefused
from zonemta_py.pipeline.nodes.groups import ENOUGH_S, groups

_SUMS = (
    "planned", "accepted", "delivered", "deferred", "bounced", "blocked", "complaints", "removed", "suppressed",
    "waiting", "deleted", "rate_per_s", "bounced_later", "unsubscribes", "auto_replies", "opens", "clicks",
)  # fmt: skip
_WORST = ("canceled", "paused", "running", "complete", "idle", "ended")
_MINUTE_MS = 60_000
_FILE = "campaign.json"
_NODES = "nodes.json"


class OtherNodes(Exception):
    """The plan was started with other nodes; one sentence that names them."""


class AnnouncedOtherwise(Exception):
    """The campaign was announced with other settings; one sentence with the remedies."""

    def __init__(self, folder: Path, name: str, other: list[str]) -> None:
        words = ", ".join(one.replace("_", " ") for one in other)
        remedy = f"`zonemta campaign send --resume --name {name}` goes on with what it was sent with"
        if {*other} <= {"template", "variants"}:
            remedy += f"; `zonemta campaign suspend {name}` and `zonemta campaign text {name} -t TEMPLATE` correct it"
        super().__init__(f"{folder}: campaign {name} was sent with another {words}, and nothing has changed; {remedy}")


@dataclass(frozen=True, slots=True)
class Announcement:
    """template: bytes of a prepared one. bounds: as the node takes them. planned: recipients, on all nodes together.
    hours: as the node takes them, only those that are set. variants: name of a campaign → its prepared template.
    choice: between them, as the node takes it, {} for none. seeds: addresses of one's own that get each message first,
    with the fields of the list's first recipient."""

    name: str
    sender: str
    template: bytes
    planned: int = 0
    tenant: str = ""
    zone: str = ""
    priority: int = 0
    life_h: float = 168
    bounds: dict[str, float] = field(default_factory=dict)
    hours: dict[str, str] = field(default_factory=dict)
    notify: str = "remote"
    in_doubt: str = ""
    variants: dict[str, bytes] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()


def store(campaign: Announcement, folder: Path) -> None:
    """Beside the plan, so that resuming needs nothing else."""
    row = asdict(campaign) | {"template": base64.b64encode(campaign.template).decode()}
    row["variants"] = {name: base64.b64encode(one).decode() for name, one in campaign.variants.items()}
    replace_file(folder / _FILE, json.dumps(row).encode())


def stored(folder: Path) -> Announcement:
    """Raises FileNotFoundError."""
    row = json.loads((folder / _FILE).read_text("utf-8"))
    variants = {name: base64.b64decode(one) for name, one in row.get("variants", {}).items()}
    return Announcement(**row | {"template": base64.b64decode(row["template"]), "variants": variants} | _seeds(row))


def _seeds(row: dict[str, Any]) -> dict[str, Any]:
    return {"seeds": tuple(row.get("seeds", ()))}


def retext(folder: Path, template: bytes) -> None:
    """The plan that is there, if one is, goes on with that template."""
    with suppress(FileNotFoundError):
        before = stored(folder)
        store(replace(before, template=template), folder)


def bind(folder: Path, target: NodeAccess, name: str) -> None:
    """Keeps a plan to the nodes it goes to first: their URLs say which chunk is whose, others would get it again.

    A single node may have moved, and a cluster has many: it knows the campaign. Raises OtherNodes, NodeRefused,
    NodeGone.
    """
    file, urls = folder / _NODES, sorted(url.rstrip("/") for url in target.nodes)
    try:
        before = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        replace_file(file, json.dumps(urls).encode())
        return
    if before != urls and not (_are_one(before, urls, target) and _knows(target, name)):
        raise OtherNodes(
            f"campaign {name} was started with {', '.join(before)}; with others some would get it twice; "
            f"name the same nodes with --nodes (or remove {file} if nothing was handed to them)"
        )


def _are_one(before: list[str], urls: list[str], target: NodeAccess) -> bool:
    """Whether all of them are, as far as they answer, one MTA."""
    if len(before) == len(urls) == 1:
        return True
    both = replace(target, nodes=(*before, *urls), patience_s=min(ENOUGH_S, target.patience_s))
    return len(groups(both)) == 1


def _knows(target: NodeAccess, name: str) -> bool:
    with Nodes(target) as nodes:
        return _known(nodes.nodes[0], name)


def _known(node: NodeClient, name: str) -> bool:
    try:
        node.campaign(name)
    except NodeRefused:
        return False
    return True


def keep(campaign: Announcement, folder: Path, target: NodeAccess | None) -> None:
    """Stores it, in place of an earlier one that no node has seen. Raises AnnouncedOtherwise; the earlier one stays.

    target: the nodes, None if none is to be asked.
    """
    try:
        before = stored(folder)
    except FileNotFoundError:
        before = None
    if before is not None and (other := differences(before, campaign)) and _announced(folder, target, campaign.name):
        raise AnnouncedOtherwise(folder, campaign.name, other)
    store(campaign, folder)


def _announced(folder: Path, target: NodeAccess | None, name: str) -> bool:
    """Whether nodes may know it."""
    if not (folder / _NODES).exists():
        return False
    if target is None:
        return True
    with Nodes(target) as nodes:
        return any(_known(node, name) for node in nodes.nodes)


def differences(one: Announcement, other: Announcement) -> list[str]:
    """Names of what differs."""
    return [name.name for name in fields(one) if getattr(one, name.name) != getattr(other, name.name)]


class Nodes:
    """All nodes of a campaign as one. `with Nodes(target) as nodes:`"""

    def __init__(self, target: NodeAccess) -> None:
        self._target, self._stack = target, ExitStack()

    def __enter__(self) -> Nodes:
        self.nodes = [self._stack.enter_context(NodeClient(group, self._target)) for group in groups(self._target)]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def announce(self, campaign: Announcement) -> None:
        share = -(-campaign.planned // len(self.nodes))
        settings: dict[str, Any] = {
            "sender": campaign.sender, "tenant": campaign.tenant, "zone": campaign.zone, "priority": campaign.priority,
            "life_h": campaign.life_h, "bounds": campaign.bounds or None, "notify": campaign.notify,
            "in_doubt": campaign.in_doubt, **campaign.hours,
        }  # fmt: skip
        for node in self.nodes:
            for name, template in campaign.variants.items():
                node.put_campaign(name, template, **settings)
            choice = {"choice": campaign.choice} if campaign.choice else {}
            node.put_campaign(campaign.name, campaign.template, planned=share, **settings, **choice)

    def status(self, name: str) -> dict[str, Any]:
        """One row of all nodes: sums, the state of the node that is worst off, with its cause and URL."""
        return joined([node.campaign(name) | {"node": node.url} for node in self.nodes])

    def hours(self, name: str) -> dict[str, Any]:
        """Who waits for their hour: zones, the next first, last_ms and counted."""
        zones: dict[str, dict[str, Any]] = {}
        answers = [found for node in self.nodes if (found := node.hours(name))]
        for row in (row for answer in answers for row in answer["zones"]):
            known = zones.setdefault(row["time_zone"], row | {"waiting": 0})
            known["waiting"] += row["waiting"]
            known["next_ms"] = min(known["next_ms"], row["next_ms"])
        rows = sorted(zones.values(), key=lambda row: (row["next_ms"], row["time_zone"]))
        last_ms = max((answer["last_ms"] for answer in answers), default=0)
        return {"zones": rows, "last_ms": last_ms, "counted": all(answer["counted"] for answer in answers)}

    def campaigns(self) -> list[dict[str, Any]]:
        """Rows as those of `status`, without history, the newest first."""
        by_name: dict[str, list[dict[str, Any]]] = {}
        for node in self.nodes:
            for row in node.campaigns():
                by_name.setdefault(row["name"], []).append(row | {"node": node.url})
        return sorted((joined(rows) for rows in by_name.values()), key=lambda row: -row["created_ms"])

    def order(self, name: str, verb: str, cause: str = "") -> None:
        for node in self.nodes:
            node.order(name, verb, cause)

    def schedule(self, name: str, hours: dict[str, str]) -> None:
        for node in self.nodes:
            node.schedule(name, hours)

    def text(self, name: str, template: bytes, cause: str) -> None:
        """At all nodes, where it has to be suspended. Raises NodeRefused before anything is changed at any."""
        for node in self.nodes:
            if (row := node.campaign(name))["state"] != "paused":
                remedy = f"`zonemta campaign suspend {name}` it before"
                raise NodeRefused(f"{node.url}: campaign {name} is {row['state']}, not suspended; {remedy}")
        for node in self.nodes:
            node.text(name, template, cause)

    def decide(self, name: str, winner: str, cause: str) -> None:
        """winner: the variant; "": the best one, which one node alone can know. Raises OtherNodes."""
        if not winner and len(self.nodes) > 1:
            sentence = f"each of {len(self.nodes)} nodes knows only its own figures; name the variant"
            raise OtherNodes(f"{sentence}, `zonemta campaign status {name} --nodes …` has those of all")
        for node in self.nodes:
            node.decide(name, winner, cause)

    def stopped(self, name: str) -> str:
        """Why the campaign has stopped, "" if it has not."""
        row = self.status(name)
        variants = row.get("variants") or {"winner": "none"}
        if row["state"] not in ("paused", "canceled") or (row["state"] == "paused" and not variants["winner"]):
            return ""
        resume = f"; `zonemta campaign resume {name}` resumes what is queued"
        remedy = f"{resume}, `zonemta campaign send --resume` sends the rest"
        return f"{name} is {row['state']} at {row['node']}: {row['cause']}{remedy if row['state'] == 'paused' else ''}"


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Status rows of one campaign from several nodes → one."""
    worst = min(rows, key=lambda row: _WORST.index(row["state"]))
    whole = worst | {name: sum(row.get(name, 0) for row in rows) for name in _SUMS}
    whole["variants"] = _variants([row["variants"] for row in rows if row.get("variants")])
    ends = [row["eta_ms"] for row in rows if row["eta_ms"]]
    history: dict[int, list[int]] = {}
    for row in rows:
        for ms, waiting, delivered in row.get("history", []):
            point = history.setdefault(ms // _MINUTE_MS * _MINUTE_MS if len(rows) > 1 else ms, [0, 0])
            point[0] += waiting
            point[1] += delivered
    points = [[ms, *point] for ms, point in sorted(history.items())]
    return whole | {"eta_ms": max(ends, default=None), "history": points}


def _variants(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Of several nodes: the figures of all together."""
    if not found:
        return None
    sums: dict[str, list[int]] = {}
    for row in (row for one in found for row in one["figures"]):
        before = sums.setdefault(row["name"], [0, 0])
        sums[row["name"]] = [before[0] + row["hits"], before[1] + row["of"]]
    winners = {one["winner"] for one in found}
    winner = winners.pop() if len(winners) == 1 else ""
    figures = [{"name": name, "hits": hits, "of": of} for name, (hits, of) in sums.items()]
    return found[0] | {"winner": winner, "figures": figures}
