"""Whatever reads files of the MTA reads those of all queues: commands, the stream of events, the lake; with an MTA of
three, and without it."""

from __future__ import annotations

import asyncio
import json
import smtplib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ports import kept_port
from survival.ledger import Ledger
from survival.rig import Mta, sink

from tests.cli.conftest import Ran
from tests.cli.conftest import zonemta as zonemta
from tests.web.events.follower import Follower
from zonemta_py.disk.keys import queue_of
from zonemta_py.journal import folders
from zonemta_py.pipeline.journal import reader
from zonemta_py.pipeline.lake import bronze, deliveries, ingested, outcomes, scan
from zonemta_py.pipeline.prepare.reached import reached
from zonemta_py.queues import layout
from zonemta_py.queues.placement import Placement
from zonemta_py.whatif.history import read as read_history

QUEUES = 3
COUNT = 24
PEOPLE = [f"ann{number}@site{number}.test" for number in range(COUNT)]
TOKEN = "http.token"
_MORE = """
[http]
enabled = true
address = "127.0.0.1"
port = {port}
[[event_sinks]]
name = "lines"
kind = "file"
path = "{path}"
types = ["accepted", "delivered"]
sync = false
"""
Run = Callable[..., Ran]


class Site:
    """The MTA, and where its HTTP is."""

    def __init__(self, mta: Mta, port: int) -> None:
        self.mta, self.folder, self.url = mta, mta.folder, f"http://127.0.0.1:{port}/v1/events"
        self.lines = mta.folder / "lines.jsonl"

    @property
    def key(self) -> str:
        text: str = (self.folder / TOKEN).read_text()
        return text.strip()

    def follow(self, last: str = "", **filters: Any) -> Follower:
        return Follower(self.url, self.key, last, **filters)


@asynccontextmanager
async def running(folder: Path, queues: int = QUEUES) -> AsyncIterator[Site]:
    ledger, http = Ledger(), kept_port()
    port = http.getsockname()[1]
    async with sink(ledger) as destination:
        more = _MORE.format(port=port, path=folder / "lines.jsonl")
        mta = Mta(folder, destination.port, queues=queues, more=more)
        mta.start()
        try:
            await mta.taking()
            yield Site(mta, port)
        finally:
            mta.end()
            http.close()


async def submit(mta: Mta, people: list[str], campaign: str = "") -> None:
    def send() -> None:
        with smtplib.SMTP("127.0.0.1", mta.port) as server:
            for one in people:
                header = f"X-Campaign: {campaign}\r\n" if campaign else ""
                server.sendmail("news@example.com", [one], f"{header}Subject: news\r\n\r\nThe news of the day.\r\n")

    await asyncio.to_thread(send)


