"""The bundled plugin attachment_policy: messages streamed through the host as the receiver does it."""

from __future__ import annotations

import base64
import tomllib
from email.message import EmailMessage
from typing import Any

import pytest

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Delivery, Hold
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import received
from zonemta_py.plugin.verdicts import Drop, Reject


def load(*rules: dict[str, Any], zones: tuple[str, ...] = ()) -> Host:
    options = {"attachment_policy": {"rules": list(rules)}}
    return Host.load(Plugins(enabled=["attachment_policy"], options=options), Configured(frozenset(zones)))


def message(
    name: str = "a.exe", content: bytes = b"content", kind: str = "application/octet-stream", second: str = ""
) -> bytes:
    made = EmailMessage()
    made["Subject"] = "x"
    made.set_content("text\n")
    main, sub = kind.split("/")
    made.add_attachment(content, main, sub, filename=name, params={"name": second} if second else None)
    return made.as_bytes().replace(b"\n", b"\r\n")


async def test_the_example_of_its_page() -> None:
    import plugins.attachment_policy as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    host = Host.load(Config.model_validate(document).plugins, Configured(frozenset(("default", "slow"))))
    with pytest.raises(Reject) as caught:
        await received(host, message())
    assert caught.value.reply.code == 550
    assert caught.value.reply.text.startswith("Programs are not sent")
    envelope = Envelope("ann@a.test", [])
    large = message("a.pdf", bytes(10_000_001))
    assert await received(host, large, envelope) == large
    assert envelope.sending_zone == "slow"


@pytest.mark.parametrize(
    "name",
    ["a.exe", "a.EXE", "a.exe.", "a.exe ", "a.pdf.exe", "a.e\u200bxe", "a\u202efdp.exe", "ä ö.exe", "a" * 90 + ".exe"],
)
async def test_names_that_end_so(name: str) -> None:
    """However they are disguised or encoded."""
    with pytest.raises(Reject):
        await received(load({"extensions": ["exe"]}), message(name))


@pytest.mark.parametrize("name", ["a.exe.txt", "exec", "a_exe", "a.exes"])
async def test_names_that_do_not(name: str) -> None:
    made = message(name)
    assert await received(load({"extensions": ["exe"]}), made) == made


async def test_the_name_in_content_type_counts_too() -> None:
    """Some programs show the one, some the other."""
    with pytest.raises(Reject):
        await received(load({"extensions": ["exe"]}), message("a.txt", second="a.exe"))


@pytest.mark.parametrize(
    "fields",
    [
        "Content-Disposition: attachment; filename=\"a.txt\"; filename*=utf-8''a%2Eexe",
        'Content-Disposition: attachment; filename="a.txt"; filename*0="a.e"; filename*1=xe',
        'Content-Disposition: attachment; filename="a.txt"; filename="a.exe"',
        'Content-Disposition: attachment; filename="a.txt"\r\nContent-Disposition: attachment; filename="a.exe"',
        'Content-Type: text/plain; name="a.txt"\r\nContent-Type: application/octet-stream; name="a.exe"',
        'Content-Type: text/plain; name="=?utf-8?Q?a=2Ee?= =?utf-8?B?eGU=?="\r\nContent-Disposition: x; filename=a.txt',
        'Content-Disposition: attachment; filename="a.exe" (a program)',
        "Content-Disposition: attachment (one; two); filename=a.exe(three)",
        'Content-Disposition: attachment filename="a.exe"',
        "Content-Disposition: attachment; filename='a.exe'",
        'Content-Disposition: attachment; filename="a\\.e\\xe"',
        f'Content-Disposition: attachment; x="{"y" * 9_000}"; filename="a.exe"',
    ],
)
async def test_names_of_which_programs_read_another_one(fields: str) -> None:
    """Whichever a reader's program chooses, and whatever it forgives."""
    made = f"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{fields}\r\n\r\ncontent\r\n--b--\r\n"
    with pytest.raises(Reject, match="Attachments of this kind"):
        await received(load({"extensions": ["exe"]}), made.encode())
    assert await received(load({"extensions": ["doc"]}), made.encode())


async def test_types() -> None:
    host = load({"types": ["application/zip", "video/*"], "reply": "551 5.7.1 No"})
    for kind in ("application/zip", "video/mp4"):
        with pytest.raises(Reject, match="551"):
            await received(host, message("a.txt", kind=kind))
    await received(host, message("a.zip"))


@pytest.mark.parametrize(("size", "refused"), [(3_000_000, False), (3_000_001, True)])
@pytest.mark.parametrize("encoding", ["base64", "binary"])
async def test_sizes_are_of_the_content(encoding: str, size: int, refused: bool) -> None:
    content = bytes(size) if encoding == "binary" else base64.encodebytes(bytes(size)).replace(b"\n", b"\r\n")
    made = f"Content-Type: image/png\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode() + content
    host = load({"larger_than": 3_000_000})
    if refused:
        with pytest.raises(Reject):
            await received(host, made)
    else:
        assert await received(host, made) == made


