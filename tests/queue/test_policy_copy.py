"""What is stopped is kept twice: wherever the journal is damaged, no order is lost, and no stopped mail goes."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk.frame import Record, frame
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.queue.recovery import start

Make = Callable[..., Any]


async def stopped(home: Any) -> set[tuple[str, str]]:
    return {(row["kind"], row["name"]) for row in await home.queue.ask("standing") if row["kind"] == "zone"}


@pytest.mark.parametrize("position", [False, True])
async def test_orders_that_the_journal_has_lost(house: Make, position: bool) -> None:
    """A stop, and a lift, of which no record is left: with and without the position record after them."""
    home = await house(zones=[{"name": "z", "default": True}, {"name": "other"}])
    await home.queue.ask("stop", kind="zone", name="other")
    await home.queue.position()
    await home.put("a@x.test")
    await home.queue.ask("stop", kind="zone", name="z")
    await home.queue.ask("lift", kind="zone", name="other")
    await home.rest()
    if position:
        await home.queue.position()
    home.folder, _ = home.image(), home.abandon()
    strike(home)
    await home.open()
    assert await stopped(home) == {("zone", "z")}
    assert await home.idle(), "nothing of a stopped zone goes"
    await home.rest()
    await home.crash()
    assert await stopped(home) == {("zone", "z")}


async def test_an_order_while_a_position_record_waits_for_the_disk(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record comes before that of the position, which has it: what follows is all that the next start reads."""
    home = await house(zones=[{"name": "z", "default": True}])
    bodies = home.queue.core.disk.bodies
    settled = bodies.settled

    async def later() -> None:
        await settled()
        await home.queue.ask("stop", kind="zone", name="z")

    monkeypatch.setattr(bodies, "settled", later)
    await home.queue.position()
    await home.crash()
    assert await stopped(home) == {("zone", "z")}


def strike(home: Any) -> None:
    """Takes the orders, and every position after the first, out of the journal: as damage to their blocks does."""
    seen = False
    for path in segments.files(home.folder / "journal"):
        kept: list[Record] = []
        for record in segments.read_file(path, []):
            if record.type == Type.POSITION and not seen:
                seen = True
                kept.append(record)
            elif record.type not in (Type.POSITION, Type.STANDING) or not seen:
                kept.append(record)
        path.write_bytes(frame(kept, 0))


async def test_the_journal_is_gone(house: Make) -> None:
    """All that was stopped still is."""
    home = await house(zones=[{"name": "z", "default": True}, {"name": "other"}])
    await home.queue.ask("stop", kind="zone", name="other")
    await home.queue.position()
    await home.queue.ask("stop", kind="zone", name="z")
    await home.rest()
    home.folder, _ = home.image(), home.abandon()
    shutil.rmtree(home.folder / "journal")
    await home.open()
    assert await stopped(home) == {("zone", "z"), ("zone", "other")}


async def lost(home: Any) -> dict[str, str]:
    """What may have been lost, and why, without the cases of quarantine, which stand there too."""
    rows = {row["name"]: row["cause"] for row in await home.queue.ask("standing") if row["kind"] == "lost"}
    return {name: cause for name, cause in rows.items() if f"quarantine/{name}" not in cause}


async def acknowledge(home: Any) -> None:
    """All cases."""
    for row in await home.queue.ask("standing"):
        assert (home.folder / "quarantine" / row["name"]).is_dir()
        assert await home.queue.ask("lift", kind="lost", name=row["name"])


async def test_where_both_are_damaged_that_is_said(house: Make, capfd: Any) -> None:
    """Orders may be lost then, and whoever runs the MTA hears of it."""
    home = await house(zones=[{"name": "z", "default": True}, {"name": "other"}])
    await home.queue.position()
    await home.queue.ask("stop", kind="zone", name="z")
    await home.put("a@x.test")
    await home.rest()
    home.folder, _ = home.image(), home.abandon()
    strike(home)
    shutil.rmtree(home.folder / "store")
    await home.open()
    assert "stops, lifts, warm-up days" in capfd.readouterr().err
    for again in (False, True):
        rows = await lost(home)
        assert rows.keys() == {"orders"}
        assert "may be lost; check zonemta standing" in rows["orders"]
        if again:
            await home.queue.position()
        await home.crash()
    assert await home.queue.ask("lift", kind="lost", name="orders")
    assert not await home.queue.ask("lift", kind="lost", name="orders")
    await acknowledge(home)
    await home.rest()
    await home.crash()
    assert not await home.queue.ask("standing")


async def test_a_crash_while_the_loss_is_being_said(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is whole again by then: the next start says it all the same."""
    home = await house()
    await home.queue.position()
    await home.queue.ask("stop", kind="zone", name="default")
    await home.put("a@x.test")
    await home.rest()
    home.folder, _ = home.image(), home.abandon()
    strike(home)
    shutil.rmtree(home.folder / "store")

    def crash(*_: Any) -> None:
        raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr(start, "_checked", crash)
        with pytest.raises(KeyError):
            await home.open()
    home.abandon()
    await home.open()
    assert [*await lost(home)] == ["orders"]
    assert not (home.folder / start.ORDERS_MARK).exists()


async def test_fsck_repair_leaves_word_for_the_operator(house: Make) -> None:
    """Whoever reads `zonemta standing` need not be who ran the repair."""
    home = await house()
    await home.queue.position()
    await home.queue.ask("stop", kind="zone", name="default")
    await home.put("a@x.test")
    await home.rest()
    home.folder, _ = home.image(), home.abandon()
    strike(home)
    shutil.rmtree(home.folder / "store")
    home.check(repair=True)
    await home.open()
    assert [*await lost(home)] == ["orders"]
