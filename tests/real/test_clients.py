"""Real clients hand mail in: swaks, smtplib and nodemailer, in the clear and with STARTTLS and AUTH; and any bytes."""

from __future__ import annotations

import json
import re
import shutil
import smtplib
import socket
import ssl
import subprocess
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NODEMAILER = "nodemailer@6"
CACHE = Path.home() / ".cache" / "zonemta-tests"
RECEIVED = re.compile(rb"Received:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*")
ADDED = re.compile(rb"(?:(?:Date|Message-ID):[^\r\n]*\r\n)*")
_numbers = count(1)


def address(name: str) -> str:
    """One that nobody else uses in this run."""
    return f"{name}-{next(_numbers)}@one.test"


def only_trace_was_added(sent: bytes, received: bytes) -> bool:
    """Bytes sent equal bytes received, but for Received in front, Date and Message-ID behind the header if missing."""
    trace = RECEIVED.match(received)
    header, _, body = sent.partition(b"\r\n\r\n")
    before, after = header + b"\r\n", b"\r\n" + body
    rest = received[trace.end() :] if trace else b""
    added = rest[len(before) : len(rest) - len(after)]
    return rest == before + added + after and ADDED.fullmatch(added) is not None


# -- swaks


@pytest.mark.skipif(shutil.which("swaks") is None, reason="swaks is not installed: apt-get install swaks")
@pytest.mark.parametrize("secure", [False, True], ids=["clear", "starttls-auth"])
def test_swaks(relay: Any, secure: bool) -> None:
    """swaks' own message arrives, and swaks says so with exit status 0."""
    recipient = address("swaks")
    command = ["swaks", "--to", recipient, "--from", "swaks@letters.test", "--body", "one line\n.with a dot\n"]
    command += ["--server", "127.0.0.1", "--port", str(relay.secure_port if secure else relay.port)]
    if secure:
        command += ["--tls", "--auth", "PLAIN", "--auth-user", relay.user, "--auth-password", relay.password]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if secure and "Net::SSLeay" in done.stdout + done.stderr:
        pytest.skip("swaks has no TLS here: apt-get install libnet-ssleay-perl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"\r\n.with a dot\r\n" in relay.came(recipient).body


# -- smtplib


def sent_by_smtplib(relay: Any, secure: bool, message: EmailMessage) -> None:
    with smtplib.SMTP("127.0.0.1", relay.secure_port if secure else relay.port, timeout=60) as client:
        if secure:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            client.starttls(context=context)
            client.login(relay.user, relay.password)
        client.send_message(message)


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "starttls-auth"])
def test_smtplib(relay: Any, secure: bool) -> None:
    """A message with an attachment of 300 KB arrives byte for byte."""
    message = EmailMessage()
    message["From"], message["To"] = "smtplib@letters.test", address("smtplib")
    message["Subject"], message["Message-ID"] = "Grüße", f"<{message['To']}>"
    message.set_content("Ein Gruß.\n.\n..\n")
    message.add_attachment(bytes(range(256)) * 1200, maintype="application", subtype="octet-stream", filename="all")
    data = message.as_bytes(policy=message.policy.clone(linesep="\r\n"))  # its boundary is chosen here, for good
    sent_by_smtplib(relay, secure, message)
    assert only_trace_was_added(data, relay.came(message["To"]).body)


def test_nobody_relays_without_a_password(relay: Any) -> None:
    """Where AUTH is asked for, MAIL before it is refused, in the clear and under TLS."""
    message = EmailMessage()
    message["From"], message["To"] = "smtplib@letters.test", address("stranger")
    with smtplib.SMTP("127.0.0.1", relay.secure_port, timeout=60) as client:
        with pytest.raises(smtplib.SMTPResponseException):
            client.send_message(message)
        with pytest.raises(smtplib.SMTPNotSupportedError):
            client.login(relay.user, relay.password)


# -- nodemailer

_SCRIPT = """
const transport = require("nodemailer").createTransport(JSON.parse(process.argv[1]));
transport.sendMail(JSON.parse(process.argv[2])).then(
  (info) => console.log(JSON.stringify(info.accepted)),
  (error) => { console.error(error.message); process.exit(1); },
);
"""


@pytest.fixture(scope="session")
def nodemailer() -> Path:
    """The folder whose node_modules has it; installed once, into the user's cache."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is not installed: apt-get install nodejs npm")
    if not (CACHE / "node_modules" / "nodemailer").is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), NODEMAILER]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            pytest.skip(f"npm cannot install nodemailer: {done.stderr.strip().splitlines()[-1:]}")
    return CACHE


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "starttls-auth"])
def test_nodemailer(relay: Any, nodemailer: Path, secure: bool) -> None:
    """nodemailer's multipart message arrives."""
    recipient = address("nodemailer")
    transport: dict[str, Any] = {"host": "127.0.0.1", "port": relay.secure_port if secure else relay.port}
    transport |= {"secure": False, "requireTLS": secure, "ignoreTLS": not secure, "tls": {"rejectUnauthorized": False}}
    if secure:
        transport["auth"] = {"user": relay.user, "pass": relay.password}
    mail = {"from": "node@letters.test", "to": recipient, "subject": "node", "text": "plain ü\n.\n", "html": "<b>ü</b>"}
    command = ["node", "-e", _SCRIPT, json.dumps(transport), json.dumps(mail)]
    done = subprocess.run(command, cwd=nodemailer, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [recipient]
    assert b"multipart/alternative" in relay.came(recipient).body


# -- any bytes

LINES = st.lists(st.binary(max_size=60) | st.sampled_from([b"", b".", b"..", b".\r", b"\n.", b"--"]), max_size=20)
HEADS = st.sampled_from(
    [
        b"Message-ID: <a@letters.test>\r\nDate: Sat, 21 Nov 2026 04:00:00 +0000\r\nSubject: =?utf-8?q?=C3=BC?=\r\n\r\n",
        b"Subject: neither date nor id\r\n\r\n",
        b"Received: from elsewhere by here;\r\n\tSat, 21 Nov 2026 04:00:00 +0000\r\nX-Folded: a\r\n b\r\n\r\n",
    ]
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A header and any bytes but NUL, as lines that end in CRLF; one in a few of more than a chunk of 64 KB."""
    body = b"\r\n".join(draw(LINES)).replace(b"\0", b"") * draw(st.sampled_from([1, 1, 1, 300]))
    return draw(HEADS) + re.sub(rb"\r\n|\r|\n", b"\r\n", body + b"\r\n")


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(message=messages())
def test_bytes_sent_are_bytes_received(relay: Any, message: bytes) -> None:
    """Any message of arbitrary bytes within the limits, through all processes and both disks: only trace is added."""
    recipient = address("bytes")
    with socket.create_connection(("127.0.0.1", relay.port), 30) as client, client.makefile("rb") as replies:
        commands = ["EHLO any.test", "MAIL FROM:<any@letters.test> BODY=8BITMIME", f"RCPT TO:<{recipient}>", "DATA"]
        assert reply(replies) == b"220"
        for command in commands:
            client.sendall(command.encode() + b"\r\n")
            assert reply(replies) in (b"250", b"354")
        client.sendall(re.sub(rb"(?m)^\.", b"..", message) + b".\r\n")
        assert reply(replies) == b"250"
    assert only_trace_was_added(message, relay.came(recipient).body)
    relay.sink.messages.clear()


def reply(replies: Any) -> bytes:
    while True:
        line: bytes = replies.readline()
        if line[3:4] != b"-":
            return line[:3]
