"""An MTA with three queues, as real processes: one MTA to everybody outside, whichever is killed or stands still."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from survival.rig import Mta

from tests.queues.processes import QUEUES, killed, pid, running, until
from zonemta_py.disk.keys import queue_of
from zonemta_py.mail.addresses.entries import hash_of
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queues import layout
from zonemta_py.queues.authority import SILENT_S
from zonemta_py.queues.client import STUCK_S, Queues
from zonemta_py.queues.member import noted
from zonemta_py.queues.placement import Placement
from zonemta_py.wire import SOCKET
from zonemta_py.wire.blocking_client import QueueGone, ask, ask_at


async def order(mta: Mta, question: str, **arguments: object) -> float:
    """How long it took, seconds."""
    begun = time.monotonic()
    await asyncio.to_thread(mta.ask, question, **arguments)
    return time.monotonic() - begun


async def test_mail_goes_through_all_and_ids_name_their_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as (mta, ledger, client):
        await client.hand_in(range(120))
        await mta.drained()
        await order(mta, "stop", kind="zone", name="default")
        for number in range(12):
            await submit(mta, f"ann@d{number}.test")
        place = Placement(range(QUEUES))
        rows = (await asyncio.to_thread(mta.ask, "list", limit=100))["rows"]
        assert len(rows) == 12
        for row in rows:
            assert queue_of(row["id"]) == place.of_domain(row["recipient"].partition("@")[2])[0]
        assert {queue_of(row["id"]) for row in rows} == set(range(QUEUES))
    assert layout.numbers(tmp_path) == [0, 1, 2]
    assert ledger.judge([]).broken == []


async def test_an_order_holds_for_a_queue_that_was_killed(tmp_path: Path) -> None:
    """It is answered at once by those that run; who starts later carries it out before it leases anything."""
    async with running(tmp_path) as (mta, ledger, client):
        victim = pid(mta, "queue-1")
        os.kill(victim, signal.SIGSTOP)  # it is not restarted while it stands still
        took_s = await order(mta, "stop", kind="zone", name="default")
        assert took_s < 5
        os.kill(victim, signal.SIGKILL)
        await client.hand_in(range(60))
        await until(lambda: noted(layout.folder_of(tmp_path, 1)) == noted(tmp_path))
        await asyncio.sleep(1.0)
        assert not [one for one in ledger.arrivals if "bulk.test" not in one], "mail went out against an order"
        await order(mta, "lift", kind="zone", name="default")
        await mta.drained()
    assert ledger.judge([]).broken == []


async def test_a_queue_that_stood_still_leases_nothing_against_an_order(tmp_path: Path) -> None:
    async with running(tmp_path) as (mta, ledger, client):
        await order(mta, "stop", kind="zone", name="bulk")
        await client.hand_in(range(60))
        victim = pid(mta, "queue-2")
        os.kill(victim, signal.SIGSTOP)
        try:
            assert await order(mta, "stop", kind="zone", name="default") < 5
            assert await order(mta, "stop", kind="domain", name="a.test", seconds=3600) < 5
            await asyncio.sleep(SILENT_S)
            with pytest.raises(ValueError, match="queue 2 does not answer"):  # which one, and at once
                await asyncio.wait_for(asyncio.to_thread(ask, mta.folder, "size"), 10)
        finally:
            os.kill(victim, signal.SIGCONT)
        await asyncio.sleep(1.0)
        each = [
            ask_at(layout.folder_of(mta.folder, number) / SOCKET, "standing", limit=100, after=0)
            for number in range(QUEUES)
        ]
        ends = [row["until_ms"] for rows in each for row in rows if row["name"] == "a.test"]
        assert len(ends) == QUEUES
        assert max(ends) - min(ends) < 1_000, "it ends everywhere when it was to end"
        standing = await asyncio.to_thread(mta.ask, "standing")
        assert {row["name"] for row in standing if row["kind"] == "zone"} == {"default", "bulk"}
        for zone in ("default", "bulk"):
            await order(mta, "lift", kind="zone", name=zone)
        await mta.drained()
    assert ledger.judge([]).broken == []


async def test_mail_passes_over_a_queue_that_stands_still(tmp_path: Path) -> None:
    """Only what it may have stored waits for it."""
    async with running(tmp_path) as (mta, _, _client):
        number = Placement(range(QUEUES)).of_domain("still.test")[0]
        victim = pid(mta, f"queue-{number}")
        queues = Queues(mta.folder, Placement(range(QUEUES)), "receiver")
        body = b"Subject: news\r\n\r\nThe news.\r\n"
        await queues.accept(Envelope("n@src.test", [Recipient("first@still.test")], len(body)), body)
        os.kill(victim, signal.SIGSTOP)
        try:
            late = asyncio.ensure_future(
                queues.accept(Envelope("n@src.test", [Recipient("late@still.test")], len(body)), body)
            )
            await asyncio.sleep(STUCK_S + 0.5)
            others = [Envelope("n@src.test", [Recipient(f"u{n}@still.test")], len(body)) for n in range(5)]
            receipts = [await asyncio.wait_for(queues.accept(one, body), 10) for one in others]
            assert number not in {queue_of(one.id) for one in receipts}
            assert not late.done()
        finally:
            os.kill(victim, signal.SIGCONT)
        assert queue_of((await asyncio.wait_for(late, 30)).id) == number
        after = await queues.accept(Envelope("n@src.test", [Recipient("after@still.test")], len(body)), body)
        assert queue_of(after.id) == number
        await mta.drained()


async def test_an_order_that_no_queue_takes_is_refused_once_and_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path) as (mta, _, _client):
        for _ in range(2):
            with pytest.raises(ValueError, match="there is no zone 'nowhere'"):
                await order(mta, "stop", kind="zone", name="nowhere")
        assert await order(mta, "stop", kind="zone", name="bulk") < 5
        await until(lambda: {noted(layout.folder_of(tmp_path, k)) for k in range(3)} == {3})


async def test_the_authority_may_die_at_any_time(tmp_path: Path) -> None:
    """Mail goes on, and the next one knows what was ordered."""
    async with running(tmp_path) as (mta, ledger, client):
        handing = asyncio.create_task(client.hand_in(range(200)))
        for _ in range(5):
            await asyncio.sleep(0.2)
            await killed(mta, "authority")
        await handing
        await order(mta, "stop", kind="zone", name="bulk")
        await killed(mta, "authority")
        standing = await asyncio.to_thread(mta.ask, "standing")
        assert "bulk" in {row["name"] for row in standing}
        await order(mta, "lift", kind="zone", name="bulk")
        await mta.drained()
    assert ledger.judge([]).broken == []


async def test_suppressed_by_one_reply_is_suppressed_everywhere(tmp_path: Path) -> None:
    """Somebody who is not there, as one queue's servers say twice, gets nothing by the others either."""
    async with running(tmp_path) as (mta, _, _client):
        home = Placement(range(QUEUES)).of_domain("gone.test")[0]
        for _ in range(4):
            await submit(mta, "gone-ann@gone.test")
        await mta.drained()
        await until(lambda: mta.ask("suppression", address="gone-ann@gone.test") is not None)
        for number in range(QUEUES):
            folder = layout.folder_of(tmp_path, number)
            await until(lambda folder=folder: listed(folder, "gone-ann@gone.test"))
        assert home in range(QUEUES)
        heard = (await asyncio.to_thread(mta.ask, "evidence", address="gone-ann@gone.test"))["heard"]
        assert len(heard) == len({(item["message"], item["at_ms"]) for item in heard}) >= 1, (
            "what all have learnt is told once"
        )
        told = (await asyncio.to_thread(mta.ask, "trace", what="gone-ann@gone.test"))["rows"]
        assert [row["what"] for row in told].count("suppressed") == 1


