"""TLS, logins, limits and timeouts: who may talk to us, and for how long."""

from __future__ import annotations

import base64
import contextlib
import re
import smtplib
import socket
import ssl
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config, ConfigError
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Unanswered
from zonemta_py.reception.listeners import serve

PASSWORD = "correct horse"
MESSAGE = b"From: a@b.test\r\nSubject: x\r\n\r\nhi\r\n"


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.fixture
def tls_door(open_door: Any, certificate: Path, users: dict[str, str]) -> Any:
    """STARTTLS and AUTH; nobody may relay without a login."""
    return open_door(
        tls="starttls", certificate=str(certificate), auth=True, users=users, relay_networks=["192.0.2.0/24"]
    )


def secured(door: Any) -> Any:
    wire = door.greeted()
    assert wire.ask("STARTTLS")[:3] == "220"
    wire.file.close()
    wire.socket = trusting().wrap_socket(wire.socket)
    wire.file = wire.socket.makefile("rb")
    return wire


def plain(user: str, password: str) -> str:
    return base64.b64encode(f"\0{user}\0{password}".encode()).decode()


def test_no_open_relay(open_door: Any) -> None:
    """A client outside the relay networks that has not logged in gets 550 5.7.1 for every recipient."""
    door = open_door(relay_networks=["192.0.2.0/24"])
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<a@b.test>")[:3] == "250"
        for recipient in ("c@d.test", "postmaster", "a@mx.test", '"c@d.test"@b.test', "@x.test:c@d.test"):
            assert wire.ask(f"RCPT TO:<{recipient}>")[:9] == "550 5.7.1"
        assert wire.ask("DATA")[:9] == "554 5.5.1"


def test_starttls(tls_door: Any) -> None:
    """The session begins anew under TLS, offers AUTH then and STARTTLS no more; the trace field tells of TLS."""
    with secured(tls_door) as wire:
        assert wire.ask("MAIL FROM:<a@b.test>")[:9] == "503 5.5.1"
        offered = wire.ask("EHLO client.test")
        assert "AUTH PLAIN LOGIN" in offered
        assert "STARTTLS" not in offered
        assert wire.ask("STARTTLS")[:9] == "503 5.5.1"
        assert wire.ask(f"AUTH PLAIN {plain('anna', PASSWORD)}")[:9] == "235 2.7.0"
        assert wire.mail(MESSAGE)[:3] == "250"
    envelope, stored = tls_door.submission.kept[0]
    assert (envelope.protocol, envelope.user) == ("ESMTPSA", "anna")
    assert re.search(rb"\(using TLSv1\.3 TLS_\w+\)\r\n by mx\.test with ESMTPSA id", stored)
    assert b"anna" not in stored


def test_what_comes_before_the_handshake_is_forgotten(tls_door: Any) -> None:
    """Commands pipelined behind STARTTLS in the clear are never executed (RFC 3207 5)."""
    with tls_door.greeted() as wire:
        wire.send(b"STARTTLS\r\nEHLO evil.test\r\nMAIL FROM:<evil@x.test>\r\n")
        assert wire.reply()[:3] == "220"
        wire.file.close()
        wire.socket = trusting().wrap_socket(wire.socket)
        wire.file = wire.socket.makefile("rb")
        assert wire.ask("RCPT TO:<c@d.test>")[:9] == "503 5.5.1"
        assert wire.ask("MAIL FROM:<a@b.test>") == "503 5.5.1 Say EHLO first"


def test_a_failed_handshake_ends_the_connection(tls_door: Any) -> None:
    """Garbage instead of TLS: the connection is closed, others are served."""
    with tls_door.greeted() as wire:
        wire.ask("STARTTLS")
        wire.send(b"EHLO in the clear\r\n" * 20)
        with contextlib.suppress(ConnectionResetError):
            assert b"250" not in wire.file.read()
    with tls_door.greeted() as wire:
        assert wire.ask("NOOP")[:3] == "250"


def test_a_client_that_breaks_the_handshake_off_keeps_no_place(open_door: Any, certificate: Path) -> None:
    """Whoever resets, closes or spoils the connection in the handshake does not count as connected for ever."""
    door = open_door(limits={"connections_per_client": 2}, tls="starttls", certificate=str(certificate))
    for spoil in ("reset", "close", "garbage") * 3:
        wire = next_free(door)
        wire.ask("EHLO client.test")
        wire.ask("STARTTLS")
        if spoil == "reset":
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif spoil == "garbage":
            wire.send(b"no TLS at all\r\n" * 20)
        wire.close()
    assert next_free(door).ask("NOOP")[:3] == "250"


