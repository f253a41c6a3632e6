"""Journals drawn at random, as rows of bronze, and what follows from them, computed in plain Python."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from zonemta_py.pipeline.journal import schema
from zonemta_py.pipeline.lake import deliveries, scan

Row = dict[str, Any]
START = datetime(2026, 3, 2, 20, tzinfo=UTC)
ATTEMPTS = ("delivered", "deferred", "bounced", "held")


class Journal:
    """A journal being written. Each method appends one record; `rows` are its rows, as in SCHEMA.md, with `day`."""

    def __init__(self, segment_rows: int = 12) -> None:
        self.rows: list[Row] = []
        self.seq = 0
        self.now = START
        self.segment_rows = segment_rows

    def pass_time(self, **duration: float) -> None:
        self.now += timedelta(**duration)

    def record(self, type_: str, recipients: Iterable[str | None], **said: Any) -> None:
        self.seq += 1
        segment = f"{self.seq // self.segment_rows:016d}.journal"
        for part, recipient in enumerate(recipients):
            row = {"seq": self.seq, "part": part, "at": self.now, "type": type_, "recipient": recipient}
            self.rows.append(row | {"segment": segment, "day": self.now.date()} | said)

    def new_id(self, number: int) -> str:
        return f"{int(self.now.timestamp() * 1000) << 20 | number:016x}"

    def envelope(self, id_: str, recipients: list[str], zone: str = "bulk", **said: Any) -> None:
        known = {"sender": f"b+{id_}@src.example", "size": 1000, "received_at": self.now} | said
        self.record("ENVELOPE", recipients, id=id_, zone=zone, **known)

    def result(self, id_: str, recipients: list[str], verdict: str, **said: Any) -> None:
        known: Row = {
            "zone": "bulk",
            "source": "198.51.100.1",
            "site": "mx.example",
            "provider": "google",
            "stage": "dot",
        }
        known |= {
            "started_at": self.now - timedelta(seconds=2),
            "took_ms": 2000,
            "tls": "TLSv1.3",
            "remote": "mx[1]:25",
        }
        known |= {"code": 250 if verdict == "delivered" else 451, "reply": f"reply {self.seq + 1}", "lease": self.seq}
        self.record("DELIVERY", recipients, id=id_, verdict=verdict, **known | said)

    def feedback(self, id_: str, recipient: str, kind: str, **said: Any) -> None:
        told = {"form": "rfc3464", "tied": "token", "agreed": True, "again": False} | said.pop("told", {})
        known = {"kind": kind, "what": "smtp", "name": "token", "remote": "mx.example", "zone": "bulk"}
        self.record("FEEDBACK", [recipient], id=id_, value=json.dumps(told), **known | said)


def draw(seed: int, messages: int = 12) -> list[Row]:
    """The journal of so many messages whose recipients meet with everything that can happen, interleaved, over days."""
    die = random.Random(seed)
    journal = Journal()
    alive: list[tuple[str, str, str]] = []
    again: list[tuple[str, list[str], dict[str, Any]]] = []
    made = 0
    while made < messages or (alive and die.random() < 0.97):
        journal.pass_time(minutes=die.choice([0.02, 1, 10, 240]))
        if made < messages and (not alive or die.random() < 0.4):
            made += 1
            id_, zone = journal.new_id(made), die.choice(["bulk", "mail"])
            people = [f"p{index}@Dom{die.randint(1, 2)}.example" for index in range(die.randint(1, 4))]
            said = {"campaign": die.choice([None, "spring"]), "tenant": die.choice([None, "acme"]), "zone": zone}
            journal.envelope(id_, people, **said)
            again.append((id_, people, said | {"received_at": journal.now}))
            alive += [(id_, person, zone) for person in people]
            continue
        if again and die.random() < 0.05:  # a start that writes an envelope again
            id_, people, said = die.choice(again)
            journal.envelope(id_, people, **said)
        step(journal, die, alive)
    return journal.rows


def step(journal: Journal, die: random.Random, alive: list[tuple[str, str, str]]) -> None:
    id_, person, zone = one = die.choice(alive)
    said = {"zone": zone, "source": die.choice(["s1", "s2"]), "provider": die.choice(["google", "yahoo", ""])}
    kind = die.choices(
        ["delivered", "deferred", "bounced", "held", "released", "postponed", "REMOVED", "MOVED", "IN_DOUBT"],
        [10, 8, 3, 1, 1, 1, 1, 1, 1],
    )[0]
    if kind in ("delivered", "bounced", "REMOVED"):
        alive.remove(one)
    if kind == "IN_DOUBT":
        journal.record(kind, [person], id=id_, zone=zone, reason=die.choice(["retry", "hold"]))
    elif kind in ("REMOVED", "MOVED"):
        journal.record(kind, [person], id=id_, zone=zone, reason="dropped" if kind == "REMOVED" else None)
    else:
        class_ = None if kind == "delivered" else die.choice(["greylisted", "mailbox-full", None])
        journal.result(id_, [person], kind, **said, **{"class": class_}, tls=die.choice(["", "TLSv1.3"]))
    if kind == "delivered" and journal.seq % 2:
        journal.pass_time(minutes=1)
        journal.feedback(id_, person, "bounce")


def attempts_of(rows: list[Row]) -> list[Row]:
    """What table `deliveries` must hold of these rows of the journal: attempt, first_at, final and the envelope."""
    envelopes: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: -row["seq"]):
        if row["type"] == "ENVELOPE":
            envelopes[row["id"]] = row
    told: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["seq"], row["part"])):
        if row["type"] != "DELIVERY" or row["verdict"] not in ATTEMPTS:
            continue
        before = told[row["id"], row["recipient"]]
        envelope = envelopes.get(row["id"], {})
        first = before[0]["first_at"] if before else row["started_at"]
        over = any(one["final"] for one in before)
        made = {"attempt": len(before) + 1, "first_at": first, "domain": row["recipient"].split("@")[1].lower()}
        made |= {"final": row["verdict"] in ("delivered", "bounced") and not over}
        made |= {name: envelope.get(name) for name in ("sender", "size", "received_at", "campaign", "tenant")}
        before.append(row | made | {"node": row.get("node") or ""})
    return [row for one in told.values() for row in one]


def outcomes_of(rows: list[Row]) -> dict[tuple[str, str], Row]:
    """What table `outcomes` must hold, by id and recipient, but for the columns that are the last attempt's."""
    tried: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in attempts_of(rows):
        tried[row["id"], row["recipient"]].append(row)
    received = {row["id"]: row["received_at"] for row in rows if row["type"] == "ENVELOPE"}
    listed = {(row["id"], row["recipient"]) for row in rows if row["type"] == "ENVELOPE"}
    told: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: (row["type"] != "ENVELOPE", row["seq"])):
        if row["recipient"] is None:
            continue
        key = row["id"], row["recipient"]
        one = told.setdefault(key, {"state": "waiting", "ended_at": None, "reason": None})
        if one["state"] in ("delivered", "bounced", "removed", "suppressed"):
            continue
        verdict = row.get("verdict")
        held = verdict == "held" or (row["type"] == "IN_DOUBT" and row["reason"] == "hold")
        ends = {"delivered": "delivered", "bounced": "bounced"}.get(str(verdict))
        if row["type"] == "REMOVED":
            left_out = str(row["reason"]).startswith("suppressed") and key not in listed and not tried[key]
            ends = "suppressed" if left_out else "removed"
        one["state"] = ends or ("held" if held else "waiting")
        one["ended_at"] = row["at"] if ends else None
    for key, one in told.items():
        mine, at = tried[key], received.get(key[0])
        one["attempts"] = len(mine)
        one["first_attempt_at"] = mine[0]["started_at"] if mine else None
        one["reply"] = mine[-1]["reply"] if mine else None
        one["received_at"] = at
        one["to_first_s"] = (mine[0]["started_at"] - at).total_seconds() if mine and at else None
        one["to_delivery_s"] = (one["ended_at"] - at).total_seconds() if one["state"] == "delivered" and at else None
        one["day"] = date.fromtimestamp(0) + timedelta(milliseconds=int(key[0], 16) >> 20)
    return told


