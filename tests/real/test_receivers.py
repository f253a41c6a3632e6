"""Other MTAs as the end of the way: the bytes that arrive, and the state that each recipient is in afterwards.

One MTA sends every letter to every receiver, over one connection to each; the tests look at what has become of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import quopri
import re
import smtplib
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import sink_in_a_thread
from receivers import PATIENCE_S, RECEIVERS, RECIPIENTS_MAX, SIZE_MAX, Receiver
from survival.letters import Letter
from survival.letters import letter as lines_with_dots
from survival.rig import Mta

from zonemta_py.delivery.smtp.session import Route, open_session
from zonemta_py.delivery.tls import dane
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.ladder import TlsMemory
from zonemta_py.delivery.tls.plan import TlsPlan
from zonemta_py.mail.classify import DeliveryError
from zonemta_py.sink import Sink

_ZONE = """
[[zones]]
name = "{name}"
recipient_domains = ["{domain}"]
host = "127.0.0.1"
port = {port}
connections = 1
idle_s = 60
"""
_REPORT = re.compile(r"^Final-Recipient: [\w-]+; (\S+)\r\nAction: (\w+)\r\nStatus: ([\d.]+)\r\n", re.MULTILINE)
"""A recipient in a notice (RFC 3464, 6533)."""
LINE_MAX = 998
"""Octets, without its end (RFC 5321 4.5.3.1.6)."""
BODIES: Mapping[str, bytes] = {
    "plain": b"Hello.\r\n",
    "nothing": b"",
    "blank": b"\r\n\r\n \t\r\n\r\n",
    "8bit": "Grüße, 日本\r\n".encode() + bytes(range(0x80, 0x100)) + b"\r\n",
    "dots": b".\r\n..\r\n...\r\n. \r\n.a\r\n\r\n.\r\nFrom here\r\n>From there\r\n",
    "long": b"".join(start + b"x" * (LINE_MAX - len(start)) + b"\r\n" for start in (b"", b".", b"..", b" ")),
    "large": lines_with_dots(7, large=1).data,
}
TEN = ("to.0", "gone.1", "to.2", "later.3", "to.4", "gone.5", "to.6", "gone.7", "later.8", "to.9")
NONE = ("gone.10", "later.11")
MANY = 3 * RECIPIENTS_MAX + 1


def letters_to(domain: str) -> dict[str, Letter]:
    """One of each kind; each has a sender of its own."""

    def letter(kind: str, body: bytes, *users: str) -> Letter:
        head = f"Message-ID: <{kind}@letters.test>\r\nDate: Sat, 21 Nov 2026 04:00:00 +0000\r\nFrom: a@letters.test\r\n"
        return Letter(
            kind, f"{kind}@letters.test", [f"{user}@{domain}" for user in users], f"{head}\r\n".encode() + body
        )

    letters = {kind: letter(kind, body, f"{kind}.{domain[0]}") for kind, body in BODIES.items()}
    letters["ten"] = letter("ten", b"To ten.\r\n", *TEN)
    letters["none"] = letter("none", b"To nobody.\r\n", *NONE)
    letters["endless"] = letter("endless", b"z" * 300_000 + b"\r\n", "endless")
    letters["many"] = letter("many", b"To many.\r\n", *(f"many.{number}" for number in range(MANY)))
    letters["address"] = letter("address", b"Hello.\r\n", "jürgen")
    letters["too-large"] = letter("too-large", (b"y" * 70 + b"\r\n") * (SIZE_MAX // 70), "too-large")
    return letters


@dataclass
class Trial:
    """What became of the messages. reports: action and status of each recipient that its sender was told of."""

    receivers: dict[str, Receiver]
    rows: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Recipients that are still in the queue."""
    reports: dict[str, str] = field(default_factory=dict)
    connections: dict[str, int] = field(default_factory=dict)

    def state(self, recipient: str) -> str:
        """With the status the receiver gave, or the one that stands for it."""
        if recipient in self.rows:
            assert recipient not in self.reports
            row = self.rows[recipient]
            return f"{row['state']} {row['last']}"
        if recipient in self.reports:
            return self.reports[recipient]
        return "delivered"


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with tempfile.TemporaryDirectory(prefix="zonemta-receivers-") as name, sink_in_a_thread() as sink:
        folder = Path(name)
        folder.chmod(0o755)
        receivers = {one.name: one(folder / one.name) for one in RECEIVERS if not one.missing()}
        trial = Trial(receivers)
        started: list[Receiver | Mta] = []
        try:
            for receiver in receivers.values():
                receiver.start()
                started.append(receiver)
            zones = "".join(_ZONE.format(name=one.name, domain=one.domain, port=one.port) for one in receivers.values())
            mta = Mta(folder / "queue", sink.port, home=folder / "home", more=zones, processes=1, retry_min=60)
            mta.start()
            started.append(mta)
            asyncio.run(mta.accepting())
            for receiver in receivers.values():
                receiver.wait()
            before = {name: receiver.connections() for name, receiver in receivers.items()}
            for receiver in receivers.values():
                hand_in(mta.port, letters_to(receiver.domain))
            _wait(mta, sink, trial)
            trial.connections = {name: receiver.connections() - before[name] for name, receiver in receivers.items()}
            yield trial
        finally:
            for one in reversed(started):
                one.end()


