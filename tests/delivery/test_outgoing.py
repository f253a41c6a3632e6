"""What leaves: signatures made once, fields above the message, return paths of our own."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import dkim as dkimpy
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.mail.hashes import body_hash
from zonemta_py.config import Config
from zonemta_py.delivery import worker
from zonemta_py.delivery.message.body import Body
from zonemta_py.delivery.message.outgoing import Outgoing
from zonemta_py.delivery.message.signing import AGAIN_S, Signer
from zonemta_py.mail.addresses import leaving, srs, verp
from zonemta_py.mail.addresses.link import decode
from zonemta_py.mail.dkim.signature import Key
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Delivery, Result

SECRET = "0123456789abcdef"
ID = "0199aabbccddeeff"
HEAD = b"Received: by us\r\nFrom: Ann <ann@news.d.example>\r\nTo: r@x.example\r\nSubject: x\r\n"
MESSAGE = HEAD + b"\r\nhello  there \r\n\r\n"
Configure = Callable[..., Config]
Send = Callable[..., Awaitable[list[Result]]]


@pytest.fixture(scope="module")
def pems() -> dict[str, bytes]:
    made = {"r": rsa.generate_private_key(65537, 2048), "e": ed25519.Ed25519PrivateKey.generate()}
    return {
        name: key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[attr-defined]
        for name, key in made.items()
    }


@pytest.fixture
def configure(tmp_path: Path, pems: dict[str, bytes]) -> Configure:
    """A configuration whose keys r (RSA) and e (Ed25519) sign for d.example; more sections as keyword arguments."""

    def make(keys: str = "re", **sections: Any) -> Config:
        for name in keys:
            (tmp_path / name).write_bytes(pems[name])
        rows = [{"domain": "d.example", "selector": name, "key": str(tmp_path / name)} for name in keys]
        zone = {"name": "default", "tls": "none", "reply_timeout_s": 20, "connect_timeout_s": 20}
        return Config.model_validate({"dkim": rows, "zones": [zone]} | sections)

    return make


@pytest.fixture
def send(queue_of: Any) -> Send:
    async def run(config: Config, *deliveries: Delivery, chunk: Any = None, host: Host | None = None) -> list[Result]:
        for number, delivery in enumerate(deliveries, 1):
            delivery.lease = number
        queue = queue_of(list(deliveries), chunk, 1)
        await asyncio.wait_for(worker.run(config, queue, host or Host.empty(), 1), 60)
        return sorted(queue.results, key=lambda result: result.lease)

    return run


def to(port: int, body: bytes = MESSAGE, **fields: Any) -> Delivery:
    """A delivery of one chunk to a server on 127.0.0.1."""
    recipients = [Recipient("r@x.example")]
    return Delivery(
        0, ID, "default", "x.example", "a@b.example", recipients, len(body), 1, body, "127.0.0.1", port, **fields
    )


def verified(message: bytes, pems: dict[str, bytes]) -> list[bool]:
    keys = [Key("d.example", name, pem) for name, pem in pems.items()]
    records = {f"{key.selector}._domainkey.d.example.".encode(): key.record().encode() for key in keys}
    checker = dkimpy.DKIM(message)
    count = Headers.parse(message).count("dkim-signature")
    return [checker.verify(place, dnsfunc=lambda name, timeout=5: records.get(name)) for place in range(count)]


@pytest.mark.parametrize("hashes", [{}, {"relaxed": body_hash("relaxed", MESSAGE.partition(b"\r\n\r\n")[2])}])
async def test_signed_by_every_key(
    hashes: dict[str, bytes], configure: Configure, send: Send, scripted: Any, pems: Any
) -> None:
    """Signatures stand on top, verify, and count in SIZE; with the hash of reception or without."""
    server = await scripted()
    [result] = await send(configure(), to(server.port, hashes=hashes))
    assert result.outcomes[0].verdict == DELIVERED
    [body] = server.bodies
    assert body.endswith(MESSAGE)
    assert verified(body, pems) == [True, True]
    assert any(f"SIZE={len(body)}" in line for line in server.commands)


async def test_other_authors_are_not_signed(configure: Configure, send: Send, scripted: Any) -> None:
    """Nobody's key signs for somebody else."""
    server = await scripted()
    message = MESSAGE.replace(b"news.d.example", b"other.example")
    await send(configure(), to(server.port, message))
    assert server.bodies == [message]