async def test_a_domain_a_pattern_and_a_hash_hold_everywhere(tmp_path: Path) -> None:
    """In each queue for what comes and what waits, also in one that is killed meanwhile; and are taken off in all."""
    entries = ["@gone.test", "bot*@*", hash_of("ann@x.test")]
    people = ["ann@gone.test", "bot1@x.test", "ANN@x.test"]
    async with running(tmp_path) as (mta, _, _client):
        await order(mta, "stop", kind="zone", name="default")
        for who in (*people, "bob@x.test"):
            await submit(mta, who)
        rows = [[one, "manual", "", "", "tester"] for one in entries]
        await order(mta, "suppress", rows=rows)
        await killed(mta, "queue-1")
        for number in range(QUEUES):
            folder = layout.folder_of(tmp_path, number)
            for who in people:
                await until(lambda folder=folder, who=who: knows(folder, who))
        await order(mta, "lift", kind="zone", name="default")
        await mta.drained()
        for who in people:
            told = (await asyncio.to_thread(mta.ask, "trace", what=who))["rows"]
            assert [row["what"] for row in told if row["what"] in ("delivered", "removed")] == ["removed"]
        told = (await asyncio.to_thread(mta.ask, "trace", what="bob@x.test"))["rows"]
        assert "delivered" in [row["what"] for row in told]
        await order(mta, "unsuppress", addresses=entries)
        for number in range(QUEUES):
            folder = layout.folder_of(tmp_path, number)
            await until(lambda folder=folder: not any(listed(folder, who) for who in people))


