"""What a plugin drops at routing, as operators see it: story, log, metrics, status, events, and over a kill."""

from __future__ import annotations

import asyncio
import json
import smtplib
from collections import Counter
from pathlib import Path
from typing import Any

from survival.rig import Mta

from tests.faults.test_reload import zonemta
from zonemta_py.sink import Sink, SinkOptions

PLUGIN = '''"""Drops who is not to get mail."""
from zonemta_py.plugin import Drop


async def queue_route(envelope, routing):
    if routing.recipient.startswith("drop"):
        raise Drop("not before spring")
'''
WHY = "dropped: not before spring (plugin dropping, hook queue_route)"


def hand_in(mta: Mta, *to: str) -> str:
    """The message's id, as its client hears it."""
    with smtplib.SMTP("127.0.0.1", mta.port, timeout=30) as client:
        client.ehlo()
        client.mail("ann@src.test")
        for address in to:
            assert client.rcpt(address)[0] == 250
        code, said = client.data(b"Subject: hello\r\n\r\nHi\r\n")
    assert code == 250
    return said.decode().split()[-1]


def told(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_what_is_dropped_is_accounted_for(tmp_path: Path) -> None:
    plugin, file = tmp_path / "dropping.py", tmp_path / "events.jsonl"
    plugin.write_text(PLUGIN)
    more = f'[plugins]\nenabled = ["{plugin}"]\n[log]\nmail = true\n'
    more += f'[[event_sinks]]\nname = "all"\nkind = "file"\npath = "{file}"\n'
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, processes=1)
        mta.start()
        try:
            await mta.taking()
            mixed = await asyncio.to_thread(hand_in, mta, "ok@x.test", "drop1@x.test")
            whole = await asyncio.to_thread(hand_in, mta, "drop2@x.test", "drop3@y.test")
            await mta.drained()
            counters = (await asyncio.to_thread(mta.ask, "metrics"))["counters"]
            assert sum(n for _, n in counters["zonemta_recipients_accepted_total"]) == 4
            removed = {tuple(labels): n for labels, n in counters["zonemta_recipients_removed_total"] if n}
            assert removed == {("default", "dropped"): 3}
            _, said = await asyncio.to_thread(zonemta, mta, "trace", whole)
            assert "removed" in said
            assert "not before spring (plugin dropping, hook queue_route)" in " ".join(said.split())
            _, said = await asyncio.to_thread(zonemta, mta, "explain", whole)
            assert f"`zonemta trace {whole}`" in said
            mta.kill("all")
            mta.dead()
            assert mta.fsck() == ""
            mta.start()
            await mta.taking()
            while sum(one["type"] == "zonemta.finished" for one in told(file)) < 2:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            found = [one["data"] | {"type": one["type"]} for one in told(file)]
            gone = [one for one in found if one["type"] == "zonemta.removed"]
            assert {(one["message"], one["recipient"]) for one in gone} == {
                (mixed, "drop1@x.test"), (whole, "drop2@x.test"), (whole, "drop3@y.test")
            }  # fmt: skip
            assert {(one["plugin"], one["hook"], one["reason"]) for one in gone} == {("dropping", "queue_route", WHY)}
            assert [one["recipient"] for one in found if one["type"] == "zonemta.delivered"] == ["ok@x.test"]
            assert Counter(one["message"] for one in found if one["type"] == "zonemta.queued") == {mixed: 2, whole: 2}
        finally:
            mta.end()
    lines = [line for line in mta.log.read_text().splitlines() if WHY in line and " removed" in line]
    assert len(lines) == 2, "a kill tells nobody again"