def next_free(door: Any) -> Any:
    """A connection that was let in; the end of the one before may take a moment to be noticed."""
    for _ in range(1200):
        with contextlib.suppress(ConnectionError):
            wire = door.wire()
            if wire.banner[:3] == "220":
                return wire
            wire.close()
        time.sleep(0.05)
    raise AssertionError("the places of gone clients were never given back")


def test_the_trace_field_names_the_last_greeting(door: Any) -> None:
    """A client that says EHLO again under another name is named so in the messages that follow."""
    with door.wire() as wire:
        for name in ("first.test", "second.test"):
            wire.ask(f"EHLO {name}")
            assert wire.mail(MESSAGE)[:3] == "250"
    assert [stored.split()[2] for _, stored in door.submission.kept] == [b"first.test", b"second.test"]


def test_tls_can_be_required(open_door: Any, certificate: Path) -> None:
    """require_tls: 530 5.7.0 to MAIL until STARTTLS."""
    door = open_door(tls="starttls", certificate=str(certificate), require_tls=True)
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<a@b.test>")[:9] == "530 5.7.0"
    with secured(door) as wire:
        wire.ask("EHLO x")
        assert wire.mail(MESSAGE)[:3] == "250"


def test_implicit_tls(open_door: Any, certificate: Path, users: dict[str, str]) -> None:
    """TLS from the first byte, with Python's own client and AUTH."""
    door = open_door(tls="implicit", certificate=str(certificate), auth=True, users=users, relay_networks=[])
    with smtplib.SMTP_SSL(door.address, door.port, context=trusting(), timeout=60) as client:
        client.login("anna", PASSWORD)
        assert client.sendmail("a@b.test", ["c@d.test"], "Subject: x\n\n" + "y" * 200_000) == {}
    assert door.submission.kept[0][0].protocol == "ESMTPSA"
    assert len(door.submission.kept[0][1]) > 200_000


def test_passwords_never_travel_in_the_clear(tls_door: Any) -> None:
    """Before TLS, AUTH is not offered and is refused."""
    with tls_door.greeted() as wire:
        assert "AUTH" not in wire.ask("EHLO x")
        assert wire.ask(f"AUTH PLAIN {plain('anna', PASSWORD)}")[:10] == "538 5.7.11"


@pytest.mark.parametrize(
    ("dialogue", "answers"),
    [
        ([f"AUTH PLAIN {plain('anna', PASSWORD)}"], ["235 2.7.0"]),
        (["AUTH plain", plain("anna", PASSWORD)], ["334 ", "235 2.7.0"]),
        (["AUTH LOGIN", "YW5uYQ==", base64.b64encode(PASSWORD.encode()).decode()], ["334 ", "334 ", "235 2.7.0"]),
        (["AUTH LOGIN YW5uYQ==", base64.b64encode(PASSWORD.encode()).decode()], ["334 ", "235 2.7.0"]),
        ([f"AUTH PLAIN {plain('anna', 'wrong')}"], ["535 5.7.8"]),
        ([f"AUTH PLAIN {plain('nobody', PASSWORD)}"], ["535 5.7.8"]),
        ([f"AUTH PLAIN {plain('', '')}"], ["535 5.7.8"]),
        (["AUTH PLAIN %%%"], ["501 5.5.2"]),
        (["AUTH PLAIN YQ=="], ["501 5.5.2"]),
        (["AUTH PLAIN AP8A/w=="], ["535 5.7.8"]),
        (["AUTH PLAIN", "%%%"], ["334 ", "501 5.5.2"]),
        (["AUTH PLAIN", plain("anna", PASSWORD) + " "], ["334 ", "235 2.7.0"]),
        (["AUTH PLAIN", ""], ["334 ", "501 5.5.2"]),
        (["AUTH PLAIN ="], ["501 5.5.2"]),
        (["AUTH PLAIN " + base64.b64encode(b"\0anna\0a\0b").decode()], ["501 5.5.2"]),
        (["AUTH LOGIN", "YW5uYQ==", "*"], ["334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", "501 5.7.0"]),
        (["AUTH LOGIN", "YW5uYQ=", "NOOP"], ["334 ", "501 5.5.2", "250 2.0.0"]),
        (["AUTH LOGIN =", "YQ=="], ["334 UGFzc3dvcmQ6", "535 5.7.8"]),
        (["AUTH LOGIN", "A" * 12_288, "*"], ["334 ", "334 ", "501 5.7.0"]),
        (["AUTH LOGIN", "A" * 12_292, "NOOP"], ["334 ", "500 5.5.6", "250 2.0.0"]),
        (["AUTH PLAIN", "A" * 50_000, "NOOP"], ["334 ", "500 5.5.6", "250 2.0.0"]),
        (["AUTH PLAIN", "*"], ["334 ", "501 5.7.0"]),
        (["AUTH LOGIN", "*"], ["334 ", "501 5.7.0"]),
        (["AUTH CRAM-MD5"], ["504 5.5.4"]),
        (["AUTH"], ["501 5.5.4"]),
        (["AUTH PLAIN a b"], ["501 5.5.4"]),
    ],
)
def test_logins(tls_door: Any, dialogue: list[str], answers: list[str]) -> None:
    """PLAIN and LOGIN, with and without initial response; every failure is said and leaves the client a stranger."""
    with secured(tls_door) as wire:
        wire.ask("EHLO x")
        for line, answer in zip(dialogue, answers, strict=True):
            assert wire.ask(line).startswith(answer)
        accepted = answers[-1].startswith("235")
        assert wire.mail(MESSAGE)[:3] == ("250" if accepted else "550")
        if accepted:
            assert wire.ask(dialogue[0])[:9] == "503 5.5.1"


