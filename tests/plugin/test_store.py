"""`api.store`, as plugins meet it; what the queue makes of it is tried in tests/queue/test_plugin_store.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin import Reject, StoreUnavailable, Taking
from zonemta_py.plugin.arguments import Session
from zonemta_py.plugin.store import InMemory, SharedStore
from zonemta_py.plugin.testing import load
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.queue.api import QueueRefusal


class Hours:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def test_values_are_what_json_has() -> None:
    store = SharedStore("p1", InMemory(Hours()))
    for value in (None, 5, 1.5, "é", [1, {"a": None}], True):
        await store.set("x", value)
        assert await store.get("x", "nothing") == value
    assert await store.get("y", "nothing") == "nothing"
    assert await store.delete("x")
    assert await store.get("x") is None


@pytest.mark.parametrize("value", [object(), b"x", float("nan"), {1, 2}])
async def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="'x' cannot be kept"):
        await SharedStore("p1", InMemory(Hours())).set("x", value)


async def test_a_counter_and_its_time() -> None:
    hours = Hours()
    store, other = SharedStore("p1", ask := InMemory(hours)), SharedStore("p2", ask)
    first = await store.take("anna", 2, 3, 60)
    assert first is not None
    assert await store.take("anna", 2, 3, 60) is None
    assert await other.take("anna", 3, 3, 60)
    assert await store.taken("anna") == 2
    kept = [*first]
    assert await store.give_back(kept), "as notes bring it back"
    assert await store.taken("anna") == 0
    await store.take("anna", 1, 3, 60)
    hours.now_s += 60
    assert await store.take("anna", 3, 3, 60)
    assert not await store.give_back(Taking(*kept))
    assert await store.taken("anna") == 3


async def test_a_queue_that_cannot_be_asked() -> None:
    async def ask(*_: Any) -> Any:
        raise QueueRefusal(Reply(451, "4.3.0", "the queue is restarting"))

    with pytest.raises(StoreUnavailable, match="'x' cannot be reached: the queue is restarting"):
        await SharedStore("p1", ask).get("x")


async def test_what_a_hook_that_was_cut_off_had_taken_goes_back() -> None:
    """Whether its question had been heard or not."""
    asked: list[tuple[Any, ...]] = []
    hung = asyncio.Event()

    async def ask(*question: Any) -> Any:
        asked.append(question)
        if question[0] == "take":
            await hung.wait()
        return True

    store = SharedStore("p1", ask)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.take("anna", 2, 3, 60)
    await asyncio.sleep(0.05)
    take, undo = asked
    assert take[:3] == ("take", "p1", "anna")
    assert undo[:3] == ("undo", "p1", "anna")
    assert undo[4] == [take[3], 2]


async def test_in_setup_there_is_nobody_to_ask(make_host: Callable[..., Any]) -> None:
    setup = "def setup(api):\n    global _api\n    _api = api\n"
    host = make_host(f"{setup}async def smtp_connect(session):\n    await _api.store.get('x')\n")
    with pytest.raises(PluginFailed, match="there is no queue to ask"):
        await host.call("smtp_connect", session=Session())


QUOTA = """
from zonemta_py.plugin import PluginApi, Reject, Session

def setup(api: PluginApi) -> None:
    global _api
    _api = api

async def smtp_connect(session: Session) -> None:
    if not await _api.store.take(f"connections {session.client}", 1, 2, 60):
        raise Reject(421, "too many connections")
"""


async def test_a_plugins_own_test_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "quota.py").write_text(QUOTA)
    host = load(tmp_path / "quota.py")
    await host.call("smtp_connect", session=Session(client="192.0.2.1"))
    await host.call("smtp_connect", session=Session(client="192.0.2.1"))
    with pytest.raises(Reject, match="too many connections"):
        await host.call("smtp_connect", session=Session(client="192.0.2.1"))
    await host.call("smtp_connect", session=Session(client="192.0.2.2"))
