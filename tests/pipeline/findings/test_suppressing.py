"""People put on the list of a real node, over HTTP."""

import asyncio
import datetime
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.pipeline.findings.apply_suppressions import EVIDENCE_CHARACTERS_MAX, node_row, push
from zonemta_py.pipeline.nodes.client import NodeAccess, NodeClient
from zonemta_py.plugin.host import Host
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.web.outbound import tls_terms
from zonemta_py.web.server import serve as serve_door
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve as serve_queue

NEWS = {"kind": "hard-bounce", "reason": "gone\r\nfor good", "rule": "address-unknown", "messages": 1}
REPLY = {"at": datetime.datetime(2026, 3, 1), "id": "1", "code": 550, "enhanced": "5.1.1", "reply": "no\x00\n" * 99}


class Door:
    """A queue and its HTTP listener in a thread. `ask` puts a question to the queue."""

    def __init__(self, folder: Path) -> None:
        sections: dict[str, Any] = {"server": {"folder": folder, "hostname": "mx.test"}, "http": {"enabled": True}}
        self.config = Config.model_validate(sections | {"queue": {"reserve_bytes": 0}})
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.thread.start()
        assert self.ready.wait(60), "the door did not open"
        key = (folder / "http.token").read_text().strip()
        self.target = NodeAccess((f"http://127.0.0.1:{self.bound.getsockname()[1]}",), key, patience_s=20)

    async def _run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        self.queue = await open_queue(self.config)
        self.wire = await serve_queue(self.queue, self.config.folder)
        remote = await RemoteQueue.connect(self.config.folder, "http", reconnect=True)
        door = asyncio.ensure_future(serve_door(self.config, self.bound, remote, Host.empty(), tls_terms(self.config)))
        await asyncio.sleep(0)
        self.ready.set()
        await self.end.wait()
        remote._reconnect = False
        door.cancel()
        await asyncio.wait([door])
        self.bound.close()
        self.queue.close()

    def ask(self, question: str, **arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(self.queue.ask(question, **arguments), self.loop).result(30)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(60)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def node(door: Door) -> Iterator[NodeClient]:
    with NodeClient(door.target.nodes[0], door.target) as made:
        yield made


def row(address: str, until: int = 1, kind: str = "hard-bounce") -> dict[str, Any]:
    at = datetime.datetime(2026, 3, until)
    return NEWS | {"address": address, "since": at, "until": at, "kind": kind, "evidence": [REPLY] * 5}


def test_only_what_the_node_has_not_got_is_sent(door: Door, node: NodeClient) -> None:
    """Known people are not sent again, in whatever spelling; a second run changes nothing; the evidence is there."""
    door.ask("suppress", rows=[["ann@bücher.example", "manual", "asked", "", "op"]])
    rows = [row("Ann@bücher.example"), row("bob@example.com"), row("eve@example.com", kind="complaint")]
    done, sent = push(node, rows, {})
    assert (done.added, done.known, list(sent)) == (2, 1, ["bob@example.com", "eve@example.com"])
    assert push(node, rows, sent) == ((0, 3, 0, {}), {})
    found = door.ask("suppression", address="bob@example.com")
    assert (found["kind"], found["reason"], found["by"]) == ("hard-bounce", "gone for good", "zonemta lake")
    assert "550 5.1.1 no" in found["evidence"]


def test_each_kind_is_sent_for_itself(door: Door, node: NodeClient) -> None:
    """Who unsubscribed is out of campaigns: the bounce that stops all mail is news then. A late unsubscribe is, too."""
    for first, second in (("unsubscribe", "hard-bounce"), ("hard-bounce", "unsubscribe")):
        address = f"{first}@example.com"
        _, sent = push(node, [row(address, until=2, kind=first)], {})
        both = [row(address, until=2, kind=first), row(address, kind=second)]
        assert push(node, both, sent)[0] == (1, 1, 0, {})
        assert push(node, both, sent)[0] == (0, 2, 0, {})
        found = door.ask("suppression", address=address)
        assert (found["scope"], found["others"][0]["scope"]) == ("all", "campaigns")


def test_a_run_that_was_killed_before_its_note_doubles_nothing(node: NodeClient) -> None:
    """The rows are sent again, and the node knows them."""
    push(node, [row("bob@example.com")], {})
    assert push(node, [row("bob@example.com")], {})[0] == (0, 1, 0, {})


def test_whom_an_operator_took_off_stays_off_until_there_is_news(door: Door, node: NodeClient) -> None:
    """The same evidence does not put them back; a later refusal does."""
    _, sent = push(node, [row("bob@example.com")], {})
    door.ask("unsuppress", addresses=["bob@example.com"])
    assert push(node, [row("bob@example.com")], sent)[0] == (0, 0, 1, {})
    assert push(node, [row("bob@example.com", until=2)], sent)[0] == (1, 0, 0, {})


def test_one_row_that_is_refused_does_not_keep_back_the_others(node: NodeClient) -> None:
    """It is given back with the node's sentence, and is not noted as sent."""
    done, sent = push(node, [row("a@example.com"), row("no address@@example.com"), row("c@example.com")], {})
    assert (done.added, list(done.refused)) == (2, ["no address@@example.com"])
    assert list(sent) == ["a@example.com", "c@example.com"]


def test_rows_are_as_the_door_takes_them() -> None:
    """One line each, and short enough, however many replies there are and whatever is in them."""
    made = node_row(row("a@example.com"))
    assert made["reason"] == "gone for good"
    assert len(made["evidence"]) <= EVIDENCE_CHARACTERS_MAX
    assert made["evidence"].isprintable()
    assert '"replies": ["2026-03-01T00:00:00Z 1 550 5.1.1 no' in made["evidence"]
