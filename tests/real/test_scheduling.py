"""Real clients say when and how urgently: swaks, smtplib, a bare socket and `zonemta send`, through the whole MTA."""

from __future__ import annotations

import re
import shutil
import smtplib
import ssl
import subprocess
import sys
from itertools import count
from typing import Any

import pytest

SAID = (
    b"X-Sending-Zone: nowhere\r\nX-Campaign: spring\r\nX-Tenant:\r\n\tacme\r\nX-Priority-Level: 4\r\n"
    b"X-Deliver-After: 0\r\nX-Deliver-By: 3600\r\nX-Time-Zone: Europe/Berlin\r\nX-Unsubscribe: no\r\n"
)
LETTER = (
    b"Message-ID: <1@letters.test>\r\nDate: Sat, 21 Nov 2026 04:00:00 +0000\r\nX-Mine: stays\r\n"
    b"\r\nX-Campaign: body\r\n"
)
RECEIVED = re.compile(rb"Received:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*")
PARAMETERS = ["MT-PRIORITY=-4", "HOLDFOR=1", "BY=3600;R"]
_numbers = count(1)


def address(name: str) -> str:
    """One that nobody else uses in this run."""
    return f"{name}-{next(_numbers)}@two.test"


def without_trace(received: bytes) -> bytes:
    trace = RECEIVED.match(received)
    assert trace
    return received[trace.end() :]


@pytest.mark.parametrize("message", [SAID + LETTER, LETTER.replace(b"\r\n\r\n", b"\r\n" + SAID + b"\r\n", 1)])
def test_no_field_for_us_reaches_the_world(relay: Any, message: bytes) -> None:
    """Above or below the other fields, folded or not: what arrives is, byte for byte, the message without them."""
    recipient = address("fields")
    with smtplib.SMTP("127.0.0.1", relay.port, timeout=60) as client:
        client.sendmail("a@letters.test", recipient, message)
    assert without_trace(relay.came(recipient).body) == LETTER


def test_smtplib_with_parameters(relay: Any) -> None:
    """All at once; held for a second, and delivered."""
    recipient = address("parameters")
    with smtplib.SMTP("127.0.0.1", relay.port, timeout=60) as client:
        client.ehlo()
        assert all(client.has_extn(name) for name in ("mt-priority", "futurerelease", "deliverby"))
        client.sendmail("a@letters.test", recipient, LETTER, mail_options=PARAMETERS)
    assert without_trace(relay.came(recipient).body) == LETTER


def test_smtplib_with_mistakes(relay: Any) -> None:
    """501 for parameters, 550 5.6.0 for fields, and the connection stays in step."""
    with smtplib.SMTP("127.0.0.1", relay.port, timeout=60) as client:
        for parameter in ("MT-PRIORITY=11", "HOLDFOR=99999999", "HOLDUNTIL=2020-01-01T00:00:00Z", "BY=0;R"):
            with pytest.raises(smtplib.SMTPSenderRefused) as refused:
                client.sendmail("a@letters.test", "b@two.test", LETTER, mail_options=[parameter])
            assert (refused.value.smtp_code, refused.value.smtp_error[:5]) == (501, b"5.5.4")
        with pytest.raises(smtplib.SMTPDataError) as failed:
            client.sendmail("a@letters.test", "b@two.test", b"X-Window: never\r\n" + LETTER)
        assert failed.value.smtp_code == 550
        assert "5.6.0 X-Window: 'never' is not a window of this server" in str(failed.value.smtp_error)


def test_smtplib_requires_tls(relay: Any) -> None:
    """REQUIRETLS is offered under TLS only, where it is taken."""
    with smtplib.SMTP("127.0.0.1", relay.secure_port, timeout=60) as client:
        client.ehlo()
        assert not client.has_extn("requiretls")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client.starttls(context=context)
        client.login(relay.user, relay.password)
        client.ehlo()
        assert client.has_extn("requiretls")
        assert client.docmd("MAIL FROM:<a@letters.test> REQUIRETLS")[0] == 250


@pytest.mark.skipif(shutil.which("swaks") is None, reason="swaks is not installed: apt-get install swaks")
def test_swaks_with_fields(relay: Any) -> None:
    """swaks' --add-header, and a refused field is an exit status of its own."""
    recipient = address("swaks")
    command = ["swaks", "--to", recipient, "--from", "swaks@letters.test", "--server", "127.0.0.1"]
    command += ["--port", str(relay.port), "--add-header", "X-Tenant: acme", "--add-header"]
    done = subprocess.run([*command, "X-Priority-Level: 9"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    header = relay.came(recipient).body.partition(b"\r\n\r\n")[0]
    assert not re.search(rb"(?im)^X-(Tenant|Priority-Level)", header)
    refused = subprocess.run([*command, "X-Priority-Level: 10"], capture_output=True, text=True, timeout=120)
    assert "550 5.6.0 X-Priority-Level: '10' is not a priority" in refused.stdout


def test_zonemta_send(relay: Any) -> None:
    """All options of `zonemta send` through all processes; nothing of them is left in the message."""
    recipient = address("send")
    options = ["--campaign", "spring", "--tenant", "acme", "--priority", "4", "--at", "1", "--by", "3600"]
    options += ["--time-zone", "Europe/Berlin", "--unsubscribe", "-f", "a@letters.test"]
    command = [sys.executable, "-m", "zonemta_py", "send", *options, "--host", "127.0.0.1", "--port", str(relay.port)]
    done = subprocess.run([*command, recipient], input=LETTER, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not re.search(rb"(?m)^X-(?!Mine)", without_trace(relay.came(recipient).body).partition(b"\r\n\r\n")[0])