def rows_of(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


async def until(true: Callable[[], bool], what: str, seconds: float = 150.0) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not true():
        assert asyncio.get_running_loop().time() < end, what
        await asyncio.sleep(0.05)


async def test_commands_and_streams_know_the_mail_of_all(tmp_path: Path, zonemta: Run) -> None:
    async with running(tmp_path / "mta") as site:
        place = "--config", site.mta.config_file
        first, rest = PEOPLE[: COUNT // 2], PEOPLE[COUNT // 2 :]
        await until(lambda: (site.folder / TOKEN).exists(), "the HTTP listener has no key")
        early = await asyncio.to_thread(site.follow, type="delivered")
        await until(lambda: early.status == 200, "no stream")
        await submit(site.mta, first)
        await asyncio.to_thread(early.until, len(first))
        early.hang_up()
        await submit(site.mta, rest[:-1])
        await submit(site.mta, rest[-1:], "spring")
        late = await asyncio.to_thread(site.follow, early.last, type="delivered")
        await asyncio.to_thread(late.until, len(rest))
        plain = next(data["id"] for _, _, data in early.rows)
        from_first = await asyncio.to_thread(site.follow, plain, type="delivered")
        await asyncio.to_thread(from_first.until, COUNT - 1)
        whole = await asyncio.to_thread(site.follow, type="delivered", since="2020-01-01T00:00:00Z")
        await asyncio.to_thread(whole.until, COUNT)
        for follower in (late, from_first, whole):
            follower.hang_up()
        told = Counter(data["data"]["recipient"] for _, _, data in [*early.rows, *late.rows])
        assert told == Counter(PEOPLE), "the stream did not go on where it was, in each queue"
        assert {data["data"]["recipient"] for _, _, data in from_first.rows} >= set(rest)
        assert len({data["source"] for _, _, data in whole.rows}) == QUEUES
        await site.mta.drained()

        async def run(*words: str) -> Ran:
            return await asyncio.to_thread(zonemta, *words, *place)

        await until(lambda: site.lines.exists() and len(site.lines.read_text().splitlines()) == 2 * COUNT, "no events")
        said = {"sent": 2 * COUNT, "lag_records": 0, "state": "ok"}
        await until(lambda: said.items() <= sinks(zonemta, place)[0].items(), "the sink's state is not that of all")
        for one in PEOPLE[:3]:
            assert (await run("trace", one)).code == 0
        nobody = await run("trace", "nobody@site1.test")
        assert nobody.code == 65, nobody.err
        rotated = await run("journal", "rotate", "--json")
        assert len(json.loads(rotated.out)["closed"].split()) == QUEUES
        site.mta.terminate()
        await asyncio.to_thread(site.mta.waited)
    in_lake(site.folder, tmp_path / "lake", await asyncio.to_thread(offline, site, zonemta))


def sinks(zonemta: Run, place: tuple[Any, ...]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(zonemta("events", "sinks", "--json", *place).out)
    return rows


def offline(site: Site, zonemta: Run) -> dict[str, int]:
    """What commands say of the files of an MTA that does not run. Returns the ids of all mail, with their queues."""
    place = "--config", site.mta.config_file
    accepted = [
        row for row in rows_of(zonemta("log", "--since", "1h", "--json", *place)) if row["message"] == "accepted"
    ]
    assert len(accepted) == COUNT
    last = zonemta("log", "--json", *place)
    assert 0 < len(rows_of(last)) <= 100
    dumped = rows_of(zonemta("journal", "dump", "--archive", "--json", *place))
    assert [row["ms"] for row in dumped] == sorted(row["ms"] for row in dumped)
    ids = {row["body"]["id"]: row["queue"] for row in dumped if row["type"] == "envelope"}
    assert len(ids) == COUNT
    assert all(queue_of(id) == queue for id, queue in ids.items())
    assert set(ids.values()) == set(range(QUEUES))
    assert {row["queue"] for row in rows_of(zonemta("journal", "positions", "--json", *place))} == set(range(QUEUES))
    seen = rows_of(zonemta("events", "tail", "--no-follow", "--since", "1h", "--type", "delivered", "--json", *place))
    assert Counter(row["data"]["recipient"] for row in seen) == Counter(PEOPLE)
    ten = rows_of(zonemta("events", "tail", "--no-follow", "--type", "delivered", "--json", *place))
    assert [row["id"] for row in ten] == [row["id"] for row in seen][-10:]
    for one in PEOPLE:
        found = json.loads(zonemta("trace", one, "--json", *place).out)
        assert [row["what"] for row in found["rows"]] == ["accepted", "attempt", "delivered"]
    before = len(site.lines.read_text().splitlines())
    assert zonemta("events", "replay", "--sink", "lines", "--since", "1h", *place).code == 0
    again = [json.loads(line) for line in site.lines.read_text().splitlines()]
    assert len(again) == 2 * before
    assert len({row["id"] for row in again}) == before, "events that are sent again have the same ids"
    person = next(one for one in PEOPLE if home(one) == 2)
    assert len(read_history([site.folder / "archive", site.folder / "journal"]).mails) == COUNT
    assert set(reached(site.folder, ["spring"])) == {PEOPLE[-1]}
    forget = zonemta(
        "forget", person, "--files-only", "--archive", site.folder / "archive", "--proof", site.folder / "proof",
        "--json", *place,
    )  # fmt: skip
    proof = json.loads((site.folder / "proof").read_bytes())
    assert forget.code in (0, 75), forget.err
    assert "/queues/2/" in str(proof["places"] + proof["waiting"])
    config = site.mta.config_file
    text = config.read_text()
    config.write_text(text[: text.index("[[event_sinks]]")])
    assert zonemta("events", "forget-sink", "lines", *place).code == 0
    assert not [path for path in site.folder.rglob("events/lines") if path.is_dir()]
    return ids


def home(address: str) -> int:
    return Placement(range(QUEUES)).of_domain(address.partition("@")[2])[0]


def in_lake(folder: Path, lake: Path, ids: dict[str, int]) -> None:
    """The archives of all are one source, each segment once, also of a queue that there is no more. ids: of all mail,
    with the queues that have it."""
    archive, last = folder / "archive", QUEUES - 1
    new = ingested.news(reader.segments(archive), lake)
    for segment in new:
        bronze.place(segment, lake)
    assert {folders.queue_of(one.source) for one in new} == set(range(QUEUES))
    assert ingested.news(reader.segments(archive), lake) == []
    layout.write(folder, range(last))
    layout.set_aside(folder, last)
    for segment in (rest := ingested.news(reader.segments(archive), lake)):
        bronze.place(segment, lake)
    assert {one.path.parent.name for one in rest} == {"journal"}, "what is set aside is known under its new name"
    assert {folders.queue_of(one.source) for one in rest} == {last}
    files = sorted((lake / "bronze").glob("day=*/*.parquet"))
    tables = scan.read(files, {**outcomes.SCANS, **deliveries.SCANS})
    assert {id for id, queue in ids.items() if queue == last} <= set(tables["envelopes"]["id"].to_pylist())
    assert len(tables["envelopes"]) == len(set(tables["envelopes"]["id"].to_pylist())) <= COUNT
    tried = deliveries.numbered(tables["results"])
    assert set(tried["attempt"].to_pylist()) == {1}
    assert {one for one, queue in ids.items() if queue == last} <= set(tried["id"].to_pylist())
    assert len(read_history([archive, folder / "journal"]).mails) == COUNT
