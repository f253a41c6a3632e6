"""Group commit: one sync serves all who wait, and those whose requests are in the sockets when it is about to begin."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from zonemta_py.disk import packing
from zonemta_py.journal.records import Type

Make = Callable[..., Any]


@pytest.mark.parametrize("line", ["store", "journal"])
async def test_a_request_that_is_in_the_socket_already_shares_the_sync(house: Make, line: str) -> None:
    """It is read before the sync of the one before it begins."""
    core = (await house()).queue.core
    await core.disk.journal.stable()
    await core.disk.lines.stable()
    disk = core.disk.lines if line == "store" else core.disk.journal
    loop, before, order = asyncio.get_running_loop(), disk.syncs, list[str]()
    all_done = loop.create_future()

    def done(who: str, _: object = None) -> None:
        order.append(f"{who}: {disk.syncs - before}")
        if len(order) == 2:
            all_done.set_result(None)

    def ask(who: str) -> None:
        if line == "store":
            core.disk.lines.submit([(who.encode(), b"x")], partial(done, who), sync=True, keep=True)
        else:
            core.disk.journal.append(Type.STANDING, packing.pack(["nobody", ["none", ""], [], ""]), 0)
            core.disk.journal.when_stable(partial(done, who))

    def second() -> None:
        theirs.recv(1)
        ask("second")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        loop.add_reader(theirs, second)
        ours.send(b"x")
        ask("first")
        await asyncio.wait_for(all_done, 60)
        loop.remove_reader(theirs)
    assert order == ["first: 1", "second: 1"]


async def test_who_is_patient_shares_the_sync_of_another_and_asks_for_none_of_its_own(house: Make) -> None:
    """But waits no longer than PATIENT_S for company."""
    core = (await house()).queue.core
    await core.disk.journal.stable()
    loop, before, order = asyncio.get_running_loop(), core.disk.journal.syncs, list[str]()
    all_done = loop.create_future()

    def done(who: str) -> None:
        order.append(f"{who}: {core.disk.journal.syncs - before}")
        if len(order) == 4:
            all_done.set_result(None)

    def ask(who: str, patient: bool) -> None:
        core.disk.journal.append(Type.STANDING, packing.pack(["nobody", ["none", ""], [], ""]), 0)
        core.disk.journal.when_stable(partial(done, who), patient)

    ask("patient", True)
    ask("patient too", True)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ask("not patient", False)
    await asyncio.wait_for(core.disk.journal.stable(), 60)
    ask("alone", True)
    await asyncio.wait_for(all_done, 60)
    assert order == ["patient: 1", "patient too: 1", "not patient: 1", order[-1]]
    assert order[-1].startswith("alone: ")
