"""A mixed day of a real MTA, and every number that anybody can be shown of it: one quantity is one number everywhere.

The quantities are those of `zonemta_py.metrics.quantities`; the sink says what is true of deliveries.
"""

import asyncio
import json
import re
import smtplib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from ports import kept_port
from survival.http_client import HttpClient
from survival.ledger import Ledger
from survival.mixed import TEMPLATE
from survival.rig import Mta, sink

from tests.faults.test_reload import token, zonemta
from zonemta_py.metrics.quantities import STATES, waiting
from zonemta_py.pipeline.journal import reader
from zonemta_py.pipeline.lake import deliveries, outcomes, scan

RULES = (
    "rcpt:/^later-/ 450 4.2.1 not now", "rcpt:/^gone-/ 550 5.1.1 nobody here",
    "rcpt:/^slow-/ 250 2.1.5 taken, after 3s",
)  # fmt: skip
MORE = """
[http]
enabled = true
port = {http}
dashboard = true
metrics = "open"
[[event_sinks]]
name = "file"
kind = "file"
path = "{events}"
"""
ENDS = ("accepted", "suppressed", "delivered", "bounced", "removed")
Numbers = dict[str, int]


def hand_in(mta: Mta, *recipients: str, options: tuple[str, ...] = ()) -> None:
    with smtplib.SMTP("127.0.0.1", mta.port, timeout=60) as client:
        client.sendmail("ann@src.test", recipients, b"Subject: hello\r\n\r\nhello\r\n", options)


def until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, done
        time.sleep(0.05)


def task(mta: Mta, verb: str, recipient: str, **more: Any) -> dict[str, Any]:
    row = mta.ask("task", verb=verb, where={"recipient": recipient}, **more)
    until(lambda: mta.ask("task-row", id=row["id"])["state"] not in ("counting", "running", "undoing", "ending"))
    return dict(row)


async def test_a_mixed_day_has_one_number_for_each_quantity(tmp_path: Path) -> None:
    """All kinds of ends, deletion, undo, hold, suppression, expiry, notices, merged mail, a reload and the death of a
    sender: commands, metrics, pages, API, events, campaign and lake agree with each other and with the sink."""
    ledger, kept = Ledger(), kept_port()
    async with sink(ledger, rules=RULES) as running:
        events = tmp_path / "events.jsonl"
        more = MORE.format(http=kept.getsockname()[1], events=events)
        mta = Mta(tmp_path / "queue", running.port, home=tmp_path, more=more, processes=1, retry_min=600)
        mta.start()
        try:
            await mta.taking()
            await _day(mta, kept.getsockname()[1])
            await asyncio.to_thread(_settled, mta)
            told = await asyncio.to_thread(_told, mta, kept.getsockname()[1], events)
        finally:
            mta.end()
            kept.close()
    truth = told["metrics"]
    assert truth["accepted"] == sum(truth[name] for name in ("waiting", "deleted", *ENDS[2:]))
    assert min(truth[name] for name in (*ENDS, "queued", "deferred", "held", "deleted", "in doubt")) > 0, truth
    for place, numbers in told.items():
        assert numbers == {name: truth[name] for name in numbers}, place
    assert running.counters.recipients == truth["delivered"]


async def _day(mta: Mta, http: int) -> None:
    """What happens; retries are ten hours apart, so that what is deferred stays so."""
    await asyncio.to_thread(mta.ask, "suppress", rows=[["blocked@one.test", "manual", "", "", "me", "", 0, ""]])
    await asyncio.to_thread(mta.ask, "stop", kind="zone", name="bulk", seconds=None, cause="me")
    for recipients in (
        ("a@one.test", "b@two.test", "blocked@one.test"), ("blocked@one.test",), ("gone-1@one.test", "c@one.test"),
        ("later-1@one.test", "later-2@two.test"),
        tuple(f"{name}@bulk.test" for name in ("stay", "del", "back", "away", "hold", "drop")),
    ):  # fmt: skip
        await asyncio.to_thread(hand_in, mta, *recipients)
    async with HttpClient(http, mta.folder) as client:
        await client.campaign("spring", "news@src.test", TEMPLATE)
        rows = [[f"{name}@one.test", name] for name in ("m1", "m2", "m3", "gone-2", "later-3", "blocked")]
        await client.batch("spring", 1, rows, ["name"])
    await asyncio.to_thread(_orders, mta)


def _orders(mta: Mta) -> None:
    hand_in(mta, "later-old@one.test", options=("BY=2;R",))  # it expires
    until(lambda: mta.ask("size")["total"]["deferred"] >= 3)
    task(mta, "delete", "del@bulk.test", undo_s=3600)
    back = task(mta, "delete", "back@bulk.test", undo_s=3600)
    mta.ask("task-undo", id=back["id"])
    task(mta, "delete", "away@bulk.test", undo_s=0)
    task(mta, "hold", "hold@bulk.test")
    mta.config_file.write_text(f"{mta.config_file.read_text()}[learning]\ninitial = 7\n")
    assert mta.ask("reload")["refused"] == []
    hand_in(mta, "slow-1@one.test")
    until(lambda: mta.ask("size")["total"]["leased"] == 1)
    time.sleep(0.5)  # it has said RCPT, and waits for the answer
    assert mta.kill("sender")
    until(lambda: mta.ask("in-doubt"))


