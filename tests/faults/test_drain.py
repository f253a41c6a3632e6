"""A drain: takes nothing new, ends what is under way, and says the truth about what it did not."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from survival.rig import Mta

from tests.faults.test_reload import accepts, give, pids, until, zonemta

CANCELED = "the drain is canceled: mail is taken and sent again\n"


async def test_a_drain_ends_what_is_under_way(tmp_path: Path) -> None:
    """The destination takes its time; the delivery ends, what waits stays, nobody is in doubt. It says what it waits
    for, and can be canceled; everybody who has ordered it hears what was cut off."""
    answered, rest_s = asyncio.Event(), 1.0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await take(reader, writer)
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 slow\r\n")
        while line := await reader.readline():
            if line.upper().startswith(b"DATA"):
                writer.write(b"354 go on\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                answered.set()
                await asyncio.sleep(rest_s)
            writer.write(b"250 OK\r\n")

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    mta = Mta(tmp_path / "queue", server.sockets[0].getsockname()[1], home=tmp_path, processes=1)
    mta.config_file.write_text(mta.config_file.read_text().replace("connections = 5", "connections = 1"))
    mta.start()
    try:
        await mta.taking()
        for number in range(2):
            await give(mta, f"r{number}@bulk.test")
        await asyncio.wait_for(answered.wait(), 60)
        status, said = await asyncio.to_thread(zonemta, mta, "drain", "--for", "30s")
        assert (status, mta.alive) == (0, False), said
        assert mta.waited() == 0
        assert "WARNING" not in mta.log.read_text()
        mta.start()
        await mta.taking()
        await mta.drained()
        assert mta.in_doubt() == []
        answered.clear()
        rest_s = 600.0
        await give(mta, "late@bulk.test")
        await asyncio.wait_for(answered.wait(), 60)
        assert await asyncio.to_thread(mta.ask, "drain", for_s=600.0, by="a test")
        waits = asyncio.create_task(asyncio.to_thread(zonemta, mta, "drain", "--for", "9m", "--json"))
        await asyncio.to_thread(until, lambda: (mta.ask("draining")["left_s"] or 0) < 541)
        found = await asyncio.to_thread(mta.ask, "draining")
        assert (found["leases"], found["ending"]) == (1, True)
        assert {"process": "sender-1", "deliveries": 1, "connections": 0} in found["processes"]
        said = (await asyncio.to_thread(zonemta, mta, "status"))[1]
        assert "waits for sender-1: 1 deliveries" in said
        assert not await asyncio.to_thread(accepts, mta.port)
        assert await asyncio.to_thread(zonemta, mta, "drain", "--cancel") == (0, CANCELED)
        status, said = await waits
        assert (status, '"canceled": true' in said, '"process": "sender-1"' in said) == (75, True, True)
        assert await asyncio.to_thread(accepts, mta.port)
        with pytest.raises(ValueError, match="no drain is under way"):
            await asyncio.to_thread(mta.ask, "drain", cancel=True)
        await give(mta, "again@bulk.test")
        waits = asyncio.create_task(asyncio.to_thread(zonemta, mta, "drain", "--for", "9m"))
        await asyncio.to_thread(until, lambda: mta.ask("draining")["ending"])
        status, said = await asyncio.to_thread(zonemta, mta, "drain", "--for", "1s")  # changes its time
        assert status == 75
        assert "1 deliveries and 0 connections were cut off, of queue (its time was over)" in said
        assert await waits == (status, said), "of both, whichever has the longer time"
        answered.clear()
        mta.start()
        await mta.taking()
        assert mta.in_doubt() == ["late@bulk.test"]
        await give(mta, "last@bulk.test")
        await asyncio.wait_for(answered.wait(), 60)
        waits = asyncio.create_task(asyncio.to_thread(zonemta, mta, "drain", "--for", "9m"))
        await asyncio.to_thread(until, lambda: mta.ask("draining")["ending"])
        os.kill(pids(mta)["queue"], signal.SIGKILL)
        status, said = await waits
        assert (status, "were cut off, of queue (killed by SIGKILL)" in said) == (75, True), said
        mta.start()
        await mta.taking()
        assert mta.in_doubt() == ["late@bulk.test"], "the oldest, once more"
        rest_s = 0.0
    finally:
        mta.end()
        server.close()
