"""The body's hash, for signatures to come, is made while the message arrives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mail.hashes import body_hash
from zonemta_py.config import Plugins
from zonemta_py.mail.dkim.canonical import Form
from zonemta_py.plugin.host import Host

HEAD = b"From: a@b.test\r\nDate: x\r\nMessage-ID: <1@b.test>\r\n"
BODIES = {
    "small": b"\r\nhello  there \t\r\n\r\n\r\n",
    "large": b"\r\n" + b"line  of text \r\n" * 30_000,
    "bare line feeds": b"\r\none \ntwo\n\n",
    "dots": b"\r\n.one\r\n..two\r\n",
    "none": b"",
    "empty": b"\r\n",
    "no empty line": b"this is no field\r\n",
}


def sections(form: str, state: str = "active") -> dict[str, Any]:
    key = {"domain": "b.test", "selector": "s", "key": "/nowhere", "state": state}
    return {"dkim": [key], "signing": {"body_canonicalization": form}}


@pytest.mark.parametrize("form", ["relaxed", "simple"])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("hooked", [False, True])
def test_hash_of_what_is_stored(name: str, form: Form, hooked: bool, open_door: Any, tmp_path: Path) -> None:
    """With line ends and dots as they are in the queue; the same when plugins see the message on its way."""
    host = Host.empty()
    if hooked:
        (tmp_path / "see.py").write_text(
            "async def message_headers(envelope, headers):\n    headers.add('X-Seen', 'yes')\n"
        )
        host = Host.load(Plugins(enabled=[str(tmp_path / "see.py")]))
    door = open_door(host=host, sections=sections(form))
    with door.greeted() as wire:
        assert wire.mail((HEAD + BODIES[name]).replace(b"\r\n.", b"\r\n..")).startswith("250")
    [(envelope, stored)] = door.submission.kept
    assert envelope.hashes == {form: body_hash(form, stored.partition(b"\r\n\r\n")[2])}


@pytest.mark.parametrize("state", ["published", "retired"])
def test_nothing_is_hashed_for_nobody(state: str, open_door: Any) -> None:
    """Keys that do not sign cost nothing."""
    door = open_door(sections=sections("relaxed", state))
    with door.greeted() as wire:
        wire.mail(HEAD + BODIES["small"])
    assert door.submission.kept[0][0].hashes == {}
