"""Mail that plugins hand in (`api.inject`): from each process, over kills, with the checks of a listener."""

from __future__ import annotations

import asyncio
import re
import smtplib
from collections import Counter
from pathlib import Path

import pytest
from survival.rig import Mta

from zonemta_py.sink import Sink, SinkOptions

HANDS_IN = '''"""Hands in mail wherever it runs."""
import asyncio, json
from email.message import EmailMessage
from zonemta_py.plugin import *

def setup(api):
    global _api
    _api = api
    api.task("numbers", _numbers, once=True)

async def _numbers():
    for number in range(10):
        mail = EmailMessage()
        mail["Subject"] = f"number {number}"
        mail["X-Sending-Zone"] = "bulk"
        mail.set_content("Grüße\\n.\\n" * 3)
        while True:
            try:
                stored = await _api.inject(mail, ["ann@numbers.test"], key=f"number {number}")
                break
            except InjectionRefused as refused:
                assert refused.temporary, refused
                await asyncio.sleep(0.1)
        if stored.repeated:
            _api.count("repeated")
        await _api.store.set(f"number {number}", stored.id)

async def message_stored(envelope, stored):
    assert envelope.user is None  # of what it hands in itself it is not called
    await _api.inject(
        b"Subject: copy\\r\\n\\r\\n" + stored.id.encode(), ["copy@copies.test"], "ann@src.test", key=stored.id,
        campaign="copies", tenant="shop", priority=3, notes={"of": stored.id},
    )

async def queue_route(envelope, routing):
    assert envelope.sending_zone is None or envelope.user is None  # what its fields say is not heard
    if envelope.notes.get("of"):
        routing.notes["of"] = envelope.notes["of"]

async def sender_delivered(delivery, result):
    if delivery.user == "plugin:hands_in" or not delivery.sender:
        return
    await _api.inject("Subject: receipt\\n\\nIt is there", [delivery.sender], key=f"receipt {delivery.id}")
'''
STAMPS = '''"""Sees what others hand in."""
from zonemta_py.plugin import *

async def message_headers(envelope, headers):
    if envelope.user == "plugin:hands_in":
        headers.add("X-Stamp", f"{envelope.protocol} {envelope.origin}")

async def message_refused(refusal):
    print("refused", refusal.reply, flush=True)
'''


def hand_in(mta: Mta, number: int) -> None:
    with smtplib.SMTP("127.0.0.1", mta.port, timeout=30) as client:
        client.sendmail("ann@src.test", [f"bob{number}@x.test"], b"Subject: hello\r\n\r\nHi\r\n")


@pytest.mark.parametrize("queues", [1, 2])
async def test_what_is_handed_in_comes_once_over_kills(tmp_path: Path, queues: int) -> None:
    for name, text in (("hands_in", HANDS_IN), ("stamps", STAMPS)):
        (tmp_path / f"{name}.py").write_text(text)
    more = f'[plugins]\nenabled = ["{tmp_path}/hands_in.py", "{tmp_path}/stamps.py"]\n'
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, processes=1, queues=queues)
        mta.start()
        try:
            await mta.taking()
            for number in range(6):
                await asyncio.to_thread(hand_in, mta, number)
                if number in (1, 3):
                    mta.kill("all")
                    mta.dead()
                    mta.start()
                    await mta.taking()

            def came() -> Counter[str]:
                """How many messages have come; of those that a kill left in doubt, one of two."""
                texts = {(mail.message_id, mail.body.decode()) for mail in sink.messages}
                ids = {id: re.search(r"^Subject: (.*?)\r$", text, re.M)[1] for id, text in texts}  # type: ignore[index]
                return Counter(ids.values())

            wanted = {"copy": 6} | {f"number {number}": 1 for number in range(10)}
            async with asyncio.timeout(60):
                while any(came()[name] < n for name, n in wanted.items()):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.1)
            await mta.drained()
        finally:
            mta.end()
        found = came()
        hello, receipts = found.pop("hello"), found.pop("receipt")
        assert found == wanted
        assert hello == 6
        assert 2 <= receipts <= 6  # `sender_delivered` is for information: a kill may come before it, of four messages
        for mail in sink.messages:
            text = mail.body.decode()
            assert ("X-Stamp: PLUGIN 127.0.0.1" in text) == ("Subject: hello" not in text)
            assert "X-Sending-Zone" not in text


ENDLESS = '''"""Hands in mail for each message, that one too."""
from zonemta_py.plugin import *

def setup(api):
    global _api
    _api = api

async def queue_route(envelope, routing):
    await _api.inject(b"Subject: more\\r\\n\\r\\n", ["more@x.test"])
'''


async def test_a_plugin_that_never_ends_is_stopped(tmp_path: Path) -> None:
    """The client hears 451, nothing is stored, and other mail goes on."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    more = f'[plugins]\nenabled = ["{tmp_path}/endless.py"]\n'
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, processes=1)
        mta.start()
        try:
            await mta.taking()
            for number in range(2):
                with pytest.raises(smtplib.SMTPDataError) as raised:
                    await asyncio.to_thread(hand_in, mta, number)
                assert raised.value.smtp_code == 451
            assert (await asyncio.to_thread(mta.ask, "size"))["total"]["queued"] == 0
        finally:
            mta.end()
        assert not sink.messages
    assert "Plugin endless hands in 100 messages already" in mta.log.read_text()
