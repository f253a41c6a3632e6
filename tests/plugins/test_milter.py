"""The bundled plugin milter: Debian's opendkim signs and clamav-milter judges in the real MTA; and filters of the
test's own say everything that the protocol has, and what it has not."""

from __future__ import annotations

import asyncio
import base64
import re
import struct
import time
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from ports import free_port
from programs import VIRUS, Server, answering, program

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Delivery, Routing
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import received
from zonemta_py.plugin.verdicts import Drop, Hold, PluginFailed, Reject

LETTERS = {
    "plain": b"Subject: x\r\n\r\ntext\r\n",
    "folded": b"Subject: a \t  b\r\n\tc\r\nTo: b@x.test,\r\n c@x.test\r\n\r\nx  y\t\r\n \r\n\r\n\r\n",
    "eight bits": "Subject: Grüße\r\n\r\nGrüße\r\n".encode(),
    "dots": b"Subject: x\r\n\r\n.\r\n..\r\n.x\r\n",
    "empty": b"Subject: x\r\n\r\n",
    "long": b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 20_000,
}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Its file, and its record in DNS."""
    private, file = rsa.generate_private_key(65537, 2048), tmp_path_factory.mktemp("key") / "key.pem"
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    file.chmod(0o600)
    public = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return file, b"v=DKIM1; k=rsa; p=" + base64.b64encode(public)


@pytest.fixture(scope="module")
def opendkim(key: tuple[Path, bytes], serve: Callable[..., Server]) -> Server:
    where, folder = program("opendkim", "opendkim"), key[0].parent
    (folder / "opendkim.conf").write_text(
        f"Mode s\nDomain a.test\nSelector s\nKeyFile {key[0]}\nSocket local:{folder}/socket\nSyslog no\n"
        f"Canonicalization simple/simple\nInternalHosts {folder}/hosts\nRequireSafeKeys no\nPidFile {folder}/pid\n"
    )
    (folder / "hosts").write_text("127.0.0.1\n")
    return serve([where, "-f", "-x", str(folder / "opendkim.conf")], folder / "socket", folder / "log")


@pytest.fixture(scope="module")
def clamav_milter(tmp_path_factory: pytest.TempPathFactory, clamd: Server, serve: Callable[..., Server]) -> Server:
    where, folder, port = program("clamav-milter", "clamav-milter"), tmp_path_factory.mktemp("milter"), free_port()
    (folder / "milter.conf").write_text(
        f"Foreground yes\nMilterSocket inet:{port}@127.0.0.1\nClamdSocket tcp:127.0.0.1:{clamd.where}\n"
        f"OnInfected Quarantine\nAddHeader Replace\nPidFile {folder}/pid\nTemporaryDirectory {folder}\n"
    )
    return serve([where, "-c", str(folder / "milter.conf")], port, folder / "log")


@pytest.fixture(scope="module")
def running(opendkim: Server, clamav_milter: Server, start_mta: Any) -> Any:
    return start_mta(
        f"""
[plugins]
enabled = ["milter"]
timeout_s = 50
[[plugins.options.milter.filters]]
name = "opendkim"
socket = "unix:{opendkim.where}"
timeout_s = 20
[[plugins.options.milter.filters]]
name = "clamav"
socket = "inet:{clamav_milter.where}@127.0.0.1"
timeout_s = 20
"""
    )


@pytest.mark.parametrize("name", LETTERS)
def test_opendkim_signs_and_the_signature_verifies(running: Any, key: tuple[Path, bytes], name: str) -> None:
    who = f"{name.replace(' ', '-')}@one.test"
    assert running.send(b"From: Ann <ann@a.test>\r\n" + LETTERS[name], who).startswith("250")
    body = running.came(who).body
    assert dkim.verify(body, dnsfunc=lambda name, timeout=5: key[1] if name == b"s._domainkey.a.test." else b"")
    assert b"\r\nX-Virus-Status: Clean\r\n" in body
    changed = re.sub(rb"(?i)\r\nsubject: ", b"\r\nSubject: forged ", body)
    assert not dkim.verify(changed, dnsfunc=lambda name, timeout=5: key[1])


def test_what_is_signed_is_what_other_plugins_have_made_of_it(
    opendkim: Server, key: tuple[Path, bytes], start_mta: Any
) -> None:
    """Header section and body: a footer in UTF-8 makes MIME of a message that was none."""
    running = start_mta(
        f"""
