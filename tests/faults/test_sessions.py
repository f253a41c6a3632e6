"""Quotas of sessions and bounds of connections with the real MTA: two receivers, one killed, reloads, and a new queue
process."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from pathlib import Path

from survival.rig import Mta

PATIENCE_S = 60
_ACCOUNT = '[[accounts]]\nname = "shop"\nnetworks = ["127.0.0.0/8"]\nsessions = {}\n'


class Clients:
    """Sessions that stay open. refusal: what one hears that is too many."""

    refusal = b"421 4.7.0 account 'shop' has "

    def __init__(self, port: int) -> None:
        self.port, self.open = port, list[socket.socket]()

    def more(self, count: int) -> int:
        """Tries so many; how many were let in."""
        before = len(self.open)
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", self.port), timeout=60)
            said = one.recv(200)
            if said.startswith(b"220"):
                self.open.append(one)
            else:
                one.close()
                assert said.startswith(self.refusal), said
        return len(self.open) - before

    def alive(self) -> int:
        """Takes out those whose receiver is dead."""
        over = select.select(self.open, [], [], 0)[0]
        for one in over:
            self.open.remove(one)
            one.close()
        return len(self.open)

    def close(self) -> None:
        for one in self.open:
            one.close()
        self.open.clear()


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(found):  # noqa: ASYNC110 (other processes are waited for)
            await asyncio.sleep(0.05)


async def test_exact_over_a_kill_a_reload_and_a_new_queue(tmp_path: Path) -> None:
    """Nothing is counted twice, and nothing that is dead."""
    mta = Mta(tmp_path / "queue", 9, home=tmp_path, more=_ACCOUNT.format(6))
    clients = Clients(mta.port)

    def used() -> int:
        [row] = mta.ask("accounts")
        return int(row["used"])

    mta.start()
    try:
        await until(lambda: mta.children() and list(mta.children().values()).count("receiver") == 2)
        await until(lambda: mta.ask("accounts"))
        await until(lambda: clients.more(1))
        assert len(clients.open) + clients.more(9) == 6
        assert mta.kill("receiver")
        await until(lambda: used() == clients.alive())
        clients.more(9)
        assert clients.alive() == used() == 6
        text = mta.config_file.read_text().replace("sessions = 6", "sessions = 8")
        mta.config_file.write_text(text)
        mta.ask("reload")
        assert (clients.more(9), used()) == (2, 8)
        assert mta.kill("queue")
        await until(lambda: used() >= clients.alive())
        clients.more(9)
        assert clients.alive() == used() == 8
        clients.refusal = b"421 4.7.0"
        limits = text.replace("[limits]", "[limits]\nconnections_per_client = 9").replace(
            "sessions = 8", "sessions = 99"
        )
        for number in range(3):
            mta.config_file.write_text(f"{limits}[learning]\ninitial = {5 + number}\n")
            assert mta.ask("reload")["refused"] == []
            clients.more(6)
            assert clients.alive() == used() == 9, "those of the receivers before count, too"
        found = mta.ask("draining")
        assert found["connections"] == sum(one["connections"] for one in found["processes"]) == 9
        assert mta.kill("receiver")
        await until(lambda: used() == clients.alive())
        await until(lambda: clients.more(6) >= 0 and clients.alive() == 9)
        clients.close()
        await until(lambda: used() == 0)
    finally:
        clients.close()
        mta.end()
