"""What is not fit to be sent: judged as it would be sent, against a real name server; held, refused or warned about."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from survival.rig import Mta

from tests.cli.test_doctor import ADDRESS, BACKWARDS, Records
from tests.real.conftest import sink_in_a_thread
from zonemta_py.config import Config
from zonemta_py.delivery.message.sender_checks import NotFit, SenderChecks
from zonemta_py.queue.api import Delivery

SIGNED = b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed;\r\n d=news.example.com;\r\n s=x; b=abc=\r\n"
LIST = (
    b"List-Unsubscribe: <mailto:x@example.com>,\r\n <https://l.example.com/1>\r\n"
    b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"
)
SENTENCE = "not fit to be sent: no key signs mail from src.test"
FROM = b"From: The Shop <shop@example.com>\r\nSubject: hello\r\n"


@pytest.fixture
def dns() -> Iterator[Records]:
    with Records() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.all |= {
            ("mail.example.com", "A"): [ADDRESS], (f"{BACKWARDS}.in-addr.arpa", "PTR"): ["mail.example.com."],
            ("bounce.example.com", "TXT"): [f'"v=spf1 ip4:{ADDRESS} -all"'],
        }  # fmt: skip
        yield server
        server.shutdown()


async def wrong(dns: Records, section: bytes, back: str = "b@bounce.example.com", **zone: Any) -> str:
    settings = {"name": "z", "sources": [ADDRESS], "sender_checks": "refuse", **zone}
    config = Config.model_validate(
        {
            "server": {"hostname": "mail.example.com"},
            "dns": {"servers": ["127.0.0.1"], "port": dns.server_address[1], "timeout_s": 3},
            "zones": [settings],
        }
    )
    delivery = Delivery(1, "0" * 16, "z", "example.org", "shop@example.com", [], 100, 1)
    try:
        await SenderChecks(config).look(config.zones[0], delivery, back, section)
    except NotFit as error:
        return str(error.reply)
    return ""


async def test_what_is_fit(dns: Records) -> None:
    assert await wrong(dns, SIGNED + FROM) == ""
    assert await wrong(dns, SIGNED + FROM + LIST, campaigns=True) == ""


@pytest.mark.parametrize(
    ("section", "back", "zone", "words"),
    [
        (FROM, "b@bounce.example.com", {}, "no key signs mail from example.com"),
        (SIGNED.replace(b"news.example.com", b"other.net") + FROM, "b@bounce.other.net", {}, "From is at example.com"),
        (SIGNED + FROM, "b@bounce.example.com", {"campaigns": True}, "one-click"),
        (SIGNED + FROM + b"List-Id: <news.example.com>\r\n", "b@bounce.example.com", {}, "one-click"),
        (SIGNED + FROM + LIST.replace(b"https:", b"http:"), "b@bounce.example.com", {"campaigns": True}, "one-click"),
        (SIGNED + FROM, "b@nowhere.example.com", {}, f"SPF of nowhere.example.com says none of {ADDRESS}"),
        (SIGNED + FROM, "b@bounce.example.com", {"sources": ["8.1.2.4"]}, "fail of 8.1.2.4"),
        (SIGNED + FROM, "b@bounce.example.com", {"sources": ["8.1.2.4"]}, "8.1.2.4 has no name in DNS"),
    ],
)  # fmt: skip
async def test_what_is_not(dns: Records, section: bytes, back: str, zone: dict[str, Any], words: str) -> None:
    assert words in await wrong(dns, section, back, **zone)


async def test_what_is_not_asked_for(dns: Records) -> None:
    """Only the checks that are named; a name server that does not answer is no fault."""
    assert await wrong(dns, FROM, sender_check_names=["aligned"]) == ""
    assert await wrong(dns, FROM, sender_check_tenants=["acme"]) == ""
    dns.silent |= {"bounce.example.com", f"{BACKWARDS}.in-addr.arpa"}
    assert await wrong(dns, SIGNED + FROM) == ""


async def test_a_warning_once_in_a_while(dns: Records, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert await wrong(dns, FROM, sender_checks="warn") == ""
    assert "zone z: mail of example.com" in caplog.text
    assert "no key signs" in caplog.text


@pytest.mark.parametrize("action", ["hold", "refuse"])
def test_in_a_whole_mta(tmp_path: Path, action: str) -> None:
    """Nothing leaves; who held it is said where an operator looks, and no recipient is suspected."""
    zone = '\n[[zones]]\nname = "checked"\nrecipient_domains = ["checked.test"]\nhost = "127.0.0.1"\nport = {port}\n'
    with sink_in_a_thread() as sink:
        more = zone.format(port=sink.port) + f'sender_checks = "{action}"\nsender_check_names = ["signed"]\n'
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more)
        try:
            mta.start()
            asyncio.run(mta.taking())
            with smtplib.SMTP("127.0.0.1", mta.port) as client:
                client.sendmail("ann@src.test", ["x@checked.test"], "From: ann@src.test\r\nSubject: x\r\n\r\nx\r\n")
            said, end = "", time.monotonic() + 30
            while SENTENCE not in said:
                assert time.monotonic() < end, mta.log_tail()
                time.sleep(0.05)
                notices = [one.body.decode() for one in sink.messages if "ann@src.test" in one.recipients]
                rows = mta.ask("list", limit=10)["rows"]
                said = str(rows) if action == "hold" else " ".join("".join(notices).split())
            assert mta.ask("evidence", address="x@checked.test")["heard"] == []
            assert not [one for one in sink.messages if "x@checked.test" in one.recipients]
        finally:
            mta.end()
