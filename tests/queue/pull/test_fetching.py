"""Pull zones as other zones: mail that its owner fetches, operators' orders, lifetimes, configurations that change."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.pull.test_pulling import pop, push
from tests.queue.test_campaigns import opened
from zonemta_py.queue.api import DELIVERED
from zonemta_py.queue.core.sizes import NAMES
from zonemta_py.wire.server import serve

Make = Callable[..., Any]
ZONES = [{"name": "out"}, {"name": "branch", "delivery": "pull", "recipient_domains": ["branch.test"]}]
DAY_S = 86_400


async def test_mail_for_a_branch_is_fetched_with_its_envelope(house: Make, front: Make) -> None:
    """It came by SMTP; its recipients at the branch are taken together, the other one is sent."""
    home = await house(zones=ZONES)
    queue = await front(home)
    await home.put("ann@branch.test", "bob@branch.test", "carl@x.test", notify=1, orcpt="rfc822;a@b.test")
    (sent,) = await home.lease()
    assert [one.address for one in sent.recipients] == ["carl@x.test"]
    (delivery,) = await queue.pull("branch")
    assert (delivery.sender, delivery.zone, delivery.site) == ("ann@src.test", "branch", "queue/branch")
    assert [(one.address, one.notify, one.orcpt) for one in delivery.recipients] == [
        ("ann@branch.test", 1, "rfc822;a@b.test"), ("bob@branch.test", 1, "rfc822;a@b.test"),
    ]  # fmt: skip
    assert await queue.ack(delivery.lease, delivery.id, "192.0.2.7")
    await home.sound()
    assert (await home.sizes())["leased"] == 1


async def test_mail_that_nobody_fetches_expires_and_pushes_do_not(house: Make) -> None:
    """Mail lives as all mail, and its sender hears of it; what was pushed lives for ever, or as [pull] says."""
    home = await house(zones=ZONES, retry={"life_h": 48})
    queue = home.queue
    await home.put("ann@branch.test")
    await push(queue, b"1")
    await push(queue, b"2", "branch")
    await home.move(47 * 3600)
    await queue.sweep()
    assert (await home.sizes())["queued"] == 3
    await home.move(400 * DAY_S)
    await queue.sweep()
    (notice,) = await home.lease()
    assert (notice.sender, notice.recipients[0].address) == ("", "ann@src.test")
    assert b"nobody has fetched it in time" in (notice.body or b"")
    await home.settle(notice, DELIVERED)
    assert await home.idle()
    assert [await pop(queue, name) for name in ("jobs", "branch", "branch")] == [b"1", b"2", None]
    await home.sound()


async def test_pushes_expire_if_that_is_configured(house: Make) -> None:
    """Nobody is told; also what was given back with a delay."""
    home = await house(pull={"life_h": 1})
    queue = home.queue
    await push(queue, b"1")
    await push(queue, b"2")
    (one,) = await queue.pull("jobs")
    await queue.nack(one.lease, one.id, 1800)
    await home.move(3500)
    await queue.sweep()
    assert set((await home.sizes()).values()) >= {1}
    await home.move(200)
    for _ in range(3):
        await queue.sweep()
        await home.rest()
    assert await pop(queue) is None
    assert set((await home.sizes()).values()) == {0}
    assert await home.idle()


async def test_operators_orders(house: Make, front: Make) -> None:
    """Stopped, nothing is taken; explained, listed, shown, held, released, dropped and erased as other mail."""
    home = await house(zones=[*ZONES, {"name": "safe", "delivery": "pull", "in_doubt": "hold"}])
    queue = await front(home)
    ids = [await push(queue, b"Subject: %d\n\nx" % number) for number in range(3)]
    await queue.ask("stop", kind="zone", name="queue/jobs", cause="a pause")
    assert await queue.pull("jobs") == await queue.peek("jobs") == []
    (row,) = (await queue.ask("explain", what="queue/jobs"))["rows"]
    assert row["reasons"][0]["cause"] == "zone queue/jobs is suspended: a pause"
    await queue.ask("lift", kind="zone", name="queue/jobs")
    (row,) = (await queue.ask("explain", what=ids[0]))["rows"]
    assert [reason["kind"] for reason in row["reasons"]] == ["pull"]
    assert row["life"]["until_ms"] == 0
    assert len((await queue.ask("list", zone="queue/jobs"))["rows"]) == 3
    assert (await queue.ask("show", id=ids[1]))["envelope"]["protocol"] == "PULL"
    assert (await queue.ask("forget", address="jobs@queue"))["removed"] == 3
    assert await pop(queue) is None
    held = await push(queue, b"1", "safe")
    (one,) = await queue.pull("safe")
    assert await queue.abandon(one.lease, one.id)
    assert await pop(queue, "safe") is None
    await home.rest()
    (row,) = [row for row in await queue.ask("queues") if row["queue"] == "safe"]
    assert (row["held"], row["ready"]) == (1, 0)
    assert await queue.ask("release", id=held) == 1
    assert await pop(queue, "safe") == b"1"
    held = await push(queue, b"2", "safe")
    (one,) = await queue.pull("safe")
    await queue.abandon(one.lease, one.id)
    await home.rest()
    assert await queue.ask("drop", id=held) == 1
    assert await pop(queue, "safe") is None
    await home.sound()
    assert {state for state in NAMES if (await home.sizes())[state]} == set()


async def test_suppressed_recipients_and_canceled_campaigns_are_not_handed_out(house: Make) -> None:
    """The suppression list is about mail, not about pushes."""
    home = await house(zones=ZONES)
    queue = home.queue
    await home.put("ann@branch.test")
    await home.put("bob@branch.test")
    await push(queue, b"1", "branch")
    await queue.ask("suppress", rows=[["ann@branch.test", "manual"], ["branch@queue", "manual"]])
    (one, two) = await queue.pull("branch", most=9)
    assert [one.recipients[0].address, two.recipients[0].address] == ["bob@branch.test", "branch@queue"]


async def test_a_merged_message_is_held(house: Make) -> None:
    """It has no body that could be taken; nothing of it is lost."""
    home = await opened(house, "ann@branch.test", zones=ZONES)
    assert await home.queue.pull("branch") == []
    await home.rest()
    (row,) = (await home.queue.ask("list", state="held"))["rows"]
    assert "a merged message has no body" in row["last"]
    await home.sound()


async def test_a_queue_that_gets_a_table_and_loses_it(house: Make) -> None:
    """What was pushed goes on in the queue of its name; mail in the default zone."""
    home = await house(zones=ZONES)
    await push(home.queue, b"1")
    await push(home.queue, b"2")
    await home.put("ann@branch.test")
    home.options["zones"] = [{"name": "out"}, {"name": "jobs", "delivery": "pull"}]
    await home.crash()
    assert [row["zone"] for row in await home.queue.ask("queues")] == ["jobs"]
    (delivery,) = await home.leases()
    assert delivery.recipients[0].address == "ann@branch.test"
    (one,) = await home.queue.pull("jobs")
    assert one.body == b"1"
    home.options["zones"] = [{"name": "out"}]
    await home.crash()
    assert [await pop(home.queue) for _ in range(3)] == [b"1", b"2", None]
    await home.sound()


async def test_a_zone_becomes_a_pull_zone_and_one_that_is_sent_from_again(house: Make) -> None:
    """Whatever waits there, fresh, parked or deferred, is taken, or sent, in its order."""
    smtp = [{"name": "out"}, {"name": "branch", "recipient_domains": ["branch.test"]}]
    home = await house(zones=smtp, queue={"window": 100})
    addresses = [f"r{number:03}@branch.test" for number in range(300)]
    for address in addresses:
        await home.put(address)
    home.options["zones"] = ZONES
    await home.crash()
    taken: list[str] = []
    while found := await home.queue.pull("branch", most=7):
        await home.rest()
        taken += [one.recipients[0].address for one in found]
    assert taken == addresses
    home.options["zones"] = smtp
    await home.crash()
    sent: list[str] = []
    while deliveries := await home.leases():
        for delivery in deliveries:
            sent += [one.address for one in delivery.recipients]
            await home.settle(delivery)
    assert sorted(sent) == addresses
    await home.sound()


@pytest.mark.disk
async def test_fsck_brings_back_what_is_missing(house: Make, tmp_path: Path) -> None:
    """Into its queue, although no table has it."""
    home = await house()
    message_id = await push(home.queue, b"1")
    await home.rest()
    store = home.queue.core.disk.store
    (key,) = [key for key in store.keys(b"parked ", b"parked!") if message_id.encode() in key]
    store.write([(key, None)], True)
    home.abandon()
    assert [problem.severity for problem in home.check(repair=True).problems if problem.severity != "harmless"]
    await home.open()
    assert await pop(home.queue) == b"1"
    await home.sound()


async def _command(home: Any, *words: str) -> str:
    """What `zonemta` prints."""
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "zonemta_py", *words, "--folder", str(home.folder), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await run.communicate()
    assert run.returncode == 0
    return out.decode()


async def test_commands_and_a_backup(house: Make) -> None:
    """By the name of its zone; a copy of the queue has what waited in it, and what is stopped."""
    home = await house()
    queue = home.queue
    server = await serve(queue, home.folder)
    await push(queue, b"1")
    listed = json.loads(await _command(home, "queue", "list", "--zone", "queue/jobs", "--json"))
    assert [row["recipient"] for row in listed["rows"]] == ["jobs@queue"]
    assert "it waits for a client to fetch it" in await _command(home, "explain", "queue/jobs", "--plain")
    await _command(home, "stop", "zone", "queue/jobs")
    assert await pop(queue) is None
    copy = Path(await queue.ask("backup"))
    await _command(home, "lift", "zone", "queue/jobs")
    assert await pop(queue) == b"1"
    server.close()
    home.abandon()
    home.folder = copy
    await home.open()
    assert (await home.queue.ask("queues"))[0]["ready"] == 1
    assert await home.queue.ask("lift", kind="zone", name="queue/jobs")
    assert await pop(home.queue) == b"1"
    await home.sound()