@pytest.fixture
def journal() -> Journal:
    """An empty journal to write into."""
    return Journal()


@pytest.fixture(scope="session")
def drawn() -> Callable[..., list[Row]]:
    """drawn(seed, messages=12): rows of a journal drawn at random."""
    return draw


@pytest.fixture(scope="session")
def expected_deliveries() -> Callable[[list[Row]], list[Row]]:
    return attempts_of


@pytest.fixture(scope="session")
def expected_outcomes() -> Callable[[list[Row]], dict[tuple[str, str], Row]]:
    return outcomes_of


@pytest.fixture(scope="session")
def table_of() -> Callable[[list[Row]], pa.Table]:
    """table_of(rows): rows of the journal as a table of Arrow, with all their columns."""

    def made(rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist([{name: row.get(name) for name in schema.NAMES} for row in rows], schema.ROWS)

    return made


@pytest.fixture(scope="session")
def deliveries_of(table_of: Callable[[list[Row]], pa.Table]) -> Callable[..., list[Row]]:
    """deliveries_of(rows, days=None): the table's rows, in the order of the journal."""

    def made(rows: list[Row], days: Iterable[date] | None = None) -> list[Row]:
        said = scan.chosen(table_of(rows), deliveries.SCANS)
        tried = deliveries.numbered(said["results"])
        wanted = None if days is None else set(days)
        return list(deliveries.deliveries(tried, said["envelopes"], wanted).to_pylist())

    return made