def _settled(mta: Mta) -> None:
    """Nothing is on its way, and what is left is what the day leaves."""

    def done() -> bool:
        total = mta.ask("size")["total"]
        return (total["leased"], total["queued"], total["deferred"], total["held"]) == (0, 2, 4, 1)

    try:
        until(done)
    except AssertionError:
        left = [(row["recipient"], row["state"], row["cause"]) for row in mta.ask("list")["rows"]]
        raise AssertionError(left) from None


# -- what each place says, by the name of the quantity


def _told(mta: Mta, http: int, events: Path) -> dict[str, Numbers]:
    code, said = zonemta(mta, "status", "--json")
    assert code == 0, said
    status = json.loads(said)
    line = zonemta(mta, "status", "--nagios")[1].partition(" | ")[2]
    nagios = {one.partition("=")[0]: one.partition("=")[2].partition(";")[0] for one in line.split()}
    size = json.loads(zonemta(mta, "queue", "size", "--json")[1])
    listed = json.loads(zonemta(mta, "queue", "in-doubt", "--json")[1])
    numbers = mta.ask("metrics")
    with httpx.Client(base_url=f"http://127.0.0.1:{http}", timeout=60, headers=token(mta)) as client:
        exposed = client.get("/metrics").text
        api = client.get("/v1/status").json()
        campaign = client.get("/v1/campaigns/spring").json()
        until(lambda: client.get("/dashboard/login").status_code == 200)
        page = _page(client, (mta.folder / "http.token").read_text().strip())
    of_campaign = {
        row[0][1]: row[1] for row in numbers["gauges"]["zonemta_campaign_recipients"] if row[0][0] == "spring"
    }
    mine = {name: campaign[name] for name in (*ENDS, "waiting", "deleted")}
    assert mine == {name: of_campaign[name] for name in mine}
    lake, in_campaign = _lake(mta)
    assert in_campaign == {name: mine[name] for name in in_campaign}
    return {
        "metrics": _exposed(exposed),
        "status": _states(status["total"]) | {"in doubt": status["in_doubt"]},
        "queue size": _states(size["total"]),
        "sum of the zones": _states({name: sum(row[name] for row in size["zones"].values()) for name in STATES}),
        "sum of the domains": _states({name: sum(row[name] for row in size["domains"].values()) for name in STATES}),
        "queue in-doubt": {"in doubt": len(listed)},
        "nagios": {name.replace("_", " "): int(float(nagios[name])) for name in (
            "waiting", "queued", "leased", "deferred", "held", "in_doubt")},
        "/v1/status": _states(api["total"]),
        "dashboard": {name: int(re.findall(rf'data-size="{name}"[^>]*>([^<]*)<', page)[0]) for name in (
            "queued", "leased", "deferred", "held")},
        "events": _events(events),
        "lake": lake,
    }  # fmt: skip


def _states(counts: dict[str, int]) -> Numbers:
    return {name: counts[name] for name in STATES if name != "bounced"} | {"waiting": waiting(counts)}


def _page(client: httpx.Client, key: str) -> str:
    client.post("/dashboard/login", data={"key": key, "next": ""}, headers={"origin": str(client.base_url).rstrip("/")})
    return client.get("/dashboard").text


def _exposed(text: str) -> Numbers:
    """Sums of the samples that Prometheus gets."""
    found: Counter[str] = Counter()
    for name, labels, value in re.findall(r"^(zonemta_\w+?)(?:_total)?(\{[^}]*\})? ([\d.e+]+)$", text, re.MULTILINE):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        short = name.removeprefix("zonemta_")
        if short in ("recipients_accepted", "recipients_suppressed", "recipients_removed"):
            found[short.removeprefix("recipients_")] += int(float(value))
        elif short == "answers" and label["verdict"] in ("delivered", "bounced"):
            found[label["verdict"]] += int(float(value))
        elif short == "queue_recipients" and label["state"] != "bounced":
            found[label["state"]] += int(float(value))
        elif short == "in_doubt":
            found["in doubt"] += int(float(value))
    return dict(found) | {"waiting": waiting(found), "leased": found["leased"]}


def _events(file: Path) -> Numbers:
    def read() -> Counter[str]:
        lines = file.read_text().splitlines() if file.exists() else []
        return Counter(json.loads(line)["type"].rpartition(".")[2] for line in lines)

    before: Counter[str] = Counter()
    end = time.monotonic() + 60
    while (found := read()) != before or not found["finished"]:
        assert time.monotonic() < end
        before = found
        time.sleep(1.0)
    return {
        "accepted": found["queued"], "delivered": found["delivered"], "bounced": found["bounced"] + found["expired"],
        "in doubt": found["in_doubt"],
    }  # fmt: skip


def _lake(mta: Mta) -> tuple[Numbers, Numbers]:
    """What a report counts, in all and of the campaign. To the lake what is deleted waits until it is removed."""
    mta.ask("rotate")
    batches, faults = list[pa.RecordBatch](), list[Any]()
    for segment in reader.segments(mta.folder / "archive"):
        for split in reader.splits(segment):
            batches += reader.read(split, faults)
    assert not faults
    said = scan.chosen(pa.Table.from_batches(batches), outcomes.SCANS)
    rows = outcomes.outcomes(deliveries.numbered(said["results"]), **said).to_pylist()

    def counted(rows: list[dict[str, Any]]) -> Numbers:
        states = Counter(row["state"] for row in rows)
        ends = {name: states[name] for name in ("suppressed", "delivered", "bounced", "removed")}
        return ends | {"accepted": len(rows) - states["suppressed"]}

    return counted(rows), counted([row for row in rows if row["campaign"] == "spring"])
