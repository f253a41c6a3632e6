"""Bundled plugins that need nobody else, in the real MTA: what they decide is what a client and the next server see."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

CONFIG = """
[plugins]
enabled = ["loop_breaker", "attachment_policy", "default_headers"]
[plugins.options.loop_breaker]
secret = "very secret"
passes = 1
[[plugins.options.attachment_policy.rules]]
extensions = ["exe"]
[[plugins.options.attachment_policy.rules]]
types = ["application/pdf"]
action = "zone"
zone = "bulk"
[[plugins.options.default_headers.fields]]
name = "X-Originating-IP"
value = "[{origin}]"
[[plugins.options.default_headers.fields]]
name = "X-Zone"
value = "{zone}"
"""


@pytest.fixture(scope="module")
def running(start_mta: Any) -> Any:
    return start_mta(CONFIG)


def letter(name: str = "") -> bytes:
    made = EmailMessage()
    made["Subject"], made["Message-ID"] = "x", "<1@a.test>"
    made.set_content("text\n")
    if name:
        kind = "pdf" if name.endswith("pdf") else "octet-stream"
        made.add_attachment(b"content", "application", kind, filename=name)
    return made.as_bytes().replace(b"\n", b"\r\n")


def test_what_goes_out(running: Any) -> None:
    assert running.send(letter(), "bob@one.test").startswith("250")
    head, _, body = running.came("bob@one.test").body.partition(b"\r\n\r\n")
    assert b"\r\nX-Originating-IP: [127.0.0.1]\r\n" in head
    assert b"\r\nX-Zone: default" in head
    assert body.rstrip() == b"text"


def test_what_comes_back_is_refused(running: Any) -> None:
    """As it went out, it is in a loop."""
    assert running.send(letter(), "carl@one.test").startswith("250")
    assert running.send(running.came("carl@one.test").body, "carl@one.test").startswith("554 5.4.6 The message is in a")


def test_one_of_two_who_has_had_it(running: Any) -> None:
    assert running.send(b"Delivered-To: dora@one.test\r\n" + letter(), "dora@one.test").startswith("554 5.4.6")
    assert running.send(b"Delivered-To: eve@one.test\r\n" + letter(), "eve@one.test", "fay@one.test").startswith("250")
    assert running.came("fay@one.test").recipients == ["fay@one.test"]
    notice = running.came("ann@a.test").body
    assert b"eve@one.test" in notice
    assert b"a Delivered-To field names this recipient" in notice.replace(b"\r\n", b" ")


def test_what_a_hook_leaves_with_the_message_is_there_when_it_is_sent(start_mta: Any, tmp_path: Path) -> None:
    """And in the queue's hooks."""
    (tmp_path / "noting.py").write_text(
        "async def message_analyze(envelope, stream):\n"
        "    envelope.notes['bytes'] = sum([len(block) async for block in stream])\n"
        "async def sender_headers(delivery, headers):\n"
        "    headers.add('X-Bytes', str(delivery.notes['bytes']))\n"
        "async def queue_release(zone, delivery):\n"
        "    assert delivery.notes['bytes']\n"
    )
    running = start_mta(f'[plugins]\nenabled = ["{tmp_path}/noting.py"]\n')
    assert running.send(letter(), "ida@one.test").startswith("250")
    assert b"\r\nX-Bytes: " in running.came("ida@one.test").body
    asyncio.run(running.mta.drained())
    assert "plugin noting" not in running.mta.log_tail()


def test_attachments(running: Any) -> None:
    assert running.send(letter("a.exe"), "gus@one.test").startswith("550 5.7.1 Attachments of this kind")
    assert running.send(letter("a.pdf"), "hal@one.test").startswith("250")
    assert b"\r\nX-Zone: bulk" in running.came("hal@one.test").body