def hand_in(port: int, letters: Mapping[str, Letter]) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        for letter in letters.values():
            options = ["BODY=8BITMIME"] if letter.name == "8bit" else []
            options += ["SMTPUTF8"] if letter.name == "address" else []
            assert client.sendmail(letter.sender, letter.recipients, letter.data, options) == {}


def _wait(mta: Mta, sink: Sink, trial: Trial) -> None:
    """Until every recipient has been tried, and every notice has come."""
    end = time.monotonic() + PATIENCE_S
    while True:
        total = mta.ask("size")["total"]
        if not total["queued"] and not total["leased"]:
            break
        assert time.monotonic() < end, mta.log_tail()
        time.sleep(0.05)
    trial.rows = {row["recipient"]: row for row in mta.ask("list")["rows"]}
    for message in list(sink.messages):
        found = _REPORT.findall(message.body.decode())
        trial.reports |= {recipient: f"{action} {status}" for recipient, action, status in found}


@pytest.fixture(params=RECEIVERS, ids=lambda one: one.name)
def receiver(request: pytest.FixtureRequest, trial: Trial) -> Receiver:
    if request.param.missing():
        pytest.skip(request.param.missing())
    return trial.receivers[request.param.name]


def copies_of(letter: Letter, receiver: Receiver, count: int) -> list[bytes]:
    """Those that have come, whole; waits for as many, since a receiver delivers behind its reply."""
    mark, end = f"Message-ID: <{letter.name}@".encode(), time.monotonic() + PATIENCE_S
    while len(copies := [copy for copy in receiver.copies() if mark in copy]) < count and time.monotonic() < end:
        time.sleep(0.05)
    return copies


def as_sent(copy: bytes, kind: str) -> bytes:
    """Without the encoding that a line needs which is longer than RFC 5321 4.5.3.1.6 allows."""
    if kind != "endless":
        return copy
    head, _, body = copy.partition(b"\n\n")
    assert max(map(len, copy.splitlines())) <= 998
    assert b"\nContent-Transfer-Encoding: quoted-printable" in head
    fields = [line for line in head.split(b"\n") if not line.startswith((b"Content-", b"MIME-Version"))]
    return b"\n".join(fields) + b"\n\n" + quopri.decodestring(body)


@pytest.mark.parametrize("kind", [*BODIES, "ten", "none", "endless", "many", "address"])
def test_the_bytes_arrive(receiver: Receiver, trial: Trial, kind: str) -> None:
    """One copy for each recipient that was taken: the message itself after the trace, under TLS where that works."""
    letter = letters_to(receiver.domain)[kind]
    taken = [to for to in letter.recipients if trial.state(to) == "delivered"]
    copies = copies_of(letter, receiver, len(taken))
    assert len(copies) == len(taken), receiver.log()[-3000:]
    for copy in copies:
        trace, _, rest = copy.partition(b"Message-ID: ")
        assert as_sent(b"Message-ID: " + rest, kind) == letter.data.replace(b"\r\n", b"\n")
        assert bool(re.search(rb"TLSv?1\.[23]", trace.partition(b"by mta.test")[0])) == receiver.encrypts


