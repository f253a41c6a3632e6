"""Whatever a plugin decides or does wrong carries its name, wherever an operator looks: journal and trace, events, log,
explain, status and metrics; and beside it stands what the server itself has said."""

from __future__ import annotations

import asyncio
import json
import smtplib
import time
from pathlib import Path

import pytest
from survival.rig import Mta

from tests.faults.test_reload import zonemta
from zonemta_py.sink import Sink, SinkOptions

PLUGIN = '''"""Decides, and fails."""
from zonemta_py.plugin import *


async def smtp_rcpt_to(address, session):
    if address.address.startswith("refused"):
        raise Reject(550, "Not here")


async def message_queue(envelope, info):
    if envelope.sender.startswith("broken"):
        raise KeyError("a fault")


async def queue_route(envelope, routing):
    if routing.recipient.startswith("later"):
        raise Defer(3600, "Not today")
    if routing.recipient.startswith("asked"):
        raise Hold("it is asked about")
    if routing.recipient.startswith("never"):
        raise Reject(550, "Not to them")
    if routing.recipient.startswith("nowhere"):
        routing.zone = "no-such-zone"


async def sender_response_error(delivery, connection, reply):
    if "full" in reply.text:
        raise Defer(7200, "It may be emptied")


async def sender_fetch(delivery):
    if delivery.recipients[0].address.startswith("held"):
        raise Hold("somebody is to look at it")
'''


def hand_in(mta: Mta, to: str | list[str], sender: str = "ann@src.test") -> None:
    with smtplib.SMTP("127.0.0.1", mta.port, timeout=30) as client:
        client.sendmail(sender, to, b"Subject: hello\r\n\r\nHi\r\n")


async def test_a_plugin_is_named_wherever_one_looks(tmp_path: Path) -> None:
    plugin, events = tmp_path / "decides.py", tmp_path / "events.jsonl"
    plugin.write_text(PLUGIN)
    more = f'[plugins]\nenabled = ["{plugin}"]\nunknown_zone = "hold"\n'
    more += f'[[event_sinks]]\nname = "all"\nkind = "file"\npath = "{events}"\n'
    options = SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=("rcpt:/^full/ 550 5.2.2 mailbox full",))
    async with Sink(options) as sink:
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, processes=1)
        mta.start()
        try:
            await mta.taking()
            for to in ("full@x.test", "held@x.test", "later@x.test", "asked@x.test", "nowhere@x.test"):
                await asyncio.to_thread(hand_in, mta, to)
            await asyncio.to_thread(hand_in, mta, ["never@x.test", "other@x.test"], "")
            with pytest.raises(smtplib.SMTPRecipientsRefused):
                await asyncio.to_thread(hand_in, mta, "refused@x.test")
            for _ in range(3):
                with pytest.raises(smtplib.SMTPDataError):
                    await asyncio.to_thread(hand_in, mta, "x@x.test", "broken@src.test")

            async def said(*arguments: str) -> str:
                return str((await asyncio.to_thread(zonemta, mta, *arguments))[1])

            async def until(text: str, *arguments: str) -> str:
                end = time.monotonic() + 60
                while text not in (found := await said(*arguments)):
                    assert time.monotonic() < end, found
                    await asyncio.sleep(0.2)
                return found

            await until("It may be emptied", "trace", "full@x.test")
            rows = json.loads(await said("trace", "full@x.test", "--json"))["rows"]
            [row] = [row for row in rows if row["what"] == "deferred"]
            named = {"plugin": "decides", "hook": "sender_response_error", "server_reply": "550 5.2.2 mailbox full"}
            assert row.items() >= named.items()
            assert "server reply 550 5.2.2 mailbox full" in " ".join((await said("trace", "full@x.test")).split())
            await until("Not to them", "trace", "never@x.test")
            rows = json.loads(await said("trace", "never@x.test", "--json"))["rows"]
            [row] = [row for row in rows if row["what"] == "bounced"]
            assert row.items() >= {"plugin": "decides", "hook": "queue_route", "server_reply": ""}.items()
            while not events.exists() or "server_reply" not in events.read_text():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
            found = [json.loads(line) for line in events.read_text().splitlines()]
            [data] = [one["data"] for one in found if one["data"].get("plugin") and one["type"].endswith("deferred")]
            assert data.items() >= named.items()
            assert "plugin=decides hook=sender_response_error said=" in mta.log.read_text()
            for who, hook in (
                ("full", "sender_response_error"), ("held", "sender_fetch"), ("later", "queue_route"),
                ("asked", "queue_route"), ("nowhere", "queue_route"),
            ):  # fmt: skip
                assert f"(plugin decides, hook {hook})" in await said("explain", f"{who}@x.test", "--json"), who
            assert "plugin decides, hook smtp_rcpt_to: <refused@x.test>" in mta.log.read_text()
            assert "550 5.7.1 Not here" in mta.log.read_text()
            assert "hook message_queue" in mta.log.read_text()
            assert "plugin decides" in await until("fails: 3 times within 5 minutes", "status")
            metrics = await asyncio.to_thread(mta.ask, "metrics")
            assert metrics["gauges"]["zonemta_plugin_recent_failures"] == [[["decides"], 3]]
            verdicts = {labels[1]: n for labels, n in metrics["counters"]["zonemta_plugin_verdicts_total"]}
            assert verdicts.items() >= {"sender_response_error": 1, "smtp_rcpt_to": 1, "queue_route": 4}.items()
            [row] = [
                row
                for row in json.loads(await said("trace", "asked@x.test", "--json"))["rows"]
                if row["what"] == "held"
            ]
            assert row.items() >= {"plugin": "decides", "hook": "queue_route"}.items()
            assert sum(one["type"].endswith("held") for one in found) == 3
            total = (await asyncio.to_thread(mta.ask, "size"))["total"]
            assert (total["held"], total["deferred"], total["queued"]) == (3, 2, 0)
            mta.kill("all")
            mta.dead()
            mta.start()
            await mta.taking()
            assert "(plugin decides, hook sender_fetch)" in await said("explain", "held@x.test", "--json")
            assert (await asyncio.to_thread(mta.ask, "size"))["total"]["held"] == 3
            assert [one.recipients for one in sink.messages] == [["other@x.test"]]
            for who in ("asked", "nowhere"):
                assert "1 recipient" in await said("queue", "release", "--recipient", f"{who}@x.test"), who
            while len(sink.messages) < 3:  # noqa: ASYNC110 - the sink tells nobody
                await asyncio.sleep(0.1)
            assert sorted(one.recipients[0] for one in sink.messages) == [
                "asked@x.test", "nowhere@x.test", "other@x.test",
            ]  # fmt: skip
        finally:
            mta.end()
    assert await mta.problems() == []
