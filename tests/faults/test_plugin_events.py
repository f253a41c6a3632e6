"""Events for a plugin (`event`): every one arrives, in order, over outages of what it sends to, and kills."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from survival.client import Client
from survival.ledger import Ledger
from survival.rig import RULES, Mta
from survival.webhook import WebhookReceiver, expected, judged

from tests.faults.test_reload import zonemta
from zonemta_py.disk import identity
from zonemta_py.sink import Sink, SinkOptions

LETTERS = 150
PLUGIN = '''"""Sends events to a webhook that is down now and then."""
import asyncio, json, os, urllib.error, urllib.request
from pathlib import Path
from zonemta_py.plugin import *

HERE = Path(__file__).parent

async def start(api, process):
    with (HERE / "started").open("a") as file:
        print(process.role, file=file)

async def event(batch):
    if (HERE / "raises").exists():
        raise RuntimeError("what it sends to is broken")
    for one in batch:
        if one.type == "bounced":
            assert one.data["recipient"] and one.message == one.data["message"]
    body = b"[" + b",".join(one.body for one in batch) + b"]"
    try:
        await asyncio.to_thread(_post, body)
    except urllib.error.HTTPError as error:
        raise Reject(550, f"HTTP {error.code}")
    except OSError as error:
        raise Defer(0.1, f"no connection")

def _post(body):
    port = int((HERE / "port").read_text())
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", body), timeout=5).close()
'''
SINK = """
[[event_sinks]]
name = "hook"
kind = "plugin"
plugin = "tells"
retry_s = 0.1
retry_max_s = 0.3
memory_events = 100
batch_events = 50
"""


@pytest.mark.parametrize("queues", [1, 2])
async def test_every_event_arrives(tmp_path: Path, queues: int) -> None:
    (tmp_path / "tells.py").write_text(PLUGIN)
    receiver = WebhookReceiver()
    await receiver.start()
    (tmp_path / "port").write_text(str(receiver.port))
    more = f'{SINK}[plugins]\nenabled = ["{tmp_path}/tells.py"]\n'
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), rules=RULES)) as sink:
        mta = Mta(tmp_path / "queue", sink.ports[0], home=tmp_path, more=more, queues=queues)
        mta.start()
        try:
            await mta.taking()
            handing = asyncio.ensure_future(Client(mta.port, Ledger()).hand_in(range(LETTERS)))
            for role in ("events", "queue", "events", "all", "sender"):
                await asyncio.sleep(0.3)
                await receiver.stop()
                await asyncio.sleep(0.3)
                mta.kill(role)
                if role == "all":
                    mta.dead()
                    mta.start()
                await receiver.start()
            await handing
            (tmp_path / "raises").touch()  # a fault of the plugin's loses nothing, either
            await mta.drained()
            (tmp_path / "raises").unlink()
            folders = [tmp_path / "queue"] + [tmp_path / "queue" / "queues" / str(one) for one in range(1, queues)]

            def figures() -> Counter[str]:
                found = Counter[str]()
                for folder in folders:  # each has an order of its own
                    source = identity.name_of(folder)
                    found.update(judged(expected(folder), [one for one in receiver.arrived if source in one.id]))
                return found

            for _ in range(200):
                if not figures()["missing"]:
                    break
                await asyncio.sleep(0.5)
            found = figures()
            assert (found["missing"], found["unexpected"], found["disorder"]) == (0, 0, 0), found

            receiver.refuses = lambda row: True
            await asyncio.to_thread(self_hand_in, mta)
            rows = await dead(mta)
            assert rows
            assert "HTTP 422" in json.dumps(rows)
            receiver.refuses = lambda row: False
            before = len(receiver.arrived)
            status, said = await asyncio.to_thread(zonemta, mta, "events", "dead", "hook", "--replay")
            assert status == 0, said
            assert len(receiver.arrived) > before
        finally:
            mta.end()
            await receiver.stop()
    roles = (tmp_path / "started").read_text().split()
    assert {"events", "replay", "queue", "receiver", "sender"} <= {*roles}


def self_hand_in(mta: Mta) -> None:
    from tests.faults.test_notes import hand_in

    hand_in(mta, "ann@x.test")


async def dead(mta: Mta) -> list[object]:
    for _ in range(300):
        status, said = await asyncio.to_thread(zonemta, mta, "events", "dead", "hook", "--json")
        rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        if status == 0 and (rows or ("[" in said and json.loads(said))):
            return rows or json.loads(said)
        await asyncio.sleep(0.1)
    raise AssertionError(said)


async def test_what_it_takes_is_looked_at_before(tmp_path: Path) -> None:
    """A sink whose plugin is not there, or has no `event`, is refused with a sentence."""
    (tmp_path / "tells.py").write_text("async def smtp_connect(session): ...\n")
    for enabled, sentence in (
        ("[]", "event_sinks[hook].plugin: plugin 'tells' is not in plugins.enabled"),
        (f'["{tmp_path}/tells.py"]', "event_sinks[hook].plugin: plugin 'tells' has no `async def event(batch)`"),
    ):
        mta = Mta(tmp_path / "queue", 9, home=tmp_path, more=f"{SINK}[plugins]\nenabled = {enabled}\n")
        mta.start()
        with pytest.raises(AssertionError, match=re.escape(sentence)):
            await mta.taking()
        mta.end()