async def test_mail_of_the_unbound_is_not_signed(configure: Configure, send: Send, scripted: Any) -> None:
    """Though it says that it is from a domain of ours: nobody has said that who handed it in may say so."""
    server = await scripted()
    await send(configure(), to(server.port, unsigned=True), to(server.port))
    assert sorted(body.startswith(b"DKIM") for body in server.bodies) == [False, True]


async def test_in_chunks(configure: Configure, send: Send, scripted: Any, pems: Any) -> None:
    """A large message whose hash is not known is read once for it, then sent; the header spans two chunks."""
    server = await scripted()
    whole = HEAD + b"X-Long: " + b"x" * 900 + b"\r\n\r\n" + b"line of text  \r\n" * 20_000
    chunks = [whole[:200], *(whole[at : at + 65536] for at in range(200, len(whole), 65536))]
    delivery = Delivery(
        0, ID, "default", "x.example", "a@b.example", [Recipient("r@x.example")], len(whole), len(chunks), None,
        "127.0.0.1", server.port,
    )  # fmt: skip
    await send(configure(), delivery, chunk=lambda _, number: chunks[number - 1])
    [body] = server.bodies
    assert body.endswith(whole)
    assert verified(body, pems) == [True, True]


async def test_a_broken_key_defers(
    configure: Configure, send: Send, scripted: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """4.7.0, in no server's stage; nothing leaves unsigned; the log says it once; other mail goes on."""
    server = await scripted()
    config = configure("e")
    (tmp_path / "e").write_text("broken")
    other = MESSAGE.replace(b"news.d.example", b"other.example")
    letters = [to(server.port, body) for body in (MESSAGE, MESSAGE, other)]
    results = await send(config, *letters)
    assert [result.outcomes[0].verdict for result in results] == [DEFERRED, DEFERRED, DELIVERED]
    [outcome] = results[0].outcomes
    assert (outcome.reply.code, outcome.reply.enhanced, outcome.stage) == (451, "4.7.0", "queue")
    assert server.bodies == [other]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_signed_once_for_many_deliveries(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same header gives the same fields; another header, or an hour later, new ones."""
    made: list[str] = []
    sign = Key.sign
    monkeypatch.setattr(Key, "sign", lambda key, *rest: made.append(key.selector) or sign(key, *rest))
    signer = Signer(configure())

    async def ask() -> bytes:
        made.append("hash")
        await asyncio.sleep(0.01)
        return b"h" * 32

    async def fields(section: bytes = HEAD, now: float = 0) -> bytes:
        return await signer.sign(ID, section, None, ask, now, 1_700_000_000 + int(now))

    first = await fields()
    assert [await fields() for _ in range(3)] == [first] * 3
    assert made == ["hash", "r", "e"]
    assert b"t=1700000000" in first
    assert await fields(b"To: y\r\n" + HEAD) != first
    assert b"t=1700003600" in await fields(now=AGAIN_S)
    assert made == ["hash", "r", "e", "r", "e", "r", "e"]


async def test_a_body_is_hashed_once_at_a_time(configure: Configure) -> None:
    """Deliveries that begin together share the reading of the body."""
    signer, asked = Signer(configure("e")), 0

    async def ask() -> bytes:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        return b"h" * 32

    sections = [b"X-Number: %d\r\n" % number + HEAD for number in range(5)]
    await asyncio.gather(*(signer.sign(ID, section, None, ask, 0, 0) for section in sections))
    assert asked == 1


async def test_a_merged_message_is_signed_as_it_was_made(configure: Configure) -> None:
    """The next attempt may be another text below the same header: the signature is of that."""
    outgoing, made = Outgoing(configure("e")), set[bytes]()
    for text in (b"wrong\r\n", b"right\r\n"):
        whole = HEAD + b"\r\n" + text
        delivery = Delivery(
            1, ID, "default", "x", "ann@d.example", [Recipient("r@x.example")], len(whole), 0, whole, values=[["Ann"]]
        )
        body = Body(delivery, None)  # type: ignore[arg-type]
        await outgoing.finish(delivery, body)
        signature = Headers.parse(body.whole or b"").get("DKIM-Signature") or ""
        hashed = base64.b64encode(await Body(delivery, None).hash("relaxed"))  # type: ignore[arg-type]
        assert hashed.decode() in "".join(signature.split())
        made.add(hashed)
    assert len(made) == 2


# fields of ours


@pytest.fixture
def finished(configure: Configure) -> Callable[..., Awaitable[Headers]]:
    """The header section of a message as it would leave."""

    async def run(path: dict[str, Any], body: bytes = MESSAGE, **fields: Any) -> Headers:
        config = configure("e", return_path={"secret": SECRET} | path)
        recipients = fields.pop("recipients", [Recipient("r@x.example")])
        sender = fields.pop("sender", "ann@d.example")
        delivery = Delivery(1, ID, "default", "x", sender, recipients, len(body), 1, body, **fields)
        outgoing = Body(delivery, None)  # type: ignore[arg-type]
        await Outgoing(config).finish(delivery, outgoing)
        assert outgoing.whole is not None
        assert outgoing.size == len(outgoing.whole)
        return Headers.parse(outgoing.whole)

    return run


async def test_feedback_id(finished: Any) -> None:
    """Added, and covered by the signature."""
    headers = await finished({"feedback_id": "{campaign}:{tenant}:{sender}:esp"}, campaign="spring sale", tenant="t")
    assert headers.get("feedback-id") == "spring_sale:t:d.example:esp"
    assert "Feedback-ID" in "".join(headers.get("dkim-signature").split())


async def test_a_notice_is_no_list_mail(finished: Any) -> None:
    """What has the null return path gets neither field, whatever its zone."""
    path = {"feedback_id": "{id}", "list_unsubscribe": "https://u.example/", "list_unsubscribe_zones": ["default"]}
    headers = await finished(path, sender="")
    assert ("feedback-id" in headers, "list-unsubscribe" in headers) == (False, False)


async def test_unsubscribe_when_asked_for(finished: Any) -> None:
    """Both fields, both signed (RFC 8058 4), only for who asked."""
    url = {"list_unsubscribe": "https://u.example/{id}/{recipient}/{token}"}
    assert "list-unsubscribe" not in await finished(url)
    headers = await finished(url, unsubscribe=True)
    assert headers.get("list-unsubscribe").startswith(f"<https://u.example/{ID}/r%40x.example/")
    signed = "".join(headers.get("dkim-signature").split()).partition(";h=")[2]
    assert "List-Unsubscribe:List-Unsubscribe-Post" in signed
    assert "list-unsubscribe" in await finished(url | {"list_unsubscribe_zones": ["default"]})


async def test_fields_that_are_there_stay(finished: Any) -> None:
    """The author's own are better than ours."""
    body = b"list-unsubscribe: <mailto:x@d.example>\r\nFEEDBACK-ID: mine\r\n" + MESSAGE
    path = {"feedback_id": "ours", "list_unsubscribe": "https://u.example/"}
    headers = await finished(path, body, unsubscribe=True)
    assert headers.all("feedback-id") == ["mine"]
    assert headers.all("list-unsubscribe") == ["<mailto:x@d.example>"]
    assert "list-unsubscribe-post" not in headers


async def test_no_link_serves_two_people(finished: Any) -> None:
    """Where the link names a recipient, and there are several all the same, there is none."""
    two = [Recipient("r@x.example"), Recipient("s@x.example")]
    assert "list-unsubscribe" not in await finished(
        {"list_unsubscribe": "https://u.example/{token}"}, unsubscribe=True, recipients=two
    )
    assert "list-unsubscribe" in await finished(
        {"list_unsubscribe": "https://u.example/{id}"}, unsubscribe=True, recipients=two
    )


# return paths


def path_of(config: Config, sender: str, *recipients: str, day: int = 20_000) -> str:
    delivery = Delivery(1, ID, "default", "x", sender, [Recipient(one) for one in recipients], 0, 1)
    said = Outgoing(config).addressed(delivery, day * 86_400)
    assert delivery.sender == sender
    return said.sender


def test_verp(configure: Configure) -> None:
    """It names message and recipient; never for the null path, nor where several would share one."""
    config = configure(return_path={"secret": SECRET, "verp": "b.example"})
    path = path_of(config, "ann@d.example", "r@x.example")
    assert verp.decode(path, SECRET, 20_001, 21)[:3] == (ID, "r@x.example", 1)
    assert path_of(config, "", "r@x.example") == ""
    assert path_of(config, "ann@d.example", "r@x.example", "s@x.example") == "ann@d.example"


def test_srs(configure: Configure) -> None:
    """Foreign domains only."""
    own = ["d.example", "*.d.example", "bücher.example"]
    config = configure(return_path={"secret": SECRET, "srs": "srs.example", "own_domains": own})
    path = path_of(config, "eve@there.example", "r@x.example", "s@x.example")
    assert path.endswith("@srs.example")
    assert srs.reverse(path, SECRET, 20_001, 21) == "eve@there.example"
    for sender in ("", "a@d.example", "a@news.D.example", "a@srs.example", "a@xn--bcher-kva.example", path):
        assert path_of(config, sender, "r@x.example") == sender
    assert path_of(config, "a@xd.example", "r@x.example") != "a@xd.example"


async def test_what_mail_says(configure: Configure, send: Send, scripted: Any) -> None:
    """MAIL has the rewritten path; who gets notifications is not changed."""
    server = await scripted()
    delivery = to(server.port)
    await send(configure(return_path={"secret": SECRET, "verp": "b.example"}), delivery)
    [mail] = [line for line in server.commands if line.startswith("MAIL")]
    assert mail.startswith("MAIL FROM:<b")
    assert "-r=x.example@b.example>" in mail
    assert delivery.sender == "a@b.example"


LINKS = {"enabled": True, "url": "https://mail.example.com", "secrets": [SECRET]}


async def test_links_to_our_own_listener(configure: Configure) -> None:
    """Campaign mail, mail of zones for campaigns, and what asks: a link and an address, each signed for the recipient
    and the scope that the message names."""
    own = {"links": LINKS, "return_path": {"secret": SECRET, "unsubscribe_domain": "u.example"}}
    config = configure("e", **own, zones=[{"name": "default"}, {"name": "bulk", "campaigns": True}])

    async def fields(zone: str = "default", **more: Any) -> Headers:
        delivery = Delivery(1, ID, zone, "x", "ann@d.example", [Recipient("r@x.example")], 1, 1, MESSAGE, **more)
        outgoing = Body(delivery, None)  # type: ignore[arg-type]
        await Outgoing(config).finish(delivery, outgoing)
        assert outgoing.whole is not None
        return Headers.parse(outgoing.whole)

    assert "list-unsubscribe" not in await fields()
    for more in ({"zone": "bulk"}, {"values": [[]]}, {"unsubscribe": True}):
        assert "list-unsubscribe" in await fields(**more)  # type: ignore[arg-type]
    headers = await fields(unsubscribe=True, unsubscribe_scope="all", campaign="spring", tenant="acme")
    assert headers.get("list-unsubscribe-post") == "List-Unsubscribe=One-Click"
    url, address = headers.get("list-unsubscribe").split()
    token = url.removeprefix("<https://mail.example.com/u/").removesuffix(">,")
    link = decode(token, [SECRET])
    assert link[:6] == ("unsubscribe", ID, "r@x.example", "spring", "acme", "all")
    headers = await fields(unsubscribe=True, unsubscribe_scope="list", list_name="weekly.example", list_title="Deals")
    token = headers.get("list-unsubscribe").split()[0].removeprefix("<https://mail.example.com/u/").removesuffix(">,")
    link = decode(token, [SECRET])
    assert (link.entry_scope, link.list_title) == ("list:weekly.example", "Deals")
    written = address.removeprefix("<mailto:").partition("?")[0]
    left = leaving.decode(written, SECRET, int(time.time()) // 86_400, 365)
    assert (left.returned.id, left.returned.recipient, left.scope) == (ID, "r@x.example", "all")


EIGHT = (
    HEAD + b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
    + "Grüße\r\n".encode() + b"x" * 400 + b"\r\n"
)  # fmt: skip
LONG = EIGHT.replace(b"x" * 400, b"x" * 4_000)
SIGNED = HEAD + b"Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n\r\nGr\xc3\xbc\xc3\x9fe\r\n--s--\r\n"


def told(message: bytes) -> str:
    payload = message_from_bytes(message).get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()


async def test_every_server_gets_what_it_can_take(configure: Configure, send: Send, scripted: Any, pems: Any) -> None:
    """The same message to servers with and without 8BITMIME, in both orders: seven bits only where they are needed, and
    each signature is one over what was sent, though they are remembered by message."""
    eight, seven = await scripted(), await scripted(keywords=("PIPELINING", "SIZE"))
    hashes = {"relaxed": body_hash("relaxed", EIGHT.partition(b"\r\n\r\n")[2])}
    ports = (seven.port, eight.port, eight.port, seven.port)
    await send(configure(), *(to(port, EIGHT, hashes=hashes, lines=1, eightbit=True) for port in ports))
    assert [body.endswith(EIGHT) for body in eight.bodies] == [True, True]
    assert [body.isascii() for body in seven.bodies] == [True, True]
    assert all(verified(body, pems) == [True, True] for body in (*eight.bodies, *seven.bodies))
    assert {told(body) for body in (*eight.bodies, *seven.bodies)} == {told(EIGHT)}
    assert [" BODY=8BITMIME" in line for line in eight.commands if line.startswith("MAIL")] == [True, True]
    sizes = {line.split("SIZE=")[1] for line in seven.commands if line.startswith("MAIL")}
    assert sizes == {str(len(seven.bodies[0]))}


@pytest.mark.parametrize("lines", [0, 2])
async def test_long_lines_are_recoded(lines: int, configure: Configure, send: Send, scripted: Any, pems: Any) -> None:
    """Whether reception has noted them or nobody has; the signature is over what was sent."""
    server = await scripted()
    hashes = {"relaxed": body_hash("relaxed", LONG.partition(b"\r\n\r\n")[2])}
    await send(configure(), *(to(server.port, LONG, hashes=hashes, lines=lines) for _ in range(2)))
    for body in server.bodies:
        assert max(map(len, body.split(b"\r\n"))) <= 998
        assert verified(body, pems) == [True, True]
        assert told(body) == told(LONG)
    assert len(server.bodies) == 2


async def test_bare_line_ends_never_leave(configure: Configure, send: Send, scripted: Any) -> None:
    """Of mail that nobody has looked at: a server could take them for the end of the message, and read commands."""
    server = await scripted()
    await send(configure(""), to(server.port, MESSAGE + b"a\n.\nMAIL FROM:<x>\rb\r\n"))
    assert server.bodies[0].endswith(b"a\r\n.\r\nMAIL FROM:<x>\r\nb\r\n")


async def test_in_chunks_to_seven_bits(configure: Configure, send: Send, scripted: Any, pems: Any) -> None:
    """A large message is read once to see that it has to be recoded, and goes out in pieces; its neighbour, which needs
    nothing, is not touched."""
    server = await scripted(keywords=("PIPELINING",))
    for line, lines in (("Grüße\r\n".encode(), 1), (b"y" * 1_000 + b"\r\n", 0), (b"plain\r\n", 0)):
        whole = EIGHT.replace("Grüße".encode(), b"") + line * (700_000 // len(line))
        chunks = [whole[at : at + 65536] for at in range(0, len(whole), 65536)]
        delivery = Delivery(
            0, str(len(line)) * 16, "default", "x.example", "a@b.example", [Recipient("r@x.example")], len(whole),
            len(chunks), None, "127.0.0.1", server.port, lines=lines, eightbit=not whole.isascii(),
        )  # fmt: skip
        await send(configure(), delivery, chunk=lambda _, number, chunks=chunks: chunks[number - 1])
        body = server.bodies.pop()
        assert body.isascii()
        assert max(map(len, body.split(b"\r\n"))) <= 998
        assert verified(body, pems) == [True, True]
        assert told(body) == told(whole)
        assert body.endswith(whole) == (line == b"plain\r\n")


@pytest.mark.parametrize(
    ("message", "key", "enhanced"),
    [(EIGHT, "eight_bit", "5.6.3"), (SIGNED, "", "5.6.3"), (LONG, "long_lines", "5.6.0")],
)
async def test_what_is_not_recoded_is_returned(
    message: bytes, key: str, enhanced: str, configure: Configure, send: Send, scripted: Any
) -> None:
    """By the zone's order, or because it must not be changed; with the reason, and nothing of it has left. Or it goes
    as it is, where the zone says so."""
    server = await scripted(keywords=("PIPELINING",))
    zone = {"name": "default", "tls": "none", "reply_timeout_s": 20, "connect_timeout_s": 20}
    [result] = await send(configure("", zones=[zone | ({key: "refuse"} if key else {})]), to(server.port, message))
    assert (result.outcomes[0].verdict, result.outcomes[0].reply.enhanced) == (BOUNCED, enhanced)
    assert not any(line.startswith("MAIL") for line in server.commands)
    as_it_is = {"long_lines": "send", "eight_bit": "send"}
    await send(configure("", zones=[zone | as_it_is]), to(server.port, message))
    assert server.bodies == [message]


async def test_plugins_fields_are_folded(configure: Configure, send: Send, scripted: Any, plugin: Any) -> None:
    """What a plugin adds behind reception passes the same gate."""
    server = await scripted(keywords=())
    host = plugin(
        "from zonemta_py.plugin import Delivery, Headers\n"
        "async def sender_headers(delivery: Delivery, headers: Headers) -> None:\n"
        "    headers.add('X-Long', 'a ' * 900)\n    headers.add('X-Name', 'J\u00fcrgen')\n"
    )
    await send(configure(""), to(server.port, lines=1), host=host)
    [body] = server.bodies
    assert body.isascii()
    assert max(map(len, body.split(b"\r\n"))) <= 998
    assert message_from_bytes(body, policy=default)["X-Name"] == "Jürgen"


BY_PATH = {"verp": "v.example", "srs": "s.example", "secret": SECRET, "own_domains": ["own.example"]}


def sent(routing: dict[str, Any], sender: str = "a@b.example", **path: Any) -> str:
    """The return path for MAIL."""
    config = Config.model_validate({"return_path": BY_PATH | path, "zones": [{"name": "default"}]})
    given = Delivery(0, ID, "default", "x.example", sender, [Recipient("r@x.example")], 1, 1, routing=routing)
    return Outgoing(config).addressed(given, 0).sender


@pytest.mark.parametrize(
    ("routing", "domain"),
    [
        ({}, "v.example"),
        ({"host": "mx.example"}, "v.example"),
        ({"verp": False}, "s.example"),
        ({"verp": False, "srs": False}, "b.example"),
        ({"sender": "c@c.example"}, "c.example"),
        ({"sender": "c@c.example", "srs": True}, "s.example"),
        ({"sender": "c@own.example", "srs": True}, "s.example"),
        ({"sender": "c@c.example", "verp": True}, "v.example"),
        ({"sender": "<>"}, ""),
    ],
)
def test_a_return_path_that_a_plugin_chooses(routing: dict[str, Any], domain: str) -> None:
    """One that it names is said as it is, unless it says otherwise; that of a notice stays null."""
    assert sent(routing).rpartition("@")[2] == domain
    assert sent(routing, "") == ""


def test_srs_for_a_domain_of_ours() -> None:
    """Only by a plugin's word."""
    assert sent({}, "c@own.example", verp="") == "c@own.example"
    assert sent({"srs": True}, "c@own.example", verp="").endswith("@s.example")
    assert sent({"sender": "c@c.example"}, verp="", srs="") == "c@c.example", "with nothing configured"


async def test_a_plugin_chooses_the_key(
    configure: Configure, send: Send, scripted: Any, pems: dict[str, bytes]
) -> None:
    """One, whoever the author is, and none; each is signed anew, though they are the same message."""
    server, strange = await scripted(), MESSAGE.replace(b"news.d.example", b"other.example")
    ways = [{"dkim": "e._domainkey.d.example"}, {"dkim": "none"}, {}, {"dkim": "r._domainkey.d.example"}]
    deliveries = [to(server.port, routing=way) for way in ways]
    results = await send(configure(), *deliveries, to(server.port, strange, routing=ways[0], unsigned=True))
    assert [result.outcomes[0].verdict for result in results] == [DELIVERED] * 5
    selectors = [[field for field in (b"s=e;", b"s=r;") if field in body] for body in server.bodies]
    assert selectors == [[b"s=e;"], [], [b"s=e;", b"s=r;"], [b"s=r;"], [b"s=e;"]]
    assert verified(server.bodies[4], pems) == [True]


@pytest.mark.parametrize("keys", ["re", ""])
async def test_a_chosen_key_that_is_gone_defers(configure: Configure, send: Send, keys: str) -> None:
    """Of a configuration that came later: nothing leaves unsigned that a plugin wants signed."""
    [result] = await send(configure(keys), to(9, routing={"dkim": "old._domainkey.d.example"}))
    assert result.outcomes[0].verdict == DEFERRED
    assert "old._domainkey.d.example is not configured any more" in result.outcomes[0].reply.text
