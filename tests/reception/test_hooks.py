"""Plugins at their places in the dialogue."""

from __future__ import annotations

import ssl
import textwrap
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Plugins
from zonemta_py.plugin.host import Host

MESSAGE = b"From: a@b.test\r\nDate: x\r\nMessage-ID: <1@b.test>\r\nSubject: x\r\n\r\nhi\r\n"


@pytest.fixture
def plugged(open_door: Any, tmp_path: Path) -> Any:
    """plugged(code, …) opens a listener with one plugin made of `code`."""

    def start(code: str, **listener: Any) -> Any:
        path = tmp_path / "steer.py"
        path.write_text(
            "from zonemta_py.plugin.verdicts import Reject, Defer, Drop\nimport asyncio\n" + textwrap.dedent(code)
        )
        return open_door(host=Host.load(Plugins(enabled=[str(path)])), **listener)

    return start


@pytest.mark.parametrize("wait", ["", "await asyncio.sleep(0.01)"])
@pytest.mark.parametrize(
    ("hook", "arguments", "refused"),
    [
        ("smtp_mail_from", "address, session", "MAIL"),
        ("smtp_rcpt_to", "address, session", "RCPT"),
        ("smtp_data", "envelope, session", "DATA"),
        ("message_headers", "envelope, headers", "."),
        ("message_queue", "envelope, info", "."),
    ],
)
def test_a_plugin_may_refuse(plugged: Any, hook: str, arguments: str, refused: str, wait: str) -> None:
    """Its reply answers the command it was asked at, pipelined ones behind it stay in order, and mail goes on."""
    door = plugged(f"""
        seen = []
        async def {hook}({arguments}):
            {wait}
            seen.append(1)
            if len(seen) == 1:
                raise Reject(550, "not you", "5.7.99")
    """)
    commands = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n"
    with door.greeted() as wire:
        wire.send(commands)
        answers = {"MAIL": wire.reply(), "RCPT": wire.reply(), "DATA": wire.reply()}
        if answers["DATA"].startswith("354"):
            wire.send(MESSAGE + b".\r\n")
            answers["."] = wire.reply()
        assert answers[refused] == "550 5.7.99 not you"
        wire.ask("RSET")
        assert wire.mail(MESSAGE)[:3] == "250"
    assert len(door.submission.kept) == 1


def test_a_plugin_may_refuse_the_client_before_the_banner(plugged: Any) -> None:
    """smtp_connect: its reply instead of 220, then the end."""
    door = plugged("""
        async def smtp_connect(session):
            raise Reject(554, f"no {session.client} at {session.listener}", "5.7.1")
    """)
    with door.wire() as wire:
        assert wire.banner == "554 5.7.1 no 127.0.0.1 at smtp"
        assert wire.reply() == ""


def test_a_plugin_may_change_what_is_said(plugged: Any) -> None:
    """Sender and recipients can be rewritten, headers changed, envelope fields set; the changes are what is queued."""
    door = plugged("""
        async def smtp_mail_from(address, session):
            assert address.parameters == {"SIZE": "10"}
            address.address = "bounce+1@b.test"
        async def smtp_rcpt_to(address, session):
            address.address = address.address.replace("old", "new")
        async def smtp_data(envelope, session):
            envelope.campaign = session.helo
        async def message_headers(envelope, headers):
            headers.replace("Subject", "changed")
            headers.add("X-Added", "1")
        async def message_queue(envelope, info):
            assert info.size and info.session.client == "127.0.0.1" and "X-Added" in info.headers
            envelope.sending_zone = "bulk"
    """)
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test> SIZE=10")
        wire.ask("RCPT TO:<c@old.test>")
        wire.ask("DATA")
        assert wire.ask(MESSAGE + b".")[:3] == "250"
    envelope, stored = door.submission.kept[0]
    assert (envelope.sender, envelope.recipients[0].address) == ("bounce+1@b.test", "c@new.test")
    assert (envelope.campaign, envelope.sending_zone) == ("client.test", "bulk")
    assert envelope.headers["subject"] == "changed"
    assert stored.startswith(b"Received: ")
    assert stored.endswith(MESSAGE.replace(b"Subject: x\r\n", b"Subject: changed\r\nX-Added: 1\r\n"))


