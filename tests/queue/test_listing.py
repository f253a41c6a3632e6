"""Lists of recipients: walked in stretches, so that mail has its turn; what is found by subject and by login."""

import asyncio
from typing import Any

import pytest

from zonemta_py.disk.leveldb.instant import Instant
from zonemta_py.queue.admin.browse.large_message import STEP
from zonemta_py.queue.admin.browse.of_index import LARGE
from zonemta_py.queue.admin.browse.ranges import AT_ONCE
from zonemta_py.queue.api import DEFERRED

STRETCHES = 5
PACE = "zonemta_py.schedule.time.pace"


@pytest.fixture(autouse=True)
def _pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turn after each portion."""
    monkeypatch.setattr(f"{PACE}.TURN_S", 0.0)


@pytest.fixture
async def home(house: Any) -> Any:
    """As many messages as stretches, each with the recipients of one; all but the first came from bulk."""
    home = await house()
    for number in range(STRETCHES):
        recipients = [f"r{number}-{part}@d{part % 3}.test" for part in range(AT_ONCE)]
        await home.put(*recipients, user="bulk" if number else None)
    return home


async def turns_during(question: Any) -> int:
    """How often somebody else who is always ready had a turn before the answer was there."""
    turns, over = 0, False

    async def other() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    watching = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = turns
    await question
    over = True
    await watching
    return turns - before


@pytest.mark.parametrize(
    "filters", [{"sender": "nobody@example.com"}, {"subject": "no such"}, {"user": "nobody"}, {"recipient": "x@x.test"}]
)
async def test_mail_has_its_turn_while_a_list_is_searched(home: Any, filters: dict[str, str]) -> None:
    """Once for every stretch at least, whatever is asked and though nothing is found."""
    assert await turns_during(home.queue.ask("list", **filters)) >= STRETCHES


async def test_mail_has_its_turn_while_a_message_is_shown(home: Any) -> None:
    """Though its recipients are among many others that wait for their time, too; each is there, once."""
    ids = {row["id"] for row in await home.listed()}
    while deliveries := await home.leases():
        for delivery in deliveries:
            await home.settle(delivery, DEFERRED)
    await home.rest()
    for message_id in ids:
        shown = await home.queue.ask("show", id=message_id)
        found = {row["recipient"] for row in shown["recipients"] if row["state"] == "deferred"}
        assert len(found) == len(shown["recipients"]) == AT_ONCE
    assert await turns_during(home.queue.ask("show", id=max(ids))) >= STRETCHES - 1


async def test_mail_that_moves_meanwhile_breaks_no_walk(home: Any) -> None:
    """Deliveries end between two stretches: the list goes on behind the key where it was."""

    async def deliver() -> None:
        for delivery in await home.leases():
            await home.settle(delivery)
            await asyncio.sleep(0)

    page, _ = await asyncio.gather(home.queue.ask("list", limit=10_000), deliver())
    found = [row["recipient"] for row in page["rows"]]
    assert len(found) == len(set(found)) > 0


async def test_by_subject_and_by_login(house: Any) -> None:
    """A part of the subject in any case; the login exactly. Both may be asked for at once."""
    home = await house()
    for user, subject in (("ann", "Your ORDER 17"), ("bob", "your order 18"), (None, "Hello")):
        await home.put(f"{user}@x.test", user=user, headers={"subject": subject})

    async def found(**filters: str) -> list[str]:
        return sorted(row["recipient"] for row in (await home.queue.ask("list", **filters))["rows"])

    assert await found(subject="order") == ["ann@x.test", "bob@x.test"]
    assert await found(user="ann") == ["ann@x.test"]
    assert await found(user="ann", subject="18") == []
    assert {row["user"] for row in (await home.queue.ask("list"))["rows"]} == {"ann", "bob", ""}


async def test_mail_has_its_turn_within_a_large_message(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many recipients one message has deferred: they are read in steps, and the cursor may be among them."""
    home = await house()
    count = 3 * LARGE
    for _ in range(2):
        await home.put(*(f"r{number}@x.test" for number in range(count)), hold_until_ms=home.clock.ms() + 10**9)
    await home.rest()
    reads: list[int] = []
    keys = Instant.keys

    def counted(instant: Instant, start: bytes, stop: bytes) -> Any:
        reads.append(0)
        for key in keys(instant, start, stop):
            reads[-1] += 1
            yield key

    monkeypatch.setattr(Instant, "keys", counted)
    rows, after = list[tuple[str, str]](), ""
    for limit in (1, 2, 700, LARGE):
        page = await home.queue.ask("list", limit=limit, after=after)
        rows, after = rows + [(row["id"], row["recipient"]) for row in page["rows"]], page["next"]
    assert max(reads) <= LARGE + 1
    assert await turns_during(home.queue.ask("list", limit=1)) >= count // STEP
    while after:
        page = await home.queue.ask("list", limit=10_000, after=after)
        rows, after = rows + [(row["id"], row["recipient"]) for row in page["rows"]], page["next"]
    assert len(rows) == len(set(rows)) == 2 * count
    assert rows == sorted(rows)
    assert await home.listed(subject="no such") == []
