"""Several messages of one lease while plugins look at each: one by one, each with its own delivery and result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.delivery.picky import verdicts
from zonemta_py.delivery import pipelined
from zonemta_py.delivery import worker as leases

LOOKS = "async def sender_fetch(delivery):\n    if delivery.values == [['wrong']]:\n        raise Reject(550, 'no')\n"
"""A plugin that is called for each message."""


@pytest.mark.parametrize("plugins", [False, True])
async def test_slow_servers_end_a_series(
    plugin: Any, picky: Any, people: Any, send: Any, monkeypatch: pytest.MonkeyPatch, plugins: bool
) -> None:
    """Nobody's message is begun later than PIPELINED_S after the first's, whether or not plugins look at each."""
    monkeypatch.setattr(leases if plugins else pipelined, "PIPELINED_S", -1.0)
    server = await picky()
    (result,) = await send(people(server.port, 3), host=plugin(LOOKS) if plugins else None)
    assert verdicts(result) == ["delivered", "released", "released"]


async def test_plugins_see_each_message(
    plugin: Any, picky: Any, people: Any, send: Any, until: Any, tmp_path: Path
) -> None:
    """With a hook that is called for each, messages go one by one, each with its own delivery and result."""
    note = tmp_path / "note"
    host = plugin(
        "async def sender_delivered(delivery, result):\n"
        "    told = [one.address for one in delivery.recipients], [one.recipients for one in result.outcomes]\n"
        f"    with open({str(note)!r}, 'a') as file:\n"
        "        print(*told, delivery.values, file=file)\n"
    )
    server = await picky({"n2": "rcpt!"})
    (result,) = await send(people(server.port, 3), host=host)
    assert verdicts(result) == ["delivered", "bounced", "delivered"]
    assert server.together == 0
    await until(lambda: note.exists() and note.read_text().count("\n") == 2)
    assert note.read_text().splitlines() == ["['n1@d.example'] [[0]] [['n1']]", "['n3@d.example'] [[0]] [['n3']]"]


async def test_a_plugin_chooses_for_each(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """Whoever it lets nobody connect for is not sent to over another's connection."""
    refuses = "        raise Reject(550, 'not him')\n"
    source = "async def sender_connecting(delivery, options):\n    if delivery.values == [['n2']]:\n"
    server = await picky()
    (result,) = await send(people(server.port, 3), host=plugin(source + refuses))
    assert verdicts(result) == ["delivered", "bounced", "delivered"]
    assert server.taken == ["n1", "n3"]


async def test_what_a_plugin_changes_is_changed_for_one(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """Each message has a delivery of its own, down to what it is routed by."""
    server = await picky()
    host = plugin(
        "async def sender_fetch(delivery):\n"
        "    if delivery.routing:\n        raise Reject(550, 'not his')\n"
        "    delivery.routing['mine'] = True\n"
    )
    (result,) = await send(people(server.port, 3), host=host)
    assert verdicts(result) == ["delivered"] * 3


async def test_a_plugins_own_connection_is_for_one(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """A connected socket that it brings is not used again; the others are released."""
    server = await picky()
    host = plugin(
        "import socket\n"
        "async def sender_connect(delivery, options):\n"
        f"    options.socket = socket.create_connection(('127.0.0.1', {server.port}))\n"
        "    options.socket.setblocking(False)\n"
    )
    (result,) = await send(people(1, 3), host=host)
    assert verdicts(result) == ["delivered", "released", "released"]


async def test_one_by_one_is_one_connection_too(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """A lease was charged for one new connection: where it is used up, the others are released."""
    server = await picky()
    (result,) = await send(people(server.port, 3), host=plugin(LOOKS), messages_per_connection=1)
    assert verdicts(result) == ["delivered", "released", "released"]
    assert (server.connections, result.opened, result.kept) == (1, True, False)


async def test_a_connection_that_stays_open_is_told_of(plugin: Any, picky: Any, people: Any, send: Any) -> None:
    """Also if the last of them needed none: limits on connections count those that are open."""
    server = await picky()
    (result,) = await send(people(server.port, 0, ["n1", "wrong"]), host=plugin(LOOKS))
    assert verdicts(result) == ["delivered", "bounced"]
    assert (result.opened, result.kept) == (True, True)
