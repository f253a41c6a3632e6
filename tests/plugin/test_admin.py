"""`api.admin`: what is asked and how it is refused, who is the actor, and orders from plugins in a real server."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.queue import declared
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin import AdminRefused, AdminUnavailable, fields_page
from zonemta_py.plugin.admin import INTERNAL, OFFERED, ORDERS, PluginAdmin, acting
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.testing import running
from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queues.answers import TABLE

log = logging.getLogger("zonemta.plugin.p")


class Asked:
    """Remembers questions, and answers or raises what it is given."""

    def __init__(self, answer: Any = None) -> None:
        self.answer, self.questions = answer, list[tuple[str, dict[str, Any]]]()

    async def __call__(self, question: str, arguments: dict[str, Any]) -> Any:
        self.questions.append((str(question), arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_each_question_is_offered_or_internal() -> None:
    """What several queues take as an order is one here."""
    assert {*OFFERED, *map(str, INTERNAL)} == {*declared.ALL}
    assert {*OFFERED.values()} >= ORDERS
    assert {name for name, way in TABLE.items() if way.how == "order"} <= {*map(str, ORDERS)}
    said = fields_page.remarks()
    assert [name for name, one in OFFERED.items() if not said[one.declared.__name__]] == []


@pytest.mark.parametrize(
    ("question", "arguments", "sentence"),
    [
        ("explian", {}, "there is no question 'explian'; did you mean 'explain'?"),
        ("xyzzy", {}, "there is no question 'xyzzy'; there are accounts, adopt"),
        ("stable", {}, "there is no question 'stable'"),
        ("take", {}, "there is no question 'take'"),
        (5, {}, "there is no question '5'"),
        ("explain", {}, "the question 'explain' needs 'what'; give it"),
        ("explain", {"what": 5}, "'what' is a whole number; give a text"),
        ("explain", {"what": "x", "how": 1}, "the question 'explain' takes no 'how'"),
        ("suppress", {"rows": "x"}, "'rows' is a text; give a list"),
    ],
)
async def test_what_is_no_question(question: Any, arguments: dict[str, Any], sentence: str) -> None:
    asked = Asked()
    with pytest.raises(AdminRefused) as raised:
        await PluginAdmin("p", log, asked).ask(question, **arguments)
    assert sentence in str(raised.value)
    assert not asked.questions


@pytest.mark.parametrize(
    ("failure", "kind", "sentence"),
    [
        (Refused("there is no message 'x'"), AdminRefused, "there is no message 'x'"),
        (ValueError("it is wrong"), AdminRefused, "it is wrong"),
        (QueueRefusal(Reply(451, "4.3.0", "it is away")), AdminUnavailable, "the queue cannot be asked: it is away"),
        (QueueFault("it failed"), AdminUnavailable, "the queue cannot be asked: it failed"),
    ],
)
async def test_a_refusal_is_a_plain_exception(failure: Exception, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as raised:
        await PluginAdmin("p", log, Asked(failure)).ask("show", id="x")
    assert str(raised.value) == sentence


async def test_an_order_has_the_plugin_as_its_actor(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the plugin says; a question has none."""
    asked = Asked(1)
    admin = PluginAdmin("p", log, asked)
    with caplog.at_level(logging.INFO):
        await admin.ask("task_start", id="5", by="root")
        await admin.ask("stop", kind="zone", name="z", cause="too much")
        await admin.ask("campaign-pause", name="c")
        await admin.ask(
            "suppress", rows=[["a@b.test", "manual"], ["c@d.test", "manual", "r", "", "root", "", 0, "all"]]
        )
        await admin.ask("release", id="m1")
        token = acting.set("key ops")
        await admin.ask("lift", kind="zone", name="z")
        await admin.ask("forget", address="a@b.test")
        acting.reset(token)
        await admin.ask("explain", what="x")
    assert asked.questions == [
        ("task-start", {"id": "5", "by": "plugin p"}),
        ("stop", {"kind": "zone", "name": "z", "cause": "too much (plugin p)"}),
        ("campaign-pause", {"name": "c", "cause": "plugin p"}),
        ("suppress", {"rows": [["a@b.test", "manual", "", "", "plugin p"],
                               ["c@d.test", "manual", "r", "", "plugin p", "", 0, "all"]]}),
        ("release", {"id": "m1"}),
        ("lift", {"kind": "zone", "name": "z"}),
        ("forget", {"address": "a@b.test", "by": "plugin p for key ops"}),
        ("explain", {"what": "x"}),
    ]  # fmt: skip
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 7
    assert said[4] == "plugin p orders release id='m1'"
    assert said[5].startswith("plugin p for key ops orders lift kind='zone'")


async def test_in_setup_there_is_nobody_to_ask() -> None:
    with pytest.raises(RuntimeError, match=r"there is no queue to ask; use api.admin in a process of the server"):
        await PluginApi("p").admin.ask("size")


PLUGIN = """
import asyncio
from zonemta_py.plugin import AdminRefused, Hold

def setup(api):
    global _api
    _api = api

async def start(api, process):
    if process.role in ("queue", "receiver", "sender"):
        total = (await api.admin.ask("size"))["total"]
        api.log.info("%s sees %s messages", process, total["messages"])
    api.task("watch", _watch, once=True)

async def queue_route(envelope, routing):
    if routing.recipient.startswith("held"):
        raise Hold("by the plugin")

async def smtp_rcpt_to(address, session):
    try:
        await _api.admin.ask("show", id="0" * 16)
    except AdminRefused as refused:
        _api.log.info("refused: %s", refused)
    if address.address.startswith("asks"):
        await _api.admin.ask("nothing")

async def _watch():
    while True:
        rows = (await _api.admin.ask("list", state=["held"]))["rows"]
        if rows:
            task = await _api.admin.ask("task", verb="release", where={"recipient": rows[0]["recipient"]}, cause="seen")
            _api.log.info("task %s by %s", task["id"], task["by"])
            await _api.admin.ask("suppress", rows=[["bob@example.com", "manual"]])
            return
        await asyncio.sleep(0.1)
"""


@pytest.mark.parametrize("queues", [1, 2])
async def test_orders_of_a_plugin_in_a_real_server(tmp_path: Path, queues: int) -> None:
    """From hooks, tasks and each process; with one queue and with several."""
    (tmp_path / "desk.py").write_text(PLUGIN)
    async with running(tmp_path / "desk.py", config=f"[server]\nqueues = {queues}\n") as mta:
        for process in ("queue", "receiver-1", "sender-1"):
            await mta.logged(f"{process} sees 0 messages")
        assert (await mta.send("held@example.com")).code == 250
        assert (await mta.arrived("held@example.com")).body == b"Hello!\r\n"
        await mta.logged("refused: there is no message '0000000000000000'")
        await mta.logged("by plugin desk")
        assert "plugin desk" in await mta.zonemta("task", "list")
        await mta.logged("plugin desk orders suppress")
        assert "plugin desk" in await mta.zonemta("suppression", "list", "--json")
        assert (await mta.send("asks@example.com")).code == 451
        await mta.logged("raised AdminRefused: there is no question 'nothing'")