[plugins]
enabled = ["rewriting", "default_headers", "milter"]
timeout_s = 50
[[plugins.options.rewriting.footers]]
text = "Grüße"
[[plugins.options.milter.filters]]
name = "opendkim"
socket = "unix:{opendkim.where}"
timeout_s = 20
"""
    )
    assert running.send(b"From: Ann <ann@a.test>\r\nSubject: x\r\n\r\ntext\r\n", "bob@one.test").startswith("250")
    body = running.came("bob@one.test").body
    assert b"Gr=C3=BC=C3=9Fe" in body
    assert b"content-transfer-encoding" in body.lower()
    assert dkim.verify(body, dnsfunc=lambda name, timeout=5: key[1])


def test_what_a_filter_puts_in_quarantine_is_held_until_it_is_released(running: Any) -> None:
    letter = b"From: Ann <ann@a.test>\r\nSubject: x\r\n\r\n" + VIRUS + b"\r\n"
    assert running.send(letter, "held@one.test").startswith("250")
    end = time.monotonic() + 60
    while not (held := running.mta.ask("size")["total"]["held"]):
        assert time.monotonic() < end, running.mta.log_tail()
        time.sleep(0.05)
    assert held == 1
    assert not [one for one in running.sink.messages if "held@one.test" in one.recipients]
    running.zonemta("queue", "release", "--recipient", "held@one.test", "--yes")
    assert b"X-Virus-Status: Infected" in running.came("held@one.test").body


# -- filters of the test's own

Heard = list[tuple[bytes, bytes]]
OPTIONS = struct.pack("!III", 6, 0xFD, 0)


def packet(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack("!I", len(data) + 1) + kind + data


@asynccontextmanager
async def speaking(
    answers: dict[bytes, bytes], options: bytes = OPTIONS, last: bytes = packet(b"c")
) -> AsyncIterator[tuple[str, Heard]]:
    """A filter: what it says to a command, in place of "continue"; last: to the end of a message. Its socket, and what
    it has heard."""
    heard: Heard = []
    ended = list[asyncio.Event]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = struct.unpack("!III", options[:12])[2] if len(options) >= 12 else 0
        ended.append(over := asyncio.Event())
        silent = {b"L"} if protocol & 0x80 else set()
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (length,) = struct.unpack("!I", await reader.readexactly(4))
                whole = await reader.readexactly(length)
                command, data = whole[:1], whole[1:]
                heard.append((command, data))
                if command == b"O":
                    writer.write(packet(b"O", options))
                elif command == b"E":
                    writer.write(last)
                elif command not in b"DAQ" and command not in silent:
                    writer.write(answers.get(command + data, answers.get(command, packet(b"c"))))
        writer.close()
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"inet:127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
    finally:
        for over in ended:
            await over.wait()
        server.close()


def load(*sockets: str, **more: Any) -> Host:
    filters = [{"name": f"f{n}", "socket": where, "timeout_s": 9} | more for n, where in enumerate(sockets, 1)]
    return Host.load(Plugins(enabled=["milter"], options={"milter": {"filters": filters}}, timeout_s=30))


def envelope(*recipients: str) -> Envelope:
    people = [Recipient(one) for one in recipients or ("bob@b.test",)]
    return Envelope("ann@a.test", people, origin="192.0.2.7", origin_name="pc", user="ann")


MESSAGE = b"From: Ann <ann@a.test>\r\nSubject: a\r\n b\r\n\r\ntext\r\n"


async def judged(host: Host, of: Envelope | None = None, message: bytes = MESSAGE) -> Envelope:
    of = of or envelope()
    assert await received(host, message, of) == message
    return of


async def sent(host: Host, of: Envelope, attempts: int = 0) -> Headers:
    delivery = Delivery(1, "m", "default", "b.test", of.sender, of.recipients, 9, 1, attempts=[attempts])
    delivery.notes = of.notes
    headers = Headers.parse(b"Received: by us\r\n" + MESSAGE)
    await host.call("sender_headers", delivery=delivery, headers=headers)
    return headers


async def test_a_filter_hears_the_whole_message() -> None:
    async with speaking({}) as (where, heard):
        await judged(load(where), envelope("bob@b.test", "carl@b.test"))
    said = [(command, data) for command, data in heard if command not in (b"O", b"D")]
    assert said == [
        (b"C", b"[192.0.2.7]\x004\0\x00192.0.2.7\0"),
        (b"H", b"pc\0"),
        (b"M", b"<ann@a.test>\0"),
        (b"R", b"<bob@b.test>\0"),
        (b"R", b"<carl@b.test>\0"),
        (b"T", b""),
        (b"L", b"From\0Ann <ann@a.test>\0"),
        (b"L", b"Subject\0a\n b\0"),
        (b"N", b""),
        (b"B", b"text\r\n"),
        (b"E", b""),
        (b"Q", b""),
    ]
    macros = b"".join(data for command, data in heard if command == b"D")
    assert b"{auth_authen}\0ann\0" in macros


@pytest.mark.parametrize(
    ("protocol", "silent"),
    [(0x01, b"C"), (0x02, b"H"), (0x04, b"M"), (0x08, b"R"), (0x10, b"B"), (0x20, b"L"), (0x40, b"N"), (0x200, b"T")],
)
async def test_steps_that_it_does_not_want(protocol: int, silent: bytes) -> None:
    async with speaking({}, struct.pack("!III", 6, 0, protocol)) as (where, heard):
        await judged(load(where))
    assert silent not in [command for command, _ in heard]


async def test_fields_that_it_does_not_answer_and_spaces_that_it_wants() -> None:
    async with speaking({}, struct.pack("!III", 6, 0, 0x100080)) as (where, heard):
        await judged(load(where))
    assert (b"L", b"Subject\0 a\n b\0") in heard


async def test_an_old_filter_hears_of_no_data() -> None:
    async with speaking({}, struct.pack("!III", 2, 0, 0)) as (where, heard):
        await judged(load(where))
    assert b"T" not in [command for command, _ in heard]


async def test_it_may_have_seen_enough() -> None:
    """Of the body, or of the whole message."""
    long = MESSAGE + b"x" * 200_000
    async with speaking({b"B": packet(b"s")}, struct.pack("!III", 6, 0, 0x400)) as (where, heard):
        await judged(load(where), message=long)
    assert [command for command, _ in heard].count(b"B") == 1
    async with speaking({b"M": packet(b"a")}) as (where, heard):
        await judged(load(where), message=long)
    assert {command for command, _ in heard} & {b"R", b"B", b"E"} == set()


CHANGES = [
    (packet(b"h", b"X-A\0one\n two\0"), b"\r\nX-A: one\r\n two\r\n"),
    (packet(b"i", b"\0\0\0\0X-A\0top\0"), b"X-A: top\r\nReceived: by us\r\n"),
    (packet(b"i", b"\0\0\0\2X-A\0second\0"), b"From: Ann <ann@a.test>\r\nX-A: second\r\n"),
    (packet(b"i", b"\0\0\0\x63X-A\0last\0"), b" b\r\nX-A: last\r\n"),
    (packet(b"m", b"\0\0\0\1subject\0new\0"), b"subject: new\r\n"),
    (packet(b"m", b"\0\0\0\1Subject\0\0"), b"From: Ann <ann@a.test>\r\n"),
    (packet(b"m", b"\0\0\0\2Subject\0more\0"), b" b\r\nSubject: more\r\n"),
    (packet(b"h", b"X-A\0one\r\nBcc: eve@e.test\0"), b"X-A: one\r\n\tBcc: eve@e.test\r\n"),
    (packet(b"h", b"X-A\0one\r\n\r\nbody\0"), b"X-A: one\r\n\tbody\r\n"),
]


@pytest.mark.parametrize(("change", "then"), CHANGES)
async def test_header_fields(change: bytes, then: bytes) -> None:
    """Whatever a value has in it, it stays one field."""
    async with speaking({}, last=packet(b"p") + change + packet(b"c")) as (where, _):
        host = load(where)
        section = (await sent(host, await judged(host))).build()
    assert then in section
    assert section.count(b"\r\n\r\n") == 0


async def test_sender_and_recipients() -> None:
    last = (
        packet(b"e", b"<other@a.test>\0") + packet(b"+", b"<eve@b.test>\0")
        + packet(b"2", b"fay@b.test\0NOTIFY=NEVER\0") + packet(b"-", b"<BOB@b.test>\0") + packet(b"a")
    )  # fmt: skip
    async with speaking({}, last=last) as (where, _):
        found = await judged(load(where), envelope("bob@b.test", "carl@b.test"))
    assert found.sender == "other@a.test"
    assert [one.address for one in found.recipients] == ["carl@b.test", "eve@b.test", "fay@b.test"]
    async with speaking({}, last=packet(b"-", b"bob@b.test\0") + packet(b"c")) as (where, _):
        with pytest.raises(Drop):
            await judged(load(where))


async def test_quarantine() -> None:
    async with speaking({}, last=packet(b"q", b"too odd\0") + packet(b"c")) as (where, _):
        host = load(where)
        found = await judged(host)
    with pytest.raises(Hold) as caught:
        await sent(host, found)
    assert caught.value.reason == "milter f1: too odd"
    await sent(host, found, attempts=1)


VERDICTS = [
    (packet(b"r"), 550, "Refused by f1"),
    (packet(b"t"), 451, "Try again later"),
    (packet(b"f"), 451, "Try again later"),
    (packet(b"y", b"554 5.7.9 not you\0"), 554, "not you"),
    (packet(b"y", b"554-5.7.9 one\r\n554 5.7.9 two\0"), 554, "one"),
    (packet(b"d"), 250, "OK"),
]


@pytest.mark.parametrize("command", [b"C", b"H", b"M", b"T", b"L", b"N", b"B", b"E"])
@pytest.mark.parametrize(("answer", "code", "text"), VERDICTS)
async def test_verdicts(command: bytes, answer: bytes, code: int, text: str) -> None:
    """At whichever step."""
    last = answer if command == b"E" else packet(b"c")
    async with speaking({command: answer}, last=last) as (where, _):
        with pytest.raises(Drop if code == 250 else Reject) as caught:
            await judged(load(where))
    assert caught.value.reply.code == code
    assert text in caught.value.reply.text


async def test_a_recipient_that_it_refuses_bounces() -> None:
    """The only one: the message is refused."""
    async with speaking({b"R": packet(b"y", b"550 5.1.1 not her\0")}) as (where, _):
        with pytest.raises(Reject, match="not her"):
            await judged(load(where))
    async with speaking({b"R<bob@b.test>\0": packet(b"y", b"550 5.1.1 not him\0")}) as (where, _):
        host = load(where)
        found = await judged(host, envelope("bob@b.test", "carl@b.test"))
    for one in found.recipients:
        routing = Routing(one.address, "default", notes=one.notes)
        if one.address == "carl@b.test":
            await host.call("queue_route", envelope=found, routing=routing)
        else:
            with pytest.raises(Reject, match="not him"):
                await host.call("queue_route", envelope=found, routing=routing)


async def test_several_filters() -> None:
    """Changes in their order; the first that refuses decides, and the others are told nothing more."""
    async with (
        speaking({}, last=packet(b"h", b"X-A\0one\0") + packet(b"c")) as (one, _),
        speaking({}, last=packet(b"h", b"X-A\0two\0") + packet(b"c")) as (two, _),
        speaking({b"B": packet(b"r")}) as (no, heard),
    ):
        host = load(one, two)
        assert (await sent(host, await judged(host))).all("x-a") == ["one", "two"]
        with pytest.raises(Reject):
            await judged(load(no, one))
    assert heard[-1][0] == b"Q"


async def test_a_body_cannot_be_replaced_and_the_log_says_so() -> None:
    async with speaking({}, struct.pack("!III", 6, 0x02, 0)) as (where, _):
        with pytest.raises(PluginFailed) as caught:
            await judged(load(where))
    assert "it wants to replace bodies; configure it not to" in caught.value.problem


WRONG = {
    "another protocol": b"220 smtp\r\n",
    "nothing": b"",
    "zeros": bytes(40),
    "too long": b"\x7f\xff\xff\xffO",
    "half": b"\0\0\0\x0dO\0\0",
    "short": packet(b"O", b"\0\0\0\6"),
    "not asked": packet(b"O", struct.pack("!III", 6, 0, 0x800)),
}


@pytest.mark.parametrize("what", [*WRONG, "never"])
async def test_wrong_and_slow(what: str) -> None:
    """Closed: deferred; open: the message goes on, is counted, and other filters are asked."""
    slow = what in ("never", "half")
    async with answering(WRONG.get(what, b""), asked=b"O", stays=slow) as port:
        where, limit = f"inet:127.0.0.1:{port}", {"timeout_s": 0.3} if slow else {}
        with pytest.raises(PluginFailed) as caught:
            await judged(load(where, **limit))
        assert "milter f1 at inet:127.0.0.1:" in caught.value.problem
        async with speaking({}, last=packet(b"h", b"X-A\0one\0") + packet(b"c")) as (good, _):
            host = load(where, good, failing="open", **limit)
            assert (await sent(host, await judged(host))).all("x-a") == ["one"]
        assert {"plugin": "milter", "counter": "passed_unseen", "value": 1} in host.statistics()


LATE = {
    "name": packet(b"h", b"X A\0x\0"),
    "short": packet(b"m", b"\0"),
    "body": packet(b"b", b"other"),
    "address": packet(b"+", b"a b\0"),
    "unknown": packet(b"x"),
    "many": packet(b"h", b"X-A\0x\0") * 51,
}


@pytest.mark.parametrize("what", LATE)
async def test_changes_that_nobody_can_make(what: str) -> None:
    """None of the filter's is made then."""
    async with speaking({}, last=packet(b"h", b"X-B\0x\0") + LATE[what] + packet(b"c")) as (where, _):
        with pytest.raises(PluginFailed):
            await judged(load(where))
        assert (await judged(load(where, failing="open"))).notes == {}