def test_each_recipient_in_its_state(receiver: Receiver, trial: Trial) -> None:
    """The good are delivered, the refused are bounced to the sender, those put off wait; by each one's own reply."""
    states = {kind: trial.state(f"{kind}.{receiver.name[0]}@{receiver.domain}") for kind in BODIES}
    assert states == dict.fromkeys(BODIES, "delivered")
    expected = {"to": "delivered", "gone": "failed 5.1.1", "later": "deferred 450 4.2.1"}
    for user in TEN + NONE:
        assert trial.state(f"{user}@{receiver.domain}").startswith(expected[user.partition(".")[0]]), user


def test_more_than_it_takes_at_once(receiver: Receiver, trial: Trial) -> None:
    """The rest goes in further transactions, over the same connection (RFC 5321 4.5.3.1.10)."""
    assert {trial.state(f"many.{number}@{receiver.domain}") for number in range(MANY)} == {"delivered"}


def test_who_has_an_address_of_all_letters(receiver: Receiver, trial: Trial) -> None:
    """Delivered where SMTPUTF8 is offered, and returned where it is not (RFC 6531 3.5)."""
    expected = "delivered" if "smtputf8" in receiver.offers else "failed 5.6.7"
    assert trial.state(f"jürgen@{receiver.domain}") == expected


def test_what_is_too_large_is_returned(receiver: Receiver, trial: Trial) -> None:
    """By MAIL's reply to its SIZE, or, OpenSMTPD's way, behind the dot (RFC 1870)."""
    assert trial.state(f"too-large@{receiver.domain}").startswith("failed 5.")
    assert copies_of(letters_to(receiver.domain)["too-large"], receiver, 0) == []


def test_a_line_without_end(receiver: Receiver, trial: Trial) -> None:
    """Encoded, so that no receiver breaks off in the middle of it."""
    assert trial.state(f"endless@{receiver.domain}") == "delivered"


def test_one_connection_takes_all(receiver: Receiver, trial: Trial) -> None:
    """More only where some were lost to TLS that does not work, of either version."""
    lost = 2 * (not receiver.encrypts)
    assert trial.connections[receiver.name] == 1 + lost, receiver.log()[-6000:]


def test_they_differ(receiver: Receiver) -> None:
    """They offer what is said of them, so that all of the above is tried with and without it."""
    with smtplib.SMTP("127.0.0.1", receiver.port, timeout=60) as client:
        client.ehlo("client.test")
        assert {"size", "8bitmime", "starttls", *receiver.offers} <= set(client.esmtp_features)
        for keyword in ("pipelining", "smtputf8", "chunking", "prdr"):
            assert client.has_extn(keyword) == (keyword in receiver.offers), keyword


@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_it_is_who_it_should_be(version: str, receiver: Receiver) -> None:
    """Its certificate is validated by an authority, and by TLSA records for its key or its authority's."""
    pem = receiver.certificate.read_text()
    key = dane.key_of(ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :]))
    contexts, digest = TlsContexts(receiver.certificate), hashlib.sha256(key).digest()
    plans = [TlsPlan("required", "pkix")]
    plans += [
        TlsPlan("required", "dane", tlsa=(dane.Tlsa(usage, 1, 1, digest),), names=(receiver.domain,))
        for usage in (2, 3)
    ]
    memory = TlsMemory(3600)
    if version == "1.2":
        memory.learn((receiver.domain, receiver.port), frozenset({"1.3"}), time.monotonic())
    for plan in plans:
        opening = open_session(Route(receiver.domain, "127.0.0.1", receiver.port, tls=plan), contexts, memory)
        if not receiver.encrypts:
            with pytest.raises(DeliveryError):
                await opening
            continue
        session = await opening
        session.dialogue.quit()
        assert session.tls.startswith(f"TLSv{version} ")
        assert session.tls.endswith(f" verified={plan.verify}")