async def test_the_first_rule_decides() -> None:
    """Whatever a smaller size below it would say."""
    accepted = {"extensions": ["pdf"], "action": "accept"}
    host = load(accepted, {"larger_than": 2000, "action": "drop"}, {"larger_than": 1000})
    await received(host, message("a.pdf", bytes(3000)))
    await received(host, message("a.png", bytes(900)))
    with pytest.raises(Reject):
        await received(host, message("a.png", bytes(1500)))
    with pytest.raises(Drop):
        await received(host, message("a.png", bytes(2500)))


async def test_a_part_is_taken_out() -> None:
    """A text stands in its place; the others stay as they are; the size of what goes out counts all the same."""
    host = load({"larger_than": 5000}, {"extensions": ["exe"], "action": "remove"})
    stored = (await received(host, message("ä.exe", b"MZ" * 100))).decode()
    assert "text\r\n" in stored
    assert "[=C3=A4.exe was taken out of this message" in stored
    assert base64.b64encode(b"MZ" * 3).decode() not in stored
    assert "attachment" not in stored
    with pytest.raises(Reject):
        await received(host, message("a.exe", bytes(5001)))


async def test_nothing_is_taken_out_of_signed_mail() -> None:
    """It would no longer verify: it is refused instead."""
    signed = message().replace(b"multipart/mixed", b"multipart/signed")
    with pytest.raises(Reject):
        await received(load({"extensions": ["exe"], "action": "remove"}), signed)


async def test_mail_that_is_held_and_marked() -> None:
    """Held once: an attempt after the first is one after its release."""
    host = load(
        {"name": "zip", "types": ["application/zip"], "action": "hold"}, {"extensions": ["txt"], "action": "mark"}
    )
    envelope = Envelope("ann@a.test", [Recipient("b@b.test")])
    made = message("a.txt")
    assert await received(host, made, envelope) == made
    assert await received(host, message("a.bin", kind="application/zip"), envelope)
    delivery = Delivery(1, "m", "default", "b.test", "ann@a.test", envelope.recipients, 9, 1, attempts=[0])
    delivery.notes = envelope.notes
    headers = Headers.parse(b"X-Attachment-Policy: none\r\n")
    with pytest.raises(Hold, match="rule zip"):
        await host.call("sender_headers", delivery=delivery, headers=headers)
    delivery.attempts = [1]
    await host.call("sender_headers", delivery=delivery, headers=headers)
    assert headers.build() == b"X-Attachment-Policy: 2\r\n"


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"types": ["zip"]}, "is not a content type"),
        ({"extensions": ["*.exe"]}, "is not the end of a file name"),
        ({"action": "zone"}, "belong together"),
        ({"zone": "slow", "action": "zone"}, "there is no zone 'slow'; there are default"),
        ({"larger_than": 1, "action": "remove"}, "known only when it has passed"),
        ({"reply": " "}, "is not a reply"),
    ],
)
def test_mistakes(rule: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(rule, zones=("default",))
    assert sentence in str(caught.value)


def nested(depth: int, leaf: bytes) -> bytes:
    """A multipart in a multipart in a …"""
    body = leaf
    for number in range(depth, 0, -1):
        head = b'Content-Type: multipart/mixed; boundary="b%d"\r\n' % number
        body = head + b"\r\n--b%d\r\n%b\r\n--b%d--\r\n" % (number, body, number)
    return b"Subject: x\r\n" + body


LEAF = b'Content-Type: application/x; name="a.exe"\r\n\r\ncontent'


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (nested(30, LEAF), "nested more than 20 deep"),
        (b"Content-Type: multipart/mixed\r\n\r\n--x\r\n" + LEAF + b"\r\n--x--\r\n", "no boundary"),
        (
            b"Content-Type: multipart/mixed; boundary=x\r\n\r\n" + b"--x\r\n\r\nhi\r\n" * 1_001 + b"--x\r\n" + LEAF,
            "more than 1,000 parts",
        ),
        (b"Content-Type: text/plain\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n" + LEAF, "in two ways"),
        (b"Content-Type: multipart/mixed; boundary=y; boundary=x\r\n\r\n--x\r\n" + LEAF, "in two ways"),
        (b"Content-Type: multipart; boundary=x\r\n\r\n--x\r\n" + LEAF, "in two ways"),
        (b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nbroken\r\n" + LEAF, "that is no field"),
    ],
)
async def test_what_nobody_could_look_at_is_refused(made: bytes, why: str) -> None:
    """Or let through, by the operator's word."""
    rule = {"extensions": ["exe"]}
    with pytest.raises(Reject, match=why) as caught:
        await received(load(rule), made)
    assert (caught.value.reply.code, caught.value.reply.enhanced) == (554, "5.6.0")
    options = {"attachment_policy": {"rules": [rule], "unread": "accept"}}
    assert await received(Host.load(Plugins(enabled=["attachment_policy"], options=options)), made)
    with pytest.raises(Reject, match="Attachments of this kind"):
        await received(load(rule), nested(20, LEAF))
