"""Pull zones whose table changes, and queues with names of older versions: what was pushed is never sent, nor lost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.pull.test_fetching import ZONES
from tests.queue.pull.test_pulling import pop, push
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Receipt
from zonemta_py.queue.hooks import Routed
from zonemta_py.wire.server import serve

Make = Callable[..., Any]
SMTP = [{"name": "out"}, {"name": "branch", "recipient_domains": ["branch.test"]}]


async def test_what_was_pushed_to_a_zone_that_is_sent_from_now_is_not_sent(
    house: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fresh, put off or held: it waits in the queue of that name, and the log says so; mail is sent, as is meant."""
    home = await house(zones=[ZONES[0], ZONES[1] | {"in_doubt": "hold"}])
    for number in range(6):
        await push(home.queue, b"%d" % number, "branch")
    await home.put("ann@branch.test")
    one, two = await home.queue.pull("branch", most=2)
    await home.queue.nack(one.lease, one.id, 30)
    await home.queue.abandon(two.lease, two.id)
    await home.rest()
    home.options["zones"] = SMTP
    for _ in range(2):
        await home.crash()
        said = capsys.readouterr().err
    assert said == ""  # only the first start had anything to say
    (sent,) = await home.leases()
    assert sent.recipients[0].address == "ann@branch.test"
    await home.settle(sent)
    assert [await pop(home.queue, "branch") for _ in range(5)] == [b"2", b"3", b"4", b"5", None]
    await home.move(31)
    assert await pop(home.queue, "branch") == b"0"
    assert await home.queue.ask("release", id=two.id) == 1
    assert await home.idle()
    assert await pop(home.queue, "branch") == b"1"
    await home.sound()


async def test_a_start_says_where_it_continues(house: Make, capsys: pytest.CaptureFixture[str]) -> None:
    home = await house(zones=ZONES)
    await push(home.queue, b"1", "branch")
    home.options["zones"] = SMTP
    await home.crash()
    said = capsys.readouterr().err
    assert (
        "zone 'branch' is a pull zone no longer: 1 messages that were pushed to it continue in 'queue/branch'" in said
    )


async def test_a_check_with_the_folder_says_it_before(house: Make, tmp_path: Path) -> None:
    """`zonemta config check FILE --folder DIR`, while the MTA runs with the old configuration."""
    home = await house(zones=ZONES)
    server = await serve(home.queue, home.folder)
    await push(home.queue, b"1", "branch")
    await home.put("ann@branch.test")
    file = tmp_path / "new.toml"
    file.write_text('[[zones]]\nname = "out"\n[[zones]]\nname = "branch"\nrecipient_domains = ["branch.test"]\n')
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "zonemta_py", "config", "check", str(file), "--folder", str(home.folder),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await run.communicate()
    server.close()
    assert run.returncode == 0
    assert b"1 pushed messages will be in the queue queue/branch, where `pop branch` takes them" in err
    assert b"1 recipients of mail that wait there to be fetched will be sent to by SMTP" in err


async def test_names_of_queues_are_lower_case(house: Make, front: Make) -> None:
    home = await house()
    queue = await front(home)
    await push(queue, b"1", "Jobs")
    await push(queue, b"2", "jobs")
    assert [row["queue"] for row in await queue.ask("queues")] == ["jobs"]
    assert [await pop(queue, name) for name in ("jobs", "JOBS", "jobs")] == [b"1", b"2", None]


async def test_a_queue_that_was_made_with_capitals_is_read(house: Make) -> None:
    """As older versions made them; in its order among what has come since."""
    home = await house()
    core, done = home.queue.core, asyncio.get_running_loop().create_future()
    core.schedule.make("queue/Jobs")
    old = Recipient("Jobs@queue")
    envelope = Envelope("", [old], 1, protocol="PULL", sending_zone="Jobs")
    home.queue.acceptance.commit(envelope, [Routed(old, "queue/Jobs")], [b"1"], done.set_result)
    assert isinstance(await done, Receipt)
    await push(home.queue, b"2")
    await home.crash()
    assert [row["queue"] for row in await home.queue.ask("queues")] == ["jobs"]
    assert [await pop(home.queue) for _ in range(3)] == [b"1", b"2", None]
    await home.sound()
