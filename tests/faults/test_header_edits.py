"""A header section that a plugin changes once it has seen the body: sent, shown and quoted so, large or small."""

from __future__ import annotations

import asyncio
import smtplib
from pathlib import Path
from typing import Any

import pytest
from survival.rig import Mta

from zonemta_py.cli.queue.commands import _envelope
from zonemta_py.mail import edits
from zonemta_py.mail.headers import Headers
from zonemta_py.sink import Sink, SinkOptions

PLUGIN = '''"""Counts what is in the body, and says so in the header."""
from zonemta_py.plugin import *


async def message_store(envelope, stream):
    envelope.scratch["bytes"] = sum([len(block) async for block in stream])


async def message_queue(envelope, info):
    headers = info.headers
    headers.replace("Subject", f"[{envelope.scratch['bytes']}] {headers.get('Subject')}")
    headers.remove("X-Secret")
    headers.prepend("X-Top", "first")
    headers.add("X-Bytes", str(envelope.scratch["bytes"]))
    assert "too-much" not in headers.get("Subject") or headers.add("X-Much", "x " * 40_000) is None
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [b"A: 1"]),
        ([b"A: 1", b"B: 2", b"C: 3"], [b"B: 2"]),
        ([b"A: 1", b"B: 2"], [b"X: 0", b"A: 1", b"B: 3", b"C:\r\n folded"]),
        ([b"A: 1", b"A: 1", b"A: 1"], [b"A: 1", b"A: 1"]),
    ],
)
def test_what_is_applied_makes_one_of_the_other(before: list[bytes], after: list[bytes]) -> None:
    made = edits.between(before, after)
    stored = Headers([b"Received: by us", *before]).build() + b"\r\nbody\r\n\r\nmore"
    assert edits.applied(stored, made) == Headers([b"Received: by us", *after]).build() + b"\r\nbody\r\n\r\nmore"
    assert edits.between(before, before) == []
    assert edits.applied(b"A: 1\r\nB", made) == b"A: 1\r\nB", "its end has not come yet"


async def test_it_is_so_wherever_the_message_is(tmp_path: Path) -> None:
    plugin = tmp_path / "counts.py"
    plugin.write_text(PLUGIN)
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=("rcpt:/^gone/ 550 5.1.1 no",))) as sink:
        mta = Mta(
            tmp_path / "queue", sink.port, home=tmp_path, more=f'[plugins]\nenabled = ["{plugin}"]\n', processes=1
        )
        mta.start()
        try:
            await mta.taking()
            await asyncio.to_thread(mta.ask, "stop", kind="domain", name="later.test")

            def hand_in(to: str, subject: str, lines: int) -> None:
                text = f"From: ann@src.test\r\nSubject: {subject}\r\nX-Secret: s\r\n\r\n" + "hello, world\r\n" * lines
                with smtplib.SMTP("127.0.0.1", mta.port, timeout=60) as client:
                    client.sendmail("ann@src.test", [to], text)

            for to, lines in (("small@x.test", 3), ("large@x.test", 60_000), ("gone@x.test", 2), ("w@later.test", 9)):
                await asyncio.to_thread(hand_in, to, "hi", lines)
            with pytest.raises(smtplib.SMTPDataError) as refused:
                await asyncio.to_thread(hand_in, "x@x.test", "too-much", 1)
            assert refused.value.smtp_code == 451
            assert "hook message_queue: puts 8" in mta.log.read_text()

            def arrived(who: str) -> Any:
                return next((one for one in sink.messages if one.recipients == [who]), None)

            for who in ("small@x.test", "large@x.test", "ann@src.test"):
                while arrived(who) is None:  # noqa: ASYNC110 - the sink tells nobody
                    await asyncio.sleep(0.05)
            for who, lines in (("small@x.test", 3), ("large@x.test", 60_000)):
                body = arrived(who).body
                headers = Headers.parse(body)
                assert headers.get("Subject") == f"[{14 * lines}] hi"
                assert (headers.get("X-Bytes"), headers.get("X-Top")) == (str(14 * lines), "first")
                assert "X-Secret" not in headers
                assert body.endswith(b"hello, world\r\n" * lines)
                assert body.count(b"hello, world\r\n") == lines
            notice = arrived("ann@src.test").body
            assert b"Subject: [28] hi" in notice
            assert b"X-Secret" not in notice
            [row] = (await asyncio.to_thread(mta.ask, "list"))["rows"]
            shown = (await asyncio.to_thread(mta.ask, "content", id=row["id"]))["data"]
            assert Headers.parse(shown).get("Subject") == "[126] hi"
            assert shown.endswith(b"hello, world\r\n" * 9)
            envelope = (await asyncio.to_thread(mta.ask, "show", id=row["id"]))["envelope"]
            assert envelope["edits"], "programs see them"
            assert "edits" not in dict(_envelope(envelope)), "people see the header section that they make"
        finally:
            mta.end()
    assert await mta.problems() == []
