"""An MX host that a reroute passes over: not connected to, nor over a connection that other mail has left open."""

from __future__ import annotations

from typing import Any

from zonemta_py.queue.api import DELIVERED

BOTH = [["mx1.test", ["127.0.0.1"]], ["MX2.test", ["127.0.0.1"]]]


async def test_it_is_passed_over_unless_there_is_no_other(scripted: Any, letter: Any, deliver: Any) -> None:
    server = await scripted()
    way = {"host": "", "site": "mx1.test"}
    letters = [
        letter(server.port, hosts=BOTH, **way),
        letter(server.port, hosts=BOTH, skip="mx1.test", **way),
        letter(server.port, hosts=BOTH, skip="mx2.test", **way),
        letter(server.port, hosts=BOTH[1:], skip="mx2.test", host="", site="alone"),
    ]
    results = await deliver(*letters, idle_s=30, port=server.port, allow_private=True)
    assert [one.outcomes[0].verdict for one in results] == [DELIVERED] * 4
    assert [one.remote.partition("[")[0] for one in results] == ["mx1.test", "MX2.test", "mx1.test", "MX2.test"]
