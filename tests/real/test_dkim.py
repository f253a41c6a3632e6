"""Messages that went through the whole MTA, verified by dkimpy and by Debian's opendkim."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import smtplib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dkim as dkimpy
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from survival.letters import letter
from survival.rig import Mta

from zonemta_py.mail.dkim.signature import Key
from zonemta_py.sink import Sink, SinkOptions

KEYS = [("letters.test", "r"), ("letters.test", "e"), ("esp.test", "esp")]
LETTERS = 25
SECRET = "0123456789abcdef"
_CONFIG = """
[signing]
canonicalization = "{form}"
body_canonicalization = "{bodies}"
expire_days = 7
third_party = "esp.test"
[return_path]
secret = "{secret}"
srs = "srs.test"
own_domains = ["letters.test"]
feedback_id = "{{id}}:{{zone}}:zonemta"
"""
_ODD = {  # but no blanks behind a colon: opendkim, a milter, is not shown them
    "blanks": b"Subject: a \t  b\r\n\tc  \r\n\r\nx  y\t\r\n \r\n\r\n\r\n",
    "no body": b"Subject: all header\r\n",
    "empty body": b"Subject: empty\r\n\r\n",
    "eight bits": "Subject: Grüße\r\n\r\nGrüße\r\n".encode(),
    "no last line end": b"Subject: x\r\n\r\nend",
    "dots": b"Subject: x\r\n\r\n.\r\n..\r\n.x\r\n",
    "twice": b"Subject: x\r\nTo: a@x.test\r\nTo: b@x.test\r\n\r\nx\r\n",
}
_PASS = re.compile(r"dkim=pass[^;]* header\.s=(\w+) ")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Key]]:
    folder, made = tmp_path_factory.mktemp("keys"), {}
    for domain, selector in KEYS:
        private: Any = rsa.generate_private_key(65537, 2048) if selector == "r" else None
        private = private or ed25519.Ed25519PrivateKey.generate()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / selector).write_bytes(pem)
        made[selector] = (folder / selector, Key(domain, selector, pem))
    return made


def records(keys: dict[str, tuple[Path, Key]]) -> dict[str, str]:
    return {f"{key.selector}._domainkey.{key.domain}.": key.record() for _, key in keys.values()}


def hand_in(port: int) -> int:
    """Letters of all sizes, some for many, and odd ones; and one that nobody takes; returns what comes."""
    count = 0
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        for number in range(LETTERS):
            one = letter(number, kinds="plain", large=0.2)
            client.sendmail(one.sender, one.recipients, one.data, ["BODY=8BITMIME"])
            count += len(one.recipients)
        for name, message in _ODD.items():
            sender = "eve@foreign.test" if name == "dots" else "writer@letters.test"
            rows = client.docmd(f"MAIL FROM:<{sender}>"), client.docmd("RCPT TO:<r@one.test>"), client.docmd("DATA")
            stuffed = (b"\r\n" + b"From: Writer <writer@news.letters.test>\r\n" + message).replace(b"\r\n.", b"\r\n..")
            client.sock.sendall(stuffed[2:] + (b"" if message.endswith(b"\r\n") else b"\r\n") + b".\r\n")
            assert (*(code for code, _ in rows), client.getreply()[0]) == (250, 250, 354, 250)
            count += 1
        client.sendmail("writer@letters.test", ["gone@one.test"], b"From: a@letters.test\r\n\r\nx\r\n")
    return count + 1  # its notification


@pytest.fixture
def sent(keys: dict[str, tuple[Path, Key]], tmp_path: Path) -> Callable[[str, str], Any]:
    """sent(form, bodies): what the sink gets of `hand_in`."""

    async def run(form: str, bodies: str) -> list[Any]:
        config = _CONFIG.format(form=form, bodies=bodies, secret=SECRET)
        for path, key in keys.values():
            config += f'[[dkim]]\ndomain = "{key.domain}"\nselector = "{key.selector}"\nkey = "{path}"\n'
        async with Sink(
            SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=("rcpt:/^gone@/ 550 5.1.1 nobody",))
        ) as sink:
            mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=config)
            mta.start()
            try:
                await mta.accepting()
                count = await asyncio.to_thread(hand_in, mta.port)
                await mta.drained()
            finally:
                mta.end()
            messages = list(sink.messages)
        assert sum(len(message.recipients) for message in messages) == count
        return messages

    return run


def by_dkimpy(message: bytes, keys: dict[str, tuple[Path, Key]], count: int = len(KEYS)) -> list[bool]:
    known = {name.encode(): text.encode() for name, text in records(keys).items()}
    checker = dkimpy.DKIM(message)
    return [checker.verify(place, dnsfunc=lambda name, timeout=5: known.get(name)) for place in range(count)]


@pytest.mark.parametrize(("form", "bodies"), [("relaxed", "simple"), ("simple", "relaxed")])
async def test_verified_by_others(
    form: str, bodies: str, sent: Any, keys: dict[str, tuple[Path, Key]], tmp_path: Path
) -> None:
    """Three good signatures on messages of all sizes and oddities; one on our notification; foreign paths rewritten."""
    messages = await sent(form, bodies)
    [notice] = [message for message in messages if not message.sender]
    messages.remove(notice)
    assert by_dkimpy(notice.body, keys, 1) == [True]
    assert b"d=esp.test" in notice.body.partition(b"\r\nReceived:")[0]
    assert all(by_dkimpy(message.body, keys) == [True] * len(KEYS) for message in messages)
    assert all(b"\r\nFeedback-ID: " in message.body for message in messages)
    senders = {message.sender for message in messages if "foreign.test" in message.sender}
    assert len(senders) == 1
    assert all(sender.startswith("SRS0=") and sender.endswith("=foreign.test=eve@srs.test") for sender in senders)
    verdicts = await asyncio.to_thread(by_opendkim, [message.body for message in messages], keys, tmp_path)
    assert all(verdict == {"r", "e", "esp"} for verdict in verdicts)


def by_opendkim(messages: list[bytes], keys: dict[str, tuple[Path, Key]], folder: Path) -> list[set[str]]:
    """For each message the selectors whose signatures are good."""
    program = shutil.which("opendkim", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("opendkim is missing, so only dkimpy has verified: apt-get install opendkim")
    (folder / "keys").write_text("".join(f"{name[:-1]} {text}\n" for name, text in records(keys).items()))
    (folder / "opendkim.conf").write_text(f"Mode v\nTestPublicKeys {folder / 'keys'}\n")
    verdicts = []
    for message in messages:
        (folder / "message").write_bytes(message)
        command = [program, "-t", str(folder / "message"), "-x", str(folder / "opendkim.conf"), "-vv"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        verdicts.append(set(_PASS.findall(ran.stdout)))
    return verdicts