@pytest.mark.parametrize("lines", [1, 5000])
def test_plugins_see_and_rewrite_the_body_as_it_passes(plugged: Any, lines: int) -> None:
    """message_analyze reads it, message_rewrite changes it, message_store sees what is stored."""
    door = plugged("""
        async def message_analyze(envelope, stream):
            envelope.notes["came"] = sum([len(block) async for block in stream])
        async def message_rewrite(envelope, node, stream):
            async for block in stream:
                yield block.replace(b"h", b"H")
        async def message_store(envelope, stream):
            envelope.notes["stored"] = sum([len(block) async for block in stream])
    """)
    body = b"hi, this is a line of some length, as lines go\r\n" * lines
    with door.greeted() as wire:
        assert wire.mail(MESSAGE + body)[:3] == "250"
    envelope, stored = door.submission.kept[0]
    assert stored.endswith(b"\r\n\r\nHi\r\n" + body.replace(b"h", b"H"))
    assert envelope.notes == {"came": len(MESSAGE + body), "stored": len(b"hi\r\n" + body)}


def test_a_plugin_may_drop(plugged: Any) -> None:
    """The client hears 250, the queue hears nothing, and a message begun is given up."""
    door = plugged("""
        async def message_queue(envelope, info):
            raise Drop("test")
    """)
    with door.greeted() as wire:
        for body in (MESSAGE, MESSAGE + b"0123456789\r\n" * 20_000):
            assert wire.mail(body)[:9] == "250 2.0.0"
    assert door.submission.kept == []
    assert (door.submission.begun, door.submission.aborted) == (1, 1)


def test_a_plugin_that_fails_costs_one_message(plugged: Any) -> None:
    """451 4.3.0, and the dialogue goes on."""
    door = plugged("""
        seen = []
        async def smtp_data(envelope, session):
            seen.append(1)
            if len(seen) == 1:
                raise RuntimeError("bug")
    """)
    with door.greeted() as wire:
        assert wire.mail(MESSAGE)[:9] == "451 4.3.0"
        assert wire.mail(MESSAGE)[:3] == "250"


def test_a_plugin_may_add_keywords_and_commands(plugged: Any) -> None:
    """smtp_init: offered in EHLO, answered by the plugin."""
    door = plugged("""
        from zonemta_py.mail.reply import Reply
        async def smtp_init(server):
            server.ehlo_keywords.append("X-PING")
            async def ping(argument, session):
                return Reply(250, "2.0.0", f"pong {argument} {session.client}")
            server.commands["XPING"] = ping
    """)
    with door.wire() as wire:
        assert wire.ask("EHLO x").endswith("250 X-PING")
        assert wire.ask("xping now") == "250 2.0.0 pong now 127.0.0.1"


def test_a_plugin_may_judge_logins(plugged: Any, certificate: Path, users: dict[str, str]) -> None:
    """smtp_auth: setting session.user accepts, raising refuses in the plugin's words, nothing leaves it to [users]."""
    door = plugged(
        """
        async def smtp_auth(auth, session):
            if auth.username == "otto" and auth.password == "pw" and auth.method == "PLAIN":
                session.user = "otto"
            if auth.username == "evil":
                raise Reject(535, "never", "5.7.8")
        """,
        tls="implicit", certificate=str(certificate), auth=True, users=users, relay_networks=[],
    )  # fmt: skip
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for line, answer in (
        ("AG90dG8AcHc=", "235 2.7.0"), ("AGV2aWwAeA==", "535 5.7.8 never"), ("AGFubmEAeA==", "535 5.7.8 User"),
        ("AGFubmEAY29ycmVjdCBob3JzZQ==", "235 2.7.0"),
    ):  # fmt: skip
        wire = door.wire(read_banner=False)
        wire.file.close()
        wire.socket = context.wrap_socket(wire.socket)
        wire.file = wire.socket.makefile("rb")
        wire.reply()
        wire.ask("EHLO x")
        assert wire.ask(f"AUTH PLAIN {line}").startswith(answer)
        wire.close()


@pytest.mark.parametrize("mode", ["implicit", "starttls"])
def test_a_plugin_may_choose_the_certificate(plugged: Any, certificate: Path, mode: str) -> None:
    """smtp_sni: hears the name the client asked for, and may give another context."""
    door = plugged(
        """
        import ssl
        async def smtp_sni(server_name, data):
            assert data.listener == "smtp"
            if server_name == "old.test":
                data.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                data.context.load_cert_chain(CERTIFICATE)
                data.context.maximum_version = ssl.TLSVersion.TLSv1_2
        """.replace("CERTIFICATE", repr(str(certificate))),
        tls=mode, certificate=str(certificate),
    )  # fmt: skip
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name in ("old.test", "new.test"):
        wire = door.wire(read_banner=mode == "starttls")
        if mode == "starttls":
            wire.ask("EHLO x")
            wire.ask("STARTTLS")
        wire.file.close()
        wire.socket = context.wrap_socket(wire.socket, server_hostname=name)
        wire.file = wire.socket.makefile("rb")
        if mode == "implicit":
            assert wire.reply()[:3] == "220"
        assert wire.ask("EHLO x")[:3] == "250"
        wire.close()