async def test_a_guard_holds_back_everywhere_what_it_holds_back_in_one(tmp_path: Path) -> None:
    """Dropped, nobody is on the list, whichever queue is asked: also of those who were, before it went up."""
    async with running(tmp_path) as (mta, _, _client):
        people = [f"gone-{number}@one.test" for number in range(60)]
        for who in people:
            await submit(mta, who)
        await mta.drained()

        def held(number: int) -> list[int]:
            return [row["people"] for row in ask_at(layout.folder_of(tmp_path, number) / SOCKET, "guards")]

        await until(lambda: [held(number) for number in range(QUEUES)] == [[60]] * QUEUES)
        (guard,) = await asyncio.to_thread(mta.ask, "guards")
        assert guard["people"] == 60
        assert await asyncio.to_thread(mta.ask, "guard-release", name=guard["name"], drop=True) == 60
        for number in range(QUEUES):
            folder = layout.folder_of(tmp_path, number)
            await until(lambda folder=folder: not any(listed(folder, who) for who in people))
        assert await asyncio.to_thread(mta.ask, "guards") == []
        whole = await asyncio.to_thread(mta.ask, "suppressions", limit=100)
        assert whole["rows"] == []


async def test_a_guard_is_for_what_all_queues_have_heard(tmp_path: Path) -> None:
    """Each of them hears of fewer than it takes; it goes up once, also where one of them dies meanwhile."""
    async with running(tmp_path) as (mta, _, _client):
        place = Placement(range(QUEUES))
        first = {place.of_domain(domain := f"d{number}.test")[0]: domain for number in range(50)}
        assert set(first) == set(range(QUEUES))
        people = [f"gone-{number}@one.test" for number in range(21)]
        for number, who in enumerate(people):  # the first recipient's domain says which queue takes it
            await submit(mta, f"ann@{first[number % QUEUES]}", who)
            if number == 15:
                await killed(mta, "queue-2")
        await mta.drained()

        def held(number: int) -> list[int]:
            return [row["people"] for row in ask_at(layout.folder_of(tmp_path, number) / SOCKET, "guards")]

        await until(lambda: [held(number) for number in range(QUEUES)] == [[21]] * QUEUES)
        for number in range(QUEUES):
            folder = layout.folder_of(tmp_path, number)
            await until(lambda folder=folder: not any(listed(folder, who) for who in people))
        assert mta.log.read_text().count("do not exist there, it says") == 1


def listed(folder: Path, address: str) -> bool:
    return ask_at(folder / SOCKET, "suppression", address=address) is not None


def knows(folder: Path, address: str) -> bool:
    """The same of a queue that may just be starting."""
    try:
        return listed(folder, address)
    except QueueGone:
        return False


async def submit(mta: Mta, *recipients: str) -> None:
    import smtplib

    def send() -> None:
        with smtplib.SMTP("127.0.0.1", mta.port) as server:
            server.sendmail("news@example.com", list(recipients), "Subject: news\r\n\r\nThe news of the day.\r\n")

    await asyncio.to_thread(send)


async def test_a_backup_has_all_queues_and_sends_nothing_until_it_is_adopted(tmp_path: Path) -> None:
    async with running(tmp_path / "queue") as (mta, _, client):
        for zone in ("default", "bulk"):
            await order(mta, "stop", kind="zone", name=zone)
        await client.hand_in(range(60))
        waiting = (await asyncio.to_thread(mta.ask, "size"))["total"]
        ran = await asyncio.to_thread(run, mta, "backup", str(tmp_path / "copy"))
        assert ran.returncode == 0, ran.stderr
    assert layout.numbers(tmp_path / "copy") == [0, 1, 2]
    assert (await asyncio.to_thread(run, mta, "fsck", "--json", folder=tmp_path / "copy")).returncode == 0
    counts = json.loads((await asyncio.to_thread(run, mta, "fsck", "--json", folder=tmp_path / "copy")).stdout)[
        "counts"
    ]
    assert counts["messages"] == waiting["messages"]


def run(mta: Mta, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    place = ["--folder", str(folder)] if folder is not None else ["--config", str(mta.config_file)]
    return subprocess.run([mta.python, "-m", "zonemta_py", *words, *place], capture_output=True, text=True, timeout=120)


async def test_a_reroute_holds_in_all_queues_over_a_kill(tmp_path: Path) -> None:
    """What a suspended zone has goes through another one, from each queue, whichever was killed; and until when."""
    async with running(tmp_path) as (mta, _, _):
        await order(mta, "stop", kind="zone", name="default")
        for number in range(24):
            await submit(mta, f"ann@d{number}.test")
        os.kill(pid(mta, "queue-1"), signal.SIGSTOP)
        victim = pid(mta, "queue-1")
        await order(mta, "reroute", zone="default", to="zone bulk", seconds=600.0, by="ann")
        os.kill(victim, signal.SIGKILL)
        await mta.drained()
        for number in range(QUEUES):
            place = layout.folder_of(tmp_path, number) / SOCKET
            [row] = await asyncio.to_thread(ask_at, place, "reroutes")
            assert (row["name"], row["to"], row["cause"]) == ("default *", "zone bulk", "by ann")
            assert 0 < row["until_ms"] - time.time() * 1000 <= 600_000
        assert await asyncio.to_thread(mta.ask, "reroute-remove", zone="default")
        assert await asyncio.to_thread(mta.ask, "reroutes") == []