async def test_down_and_there_again(opendkim: Server) -> None:
    closed, opened = (load(f"unix:{opendkim.where}", failing=how) for how in ("closed", "open"))
    opendkim.stop()
    with pytest.raises(PluginFailed) as caught:
        await judged(closed)
    assert "start it, or correct its socket" in caught.value.problem
    await judged(opened)
    opendkim.start()
    local = envelope()
    local.origin = "127.0.0.1"
    assert "DKIM-Signature" in await sent(opened, await judged(opened, local))


async def test_opendkim_stands_still(opendkim: Server) -> None:
    where, local = f"unix:{opendkim.where}", envelope()
    local.origin = "127.0.0.1"
    with opendkim.frozen():
        with pytest.raises(PluginFailed, match="does not answer within"):
            await judged(load(where, timeout_s=0.5))
        opened = load(where, failing="open", timeout_s=0.5)
        assert (await judged(opened)).notes == {}
    opened = load(where, failing="open")
    assert "DKIM-Signature" in await sent(opened, await judged(opened, local))


def test_the_example_of_its_page() -> None:
    import plugins.milter as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins)


def test_mistakes() -> None:
    with pytest.raises(PluginError, match="write unix:/path, inet:host:port or inet:port@host"):
        load("/run/socket")
    with pytest.raises(PluginError, match=r"is 36 together; it must be below plugins.timeout_s, which is 30"):
        load(*["unix:/x"] * 4)
