"""What other processes count reaches the queue, once, however often the queue or they are away."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.metrics import report
from zonemta_py.metrics.meter import CountTable
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.numbers import SETS_MAX
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.wire import reporting
from zonemta_py.wire.channel import GONE
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

PLUGIN = """
def setup(api, options):
    global _api
    _api = api
async def message_queue(envelope):
    _api.count("seen", label=envelope.sender)
"""


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountTable]:
    """The counts of a process that has just begun, and tells of them often."""
    fresh = CountTable()
    monkeypatch.setattr(report, "EVERY_S", 0.02)
    for name, value in (("LOCAL", fresh), ("_totals", []), ("_gauges", []), ("_running", [])):
        monkeypatch.setattr(report, name, value)
    yield fresh
    for task in report._running:
        task.cancel()


async def counted(home: Any, name: str, labels: list[str], n: float) -> None:
    """Waits until the queue has it."""
    async with asyncio.timeout(60):
        while [labels, n] not in (await home.queue.ask("metrics"))["counters"].get(name, []):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_counts_come_over_the_wire_and_are_added_up(house: Any, local: CountTable) -> None:
    """Also when the queue's process is another one meanwhile: it begins with what it had not been told."""
    home = await house()
    server = await serve(home.queue, home.config.folder)
    remote = RemoteQueue.lasting(home.config.folder, "receiver")
    reporting.begin("receiver", remote, lambda: [("zonemta_plugin_calls_total", ("p", "h"), 3)])
    report.measure(lambda: [("zonemta_smtp_sessions_open", ("smtp",), 7)])
    local.add("zonemta_smtp_sessions_total", ("smtp",), 5)
    await counted(home, "zonemta_smtp_sessions_total", ["smtp"], 5)
    await counted(home, "zonemta_plugin_calls_total", ["p", "h"], 3)
    assert (await home.queue.ask("metrics"))["gauges"]["zonemta_smtp_sessions_open"] == [[["smtp"], 7]]
    local.add("zonemta_smtp_sessions_total", ("smtp",), 2)
    await counted(home, "zonemta_smtp_sessions_total", ["smtp"], 7)
    remote._reconnect = False
    server.close()


async def test_what_the_queue_did_not_hear_is_told_again(house: Any, local: CountTable) -> None:
    """Refused reports lose nothing, and count nothing twice."""
    home, away = await house(), True

    async def tell(**counted: Any) -> None:
        if away:
            raise QueueRefusal(GONE)
        await home.queue.ask(questions.report, **counted)

    report.start("sender", tell, QueueRefusal)
    local.add("zonemta_connections_opened_total", ("default",), 4)
    await asyncio.sleep(0.1)
    local.add("zonemta_connections_opened_total", ("default",), 1)
    away = False
    await counted(home, "zonemta_connections_opened_total", ["default"], 5)
    await asyncio.sleep(0.1)
    await counted(home, "zonemta_connections_opened_total", ["default"], 5)


async def test_what_a_plugin_counts_is_there(house: Any, local: CountTable, tmp_path: Path) -> None:
    """By its label; calls of its hooks as well."""
    home, path = await house(), tmp_path / "counting.py"
    path.write_text(PLUGIN)
    host = Host.load(Plugins(enabled=[str(path)]))
    report.total(host.totals)
    report.start("receiver", partial(home.queue.ask, questions.report), QueueRefusal)
    for sender in ("a", "a", "b"):
        (call,) = host.calls("message_queue")
        await call.run({"envelope": Envelope(sender, []), "info": None})
    await counted(home, "zonemta_plugin_count_total", ["counting", "seen", "a"], 2)
    await counted(home, "zonemta_plugin_count_total", ["counting", "seen", "b"], 1)
    await counted(home, "zonemta_plugin_calls_total", ["counting", "message_queue"], 3)


def test_labels_of_a_plugin_are_bounded() -> None:
    """The counter as a whole stays right."""
    api = PluginApi("p")
    for number in range(2 * SETS_MAX):
        api.count("seen", label=str(number))
    assert sum(api.numbers.counted.values()) == 2 * SETS_MAX
    assert len(api.numbers.counted) == SETS_MAX + 1
    assert api.numbers.counted["seen", "other"] == SETS_MAX