def test_a_login_in_one_packet(tls_door: Any) -> None:
    """A client that knows what it will be asked need not wait for it, and its next command is not lost."""
    with secured(tls_door) as wire:
        wire.ask("EHLO x")
        password = base64.b64encode(PASSWORD.encode()).decode()
        wire.send(f"AUTH LOGIN\r\nYW5uYQ==\r\n{password}\r\nNOOP\r\n".encode())
        assert [wire.reply()[:3] for _ in range(4)] == ["334", "334", "235", "250"]


def test_a_login_without_end_is_cut_off(tls_door: Any) -> None:
    """Nobody keeps what is no line."""
    with secured(tls_door) as wire:
        wire.ask("EHLO x")
        assert wire.ask("AUTH PLAIN")[:3] == "334"
        more = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            for _ in range(100):
                wire.send(b"A" * 10_000)
            more = wire.socket.recv(1)
        assert more == b""


def test_a_client_may_leave_in_the_middle_of_a_login(tls_door: Any) -> None:
    """Nobody waits for it for ever."""
    for _ in range(3):
        with secured(tls_door) as wire:
            wire.ask("EHLO x")
            assert wire.ask("AUTH LOGIN")[:3] == "334"
    with secured(tls_door) as wire:
        wire.ask("EHLO x")
        assert wire.ask(f"AUTH PLAIN {plain('anna', PASSWORD)}")[:3] == "235"


@pytest.mark.parametrize("limits", [{"connections": 2}, {"connections_per_client": 2}])
def test_too_many_connections(open_door: Any, limits: dict[str, int]) -> None:
    """421 4.7.0 beyond the limit, in all or from one client; a place left is free again."""
    door = open_door(limits=limits)
    first, second = door.wire(), door.wire()
    assert door.wire().banner[:9] == "421 4.7.0"
    first.close()
    next_free(door).close()
    second.close()


def test_too_many_commands(open_door: Any) -> None:
    """421 4.7.0, and the connection ends."""
    door = open_door(limits={"commands_per_connection": 10})
    with door.wire() as wire:
        answers = [wire.ask("NOOP")[:9] for _ in range(11)]
        assert answers == ["250 2.0.0"] * 10 + ["421 4.7.0"]
        assert wire.reply() == ""


def test_too_many_errors(open_door: Any) -> None:
    """The refusal itself is said, then 421 4.7.0, and the connection ends."""
    door = open_door(limits={"errors_per_connection": 3})
    with door.greeted() as wire:
        answers = [wire.ask("BOGUS")[:9] for _ in range(4)] + [wire.reply()[:9], wire.reply()]
    assert answers == ["500 5.5.1"] * 4 + ["421 4.7.0", ""]


def test_too_many_recipients(open_door: Any) -> None:
    """452 4.5.3 beyond the limit; those before it get the mail (RFC 5321 4.5.3.1.10)."""
    door = open_door(limits={"recipients": 3})
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test>")
        answers = [wire.ask(f"RCPT TO:<{n}@d.test>")[:9] for n in range(5)]
        wire.ask("DATA")
        assert wire.ask(MESSAGE + b".")[:3] == "250"
    assert answers == ["250 2.1.5"] * 3 + ["452 4.5.3"] * 2
    assert len(door.submission.kept[0][0].recipients) == 3


