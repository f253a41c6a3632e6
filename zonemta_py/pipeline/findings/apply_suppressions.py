"""Puts what `suppressions` found on a node's suppression list, over HTTP.

Only rows that the node lacks are sent. One that was sent before and is no longer there was removed by an operator: it
is not sent again until there is newer evidence. What was sent is noted in the lake (table `suppressed`) after sending:
a run that is killed in between sends rows again, which the node then knows. Failures: those of `node`; addresses that
the node refuses are given back, each with its sentence.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zonemta_py.mail.addresses.entries import is_covering, literal
from zonemta_py.mail.addresses.person import person
from zonemta_py.pipeline.lake import table
from zonemta_py.pipeline.nodes.client import NodeRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY = "zonemta lake"
AT_ONCE = 1_000
EVIDENCE_CHARACTERS_MAX = 490
REASON_CHARACTERS_MAX = 490
SUPPRESSED = "node string, address string, until timestamp, day date"
_DAY = datetime.date(1970, 1, 1)


class Listing(Protocol):
    """The part of a node's client that is used here."""

    url: str

    def suppressions(self) -> Iterator[list[dict[str, Any]]]: ...

    def suppress(self, rows: Sequence[dict[str, Any]]) -> dict[str, int]: ...


class Pushed(NamedTuple):
    """added, known: as the node counted. lifted: taken off by an operator, so not sent. refused: address → why not."""

    added: int
    known: int
    lifted: int
    refused: dict[str, str]


def push(node: Listing, rows: Iterable[Any], sent: dict[str, datetime.datetime]) -> tuple[Pushed, dict[str, Any]]:
    """rows: of suppressions.COLUMNS. sent: address → until of what this node was sent before. Also gives address →
    until of what it has been sent now."""
    listed = _listed(node)
    fresh: list[tuple[str, Any]] = []
    known = lifted = 0
    for row in rows:
        address = person(row["address"])
        if row["kind"] in listed.get(address, ()):
            known += 1
        elif address not in listed and address in sent and row["until"] <= sent[address]:
            lifted += 1
        else:
            fresh.append((address, row))
    added, refused = _send(node, [node_row(row) for _, row in fresh])
    now: dict[str, Any] = {}
    for address, row in fresh:
        if literal(address) not in refused:
            now[address] = max(row["until"], now.get(address, row["until"]))
    return Pushed(added, known, lifted, refused), now


def _listed(node: Listing) -> dict[str, set[str]]:
    """By address the kinds that need not be sent to the node: those it has, for all mail or that of campaigns."""
    found: dict[str, set[str]] = {}
    for row in (row for page in node.suppressions() for row in page):
        kinds, scope = found.setdefault(_person(row["address"]), set()), row.get("scope", "all")
        if scope.partition(":")[0] in ("all", "campaigns"):
            kinds |= {row["kind"], *row.get("also", ())}
        if scope == "all" and row["kind"] in ("manual", "erased"):  # a manual decision: nothing outweighs it
            kinds |= {"hard-bounce", "complaint", "unsubscribe"}
    return found


def node_row(row: Any) -> dict[str, Any]:
    """A row of the request: one line each of reason and evidence."""
    replies = [_evidence(each) for each in row["evidence"]]
    told = {
        "rule": row["rule"],
        "since": f"{row['since']:%Y-%m-%dT%H:%M:%SZ}",
        "messages": row["messages"],
        "replies": replies,
    }
    while len(json.dumps(told)) > EVIDENCE_CHARACTERS_MAX and replies:
        replies.pop()
    return {
        "address": literal(person(row["address"])),
        "kind": row["kind"],
        "reason": _line(row["reason"])[:REASON_CHARACTERS_MAX],
        "evidence": json.dumps(told),
        "by": BY,
    }


def noted(spark: SparkSession, lake: Path, node: str) -> dict[str, datetime.datetime]:
    """address → until of what the node was sent before."""
    try:
        rows = table.read(spark, lake, "suppressed").where(f"node = '{_sql(node)}'")
    except table.Missing:
        return {}
    return {row.address: row.until for row in rows.toLocalIterator()}


def note(spark: SparkSession, lake: Path, node: str, sent: dict[str, Any]) -> None:
    """Notes what a node has been sent; the caller does not hold `table.locked`. Raises table.Busy."""
    from pyspark.sql import functions as F

    if not sent:
        return
    with table.locked(lake):
        rows = spark.createDataFrame([(node, address, until, _DAY) for address, until in sent.items()], SUPPRESSED)
        with contextlib.suppress(table.Missing):
            rows = rows.unionByName(table.read(spark, lake, "suppressed"))
        latest = rows.groupBy("node", "address").agg(F.max("until").alias("until"), F.max("day").alias("day"))
        table.write(lake, "suppressed", latest)


def _send(node: Listing, rows: Sequence[dict[str, Any]]) -> tuple[int, dict[str, str]]:
    """In portions; of one that the node refuses, each row by itself."""
    added, refused, left = 0, {}, iter(rows)
    while portion := list(islice(left, AT_ONCE)):
        try:
            added += node.suppress(portion)["added"]
        except NodeRefused as error:
            if len(portion) == 1:
                refused[portion[0]["address"]] = str(error)
                continue
            for row in portion:
                more, no = _send(node, [row])
                added += more
                refused |= no
    return added, refused


def _evidence(each: Any) -> str:
    said = " ".join(str(part) for part in (each["code"], each["enhanced"], each["reply"]) if part)
    return f"{each['at']:%Y-%m-%dT%H:%M:%SZ} {each['id']} {_line(said)}"[:200]


def _person(address: str) -> str:
    """address: or what stands for many, as a node shows it."""
    return address if is_covering(address) else person(address)


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _sql(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
