"""Rows of the table `deliveries` as tests write them down: only what matters, the rest filled in."""

import datetime
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = (
    "id string, recipient string, domain string, zone string, sender string, campaign string, tenant string,"
    " source string, site string, provider string, started_at timestamp, at timestamp, took_ms int, attempt int,"
    " verdict string, code int,"
    " enhanced string, reply string, stage string, class string, rule string, tls string, remote string, size bigint,"
    " received_at timestamp, day date"
)
NAMES = [part.split()[0] for part in DDL.split(", ")]
START = datetime.datetime(2026, 3, 2, 8, tzinfo=datetime.UTC)
USUAL = {
    "recipient": "ann@example.com", "zone": "default", "sender": "news@example.org", "campaign": "spring", "tenant": "",
    "source": "192.0.2.1", "site": "mx.example.com", "provider": "", "took_ms": 90, "attempt": 1,
    "verdict": "delivered", "code": 250, "enhanced": "2.0.0", "reply": "OK", "stage": "dot", "class": "", "rule": "",
    "tls": "", "size": 5000, "remote": "mx.example.com[198.51.100.1]:25",
}  # fmt: skip


@pytest.fixture(scope="session")
def moment() -> Callable[[float], datetime.datetime]:
    """So many days after the tests' first moment, 2026-03-02 08:00 UTC."""
    return lambda days: START + datetime.timedelta(days=days)


@pytest.fixture(scope="session")
def attempts(spark: "SparkSession") -> "Callable[[Iterable[dict[str, Any]]], DataFrame]":
    """Makes `deliveries` of rows in which `days` (since the first moment) stands for the time."""

    def make(rows: Iterable[dict[str, Any]]) -> "DataFrame":
        import pandas

        full = []
        for number, row in enumerate(rows):
            at = START + datetime.timedelta(days=row.get("days", 0))
            made = (
                USUAL | {"id": f"{number:016x}", "at": at, "started_at": at, "received_at": at, "day": at.date()} | row
            )
            made["domain"] = made["recipient"].rpartition("@")[2]
            full.append([made[name] for name in NAMES])
        frame = pandas.DataFrame(full, columns=NAMES)
        frame["code"] = frame["code"].astype("int32")
        return spark.createDataFrame(frame, DDL)

    return make