def test_too_large(open_door: Any) -> None:
    """552 5.3.4 at MAIL if the size is declared, else behind the dot; the connection goes on."""
    door = open_door(limits={"message_bytes": 200_000})
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<a@b.test> SIZE=200001")[:9] == "552 5.3.4"
        assert wire.ask("MAIL FROM:<a@b.test> SIZE=200000")[:9] == "250 2.1.0"
        wire.ask("RSET")
        assert wire.mail(MESSAGE + (b"x" * 98 + b"\r\n") * 2001)[:9] == "552 5.3.4"
        assert wire.mail(MESSAGE)[:3] == "250"
    assert (len(door.submission.kept), door.submission.aborted) == (1, door.submission.begun)


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        (b"Received: x\r\n" * 4, "554 5.4.6"), (b"Received: x\r\n" * 3, "250 2.0.0"),
        (b"X: " + b"y" * 2000 + b"\r\n", "552 5.3.4"), (b"X: y\r\n" * 400, "552 5.3.4"),
    ],
)  # fmt: skip
def test_loops_and_long_header_sections(open_door: Any, header: bytes, answer: str) -> None:
    """Too many Received fields are a loop; a header section beyond its limit is refused."""
    door = open_door(limits={"hops": 3, "header_bytes": 2000})
    with door.greeted() as wire:
        assert wire.mail(header + MESSAGE + b"z" * 3000 + b"\r\n").startswith(answer)
        assert wire.mail(MESSAGE)[:3] == "250"


@pytest.mark.parametrize("lines", [0, 1, 2, 5])
def test_the_silent_are_cut_off(open_door: Any, lines: int) -> None:
    """421 4.4.2 after the timeout, at every stage of the dialogue."""
    dialogue = (b"EHLO x\r\n", b"MAIL FROM:<a@b.test>\r\n", b"RCPT TO:<c@d.test>\r\n", b"DATA\r\n", b"Subject: half")
    said = dialogue[:lines]
    door = open_door(limits={"timeout_s": 0.4})
    with door.wire() as wire:
        wire.send(b"".join(said))  # at once: between two commands the test itself might be silent for too long
        answers = [wire.reply()[:3] for line in said if line.endswith(b"\n")]
        assert answers == ["250", "250", "250", "354"][: len(answers)]
        assert wire.reply()[:9] == "421 4.4.2"
        assert wire.reply() == ""
    assert door.submission.kept == []


def test_a_listener_on_ipv6(open_door: Any) -> None:
    """The client's address stands in the trace field as a literal."""
    door = open_door(address="::1")
    with door.greeted() as wire:
        assert wire.mail(MESSAGE)[:3] == "250"
    assert b"([IPv6:::1])" in door.submission.kept[0][1]


@pytest.mark.parametrize("content", [None, "garbage"])
async def test_a_bad_certificate_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    """Missing or broken files are told before anything is served, with key and remedy."""
    path = tmp_path / "x.pem"
    if content:
        path.write_text(content)
    config = Config.model_validate({"listeners": [{"tls": "implicit", "certificate": str(path)}]})
    with socket.socket() as bound, pytest.raises(ConfigError, match=r"listeners\.smtp\.certificate: .*PEM"):
        await serve(config, [(config.listeners[0], bound)], None, Host.empty())  # type: ignore[arg-type]


async def test_a_password_in_the_clear_is_one_sentence() -> None:
    """[users] takes hashes only."""
    config = Config.model_validate({"users": {"anna": "secret"}})
    with pytest.raises(ConfigError, match=r"users\.anna: .*zonemta config password"):
        await serve(config, [], None, Host.empty())  # type: ignore[arg-type]


def test_a_message_without_end_is_cut_off(open_door: Any) -> None:
    """Long after the limit the politeness of reading to the end is over."""
    door = open_door(limits={"message_bytes": 100_000})
    with door.greeted() as wire:
        for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
            wire.ask(command)
        wire.send(b"0123456789\r\n" * 30_000)
        assert wire.reply()[:9] == "421 4.3.4"


def test_silence_in_the_middle_of_a_login_is_cut_off_too(
    open_door: Any, certificate: Path, users: dict[str, str]
) -> None:
    """421 4.4.2 instead of waiting for the password for ever."""
    door = open_door(
        limits={"timeout_s": 1}, tls="starttls", certificate=str(certificate), auth=True, users=users
    )  # fmt: skip
    with secured(door) as wire:
        wire.ask("EHLO x")
        assert wire.ask("AUTH LOGIN")[:3] == "334"
        assert wire.reply()[:9] == "421 4.4.2"


def test_a_client_whose_message_nobody_can_speak_for_gets_no_answer(door: Any) -> None:
    """The queue may have stored it before it died: 451 could be false, so the connection ends without a reply."""
    door.submission.refusal = Unanswered(Reply(451, "4.3.0", "nobody knows"))
    client = smtplib.SMTP(door.address, door.port, timeout=60)
    client.ehlo("c.test")
    client.mail("a@b.test")
    client.rcpt("c@d.test")
    with pytest.raises(smtplib.SMTPServerDisconnected):
        client.data("Subject: x\r\n\r\nx\r\n")
