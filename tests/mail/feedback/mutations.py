"""Reports as an attacker, a broken gateway or a bad line would make them, the same for the same seed."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence

WORDS = [
    b"\r\n", b"\n\n", b"\x00", b"\xff\xfe", b"\x1b$B", b"=?utf-8?b?", b"?=", b"--",
    b"Content-Type: multipart/mixed; boundary=b\n\n--b\n", b"Content-Type: message/delivery-status\n\n",
    b"Content-Type: message/rfc822\n\n", b"Content-Type: message/feedback-report\n\n",
    b"Content-Type: text/plain; charset=punycode\n", b"Content-Type: text/plain; charset=idna\n", b"charset=utf-16",
    b"charset=utf-7", b"charset=unicode_escape", b"Content-Transfer-Encoding: base64\n",
    b"Content-Transfer-Encoding: quoted-printable\n", b"Final-Recipient: rfc822; a@b.example\n",
    b"Action: failed\n", b"Status: 5.1.1\n", b"Diagnostic-Code: smtp; 550 5.1.1 no\n", b"X-Failed-Recipients: ",
    b"a@b.example", b"@", b"<a@b.example>: ", b"550 5.1.1 ", b"550-", b"(#5.1.1)", b'{"Message":"', b"[[[[",
    b"<style", b"</style>", b'<a href="', b"----- Original message -----\n", b"Received: from x\n", b"> ",
    b"Subject: ", b"Reporting-MTA: dns; x\n\n",
]  # fmt: skip
LARGE = 70_000
"""Bytes: more than is looked at of one part."""
MESSAGE_BYTES_MAX = 400_000
Mutation = Callable[[random.Random, bytes], bytes]


def mutated(seed: int, messages: Sequence[bytes]) -> bytes:
    """One of the messages after one to four mutations."""
    chance = random.Random(seed)
    message = chance.choice(messages)
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        message = chance.choice(MUTATIONS)(chance, message)[:MESSAGE_BYTES_MAX]
    return message


def _flip(chance: random.Random, message: bytes) -> bytes:
    changed = bytearray(message)
    for _ in range(chance.choice((1, 5, 50, 500))):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _truncate(chance: random.Random, message: bytes) -> bytes:
    return message[: chance.randrange(len(message) + 1)]


def _drop(chance: random.Random, message: bytes) -> bytes:
    start = chance.randrange(len(message) + 1)
    return message[:start] + message[start + chance.choice((1, 20, 400)) :]


def _insert(chance: random.Random, message: bytes) -> bytes:
    start = chance.randrange(len(message) + 1)
    return message[:start] + chance.choice(WORDS) * chance.choice((1, 1, 3, 200)) + message[start:]


def _shuffle(chance: random.Random, message: bytes) -> bytes:
    lines = message.split(b"\n")
    start = chance.randrange(len(lines))
    part = lines[start : start + 30]
    chance.shuffle(part)
    return b"\n".join(lines[:start] + part + lines[start + 30 :])


def _repeat(chance: random.Random, message: bytes) -> bytes:
    start = chance.randrange(len(message) + 1)
    piece = message[start : start + chance.choice((1, 2, 10, 60, 800))] or b"@"
    return message[:start] + (piece * (LARGE // len(piece) + 1))[:LARGE] + message[start:]


def _endless_line(chance: random.Random, message: bytes) -> bytes:
    """In place of the line ends, too: a field, or a body, that never ends."""
    letters = chance.choice(
        (
            b"a",
            b" ",
            b"a@",
            b"<",
            b"<a@b.example> ",
            b"5",
            b"550 5.1.1 ",
            b"-",
            b"=",
            b"\t",
            b"(",
            b"a.",
            b"\xe3\x81\x82",
        )
    )
    return message.replace(b"\n", b" ", 1) + letters * (LARGE // len(letters)) + message


def _deep(chance: random.Random, message: bytes) -> bytes:
    depth = chance.choice((3, 10, 200))
    heads = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(depth))
    return heads + message


def _enclosed(chance: random.Random, message: bytes) -> bytes:
    return b"Content-Type: message/rfc822\n\n" * chance.choice((1, 3, 500)) + message


def _parts(chance: random.Random, message: bytes) -> bytes:
    kind = chance.choice((b"text/plain", b"message/delivery-status", b"message/rfc822", b"text/html", b"x"))
    part = b"--b\nContent-Type: " + kind + b"\n\n" + message[:20] + b"\n"
    return b"From: postmaster@example.net\nContent-Type: multipart/report; boundary=b\n\n" + part * 10_000


def _fields(chance: random.Random, message: bytes) -> bytes:
    return b"".join(b"X-%d: a@b.example\n" % n for n in range(chance.choice((500, 5_000)))) + message


def _recipients(chance: random.Random, message: bytes) -> bytes:
    group = (
        b"Final-Recipient: rfc822; u%d@b.example\nAction: failed\nStatus: 5.0.0\nDiagnostic-Code: smtp; " + b"x " * 900
    )
    status = b"\n\n".join(group % n for n in range(150))
    listed = b"".join(b"<u%d@b.example>: 550 no\n" % n for n in range(500))
    return b"From: mailer-daemon@x\nSubject: failure notice\nContent-Type: " + chance.choice(
        (b"message/delivery-status\n\n" + status, b"text/plain\n\n" + listed + message)
    )


def _huge_base64(chance: random.Random, message: bytes) -> bytes:
    piece = chance.choice((message, b"a@b.example 550 no\n", b"\0")) or b"x"
    coded = base64.encodebytes((piece * (LARGE // len(piece) + 1))[:LARGE])
    kind = chance.choice(
        (b"text/plain; charset=gb18030", b"text/html", b"message/delivery-status", b"text/plain; charset=hz")
    )
    return b"From: <>\nContent-Type: " + kind + b"\nContent-Transfer-Encoding: base64\n\n" + coded


def _encoded_words(chance: random.Random, message: bytes) -> bytes:
    word = chance.choice((b"=?utf-8?q?=41?= ", b"=?iso-2022-jp?b?GyRC?= ", b"=?x?", b"=?utf-8?b?QQ?="))
    return b"Subject: " + word * 5_000 + b"\nFrom: " + word * 3_000 + b"\n" + message


def _markup(chance: random.Random, message: bytes) -> bytes:
    tags = chance.choice((b"<style ", b"<br", b"<a@b.example", b"<!--", b"&#", b"<td><p>a@b.example", b"&lt;"))
    return (
        b"From: postmaster@x\nSubject: undeliverable\nContent-Type: text/html\n\n"
        + tags * (LARGE // len(tags))
        + message
    )


def _json(chance: random.Random, message: bytes) -> bytes:
    opening = chance.choice((b'{"Message":', b"[", b'{"a":[', b'{"Message":"{\\"Message\\":'))
    return b"Content-Type: text/plain\n\n{" + opening * 10_000


MUTATIONS: list[Mutation] = [
    _flip, _flip, _truncate, _drop, _drop, _insert, _insert, _shuffle, _shuffle, _repeat, _endless_line, _deep,
    _enclosed, _parts, _fields, _recipients, _huge_base64, _encoded_words, _markup, _json,
]  # fmt: skip
