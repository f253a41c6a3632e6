"""Whose report it is: DKIM and SPF, of those that the configuration names, and of nobody else."""

from __future__ import annotations

import asyncio
import base64
import functools
import time
from collections.abc import AsyncIterator
from typing import Any

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.delivery.test_resolver import RECORDS, NameServer
from tests.reception.back import complaint
from zonemta_py.config import Config
from zonemta_py.config.services.return_path import TrustedReporter
from zonemta_py.delivery.dns import spf
from zonemta_py.mail.classify import NoRoute
from zonemta_py.reception.feedback.proof import Lookups, Prover, SentBy

SENT = SentBy("192.0.2.7", "out.provider.test", "bounce@provider.test")


@functools.cache
def key() -> tuple[bytes, str]:
    """Private, as PEM, and its record."""
    private = rsa.generate_private_key(65537, 2048)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    der = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return pem, f"v=DKIM1; k=rsa; p={base64.b64encode(der).decode()}"


def signed(message: bytes, domain: str = "provider.test", **more: Any) -> bytes:
    options = {"canonicalize": (b"relaxed", b"relaxed"), **more}
    return dkim.sign(message, b"s1", domain.encode(), key()[0], **options) + message


class Dns:
    """Answers of DNS; None: it does not answer."""

    def __init__(self) -> None:
        self.texts: dict[str, str] | None = {"s1._domainkey.provider.test": key()[1]}
        self.said = "pass"
        self.asked: list[str] = []

    async def text(self, name: str) -> list[str]:
        self.asked.append(name)
        if self.texts is None:
            raise NoRoute(451, "4.4.3", "no answer")
        return [self.texts[name]] if name in self.texts else []

    async def spf(self, domain: str, client: str, helo: str) -> str:
        self.asked.append(f"spf {domain} {client} {helo}")
        return self.said


@pytest.fixture
def dns() -> Dns:
    return Dns()


def prover(dns: Dns, **reporter: Any) -> Prover:
    settings = TrustedReporter(**{"domain": "provider.test", **reporter})
    return Prover([settings], Lookups(dns.text, dns.spf))


@pytest.mark.parametrize("form", [(b"relaxed", b"relaxed"), (b"simple", b"simple"), (b"relaxed", b"simple")])
async def test_a_signature_proves_it(dns: Dns, form: tuple[bytes, bytes]) -> None:
    """Whatever its canonical form; blanks at the ends of lines and between words are of no account to "relaxed"."""
    message = complaint().replace(b"Hi\r\n", b"Hi  \t there  \r\n \r\n")
    assert await prover(dns).proof(signed(message, canonicalize=form), True, SENT) == "dkim"


async def test_what_was_changed_on_its_way(dns: Dns) -> None:
    whole = signed(complaint())
    asks = prover(dns)
    assert await asks.proof(whole.replace(b"ann@d.test", b"eve@d.test"), True, SENT) == ""
    assert await asks.proof(whole.replace(b"Subject: complaint", b"Subject: Complaint"), True, SENT) == ""
    assert await asks.proof(whole.replace(b"Feedback <", b"Feedbock <"), True, SENT) == ""
    assert await asks.proof(b"From: x@elsewhere.test\r\n" + whole, True, SENT) == ""
    assert await asks.proof(whole, False, SENT) == ""  # only its beginning was kept
    assert await asks.proof(signed(complaint() + b"x\r\n" * 90_000), True, SENT) == ""  # too large to be a report
    assert await asks.proof(whole, True, SENT) == "dkim"


async def test_signatures_that_prove_nothing(dns: Dns) -> None:
    """Of part of the body, of another domain, without a key, or expired."""
    asks, message = prover(dns), complaint()
    assert await asks.proof(signed(message, length=True), True, SENT) == ""
    dns.texts = {"s1._domainkey.evil.test": key()[1]}
    assert await asks.proof(signed(message, "evil.test"), True, SENT) == ""
    assert await asks.proof(signed(message), True, SENT) == ""
    dns.texts = {"s1._domainkey.provider.test": "v=DKIM1; p="}
    assert await asks.proof(signed(message), True, SENT) == ""
    assert await asks.proof(message, True, SENT) == ""
    dns.texts = {"s1._domainkey.provider.test": key()[1]}
    expired = signed(message).replace(b"; t=", b"; x=1000000000; t=", 1)
    assert await asks.proof(expired, True, SENT) == ""
    assert "s1._domainkey.evil.test" not in dns.asked  # nobody has DNS asked about whom we do not know


async def test_its_author_must_be_theirs(dns: Dns) -> None:
    """A provider's customers send from its domain, too: `senders` says who reports. A domain below is the same house;
    one that only ends like it is not."""
    message = complaint()
    narrow = prover(dns, senders=["feedback@provider.test"])
    assert await narrow.proof(signed(message), True, SENT) == "dkim"
    customer = message.replace(b"feedback@provider", b"customer@provider")
    assert await narrow.proof(signed(customer), True, SENT) == ""
    dns.texts = {"s1._domainkey.mail.provider.test": key()[1], "s1._domainkey.notprovider.test": key()[1]}
    assert await prover(dns).proof(signed(message, "mail.provider.test"), True, SENT) == "dkim"
    assert await prover(dns).proof(signed(message, "notprovider.test"), True, SENT) == ""
    other = message.replace(b"feedback@provider.test", b"feedback@elsewhere.test")
    assert await prover(dns).proof(signed(other), True, SENT) == ""


async def test_spf(dns: Dns) -> None:
    """Of the sender's domain, of the HELO name for the null sender; only "pass" proves anything."""
    asks, message = prover(dns, dkim=False, spf=True), complaint()
    assert await asks.proof(message, False, SENT) == "spf"
    assert await asks.proof(message, True, SENT._replace(sender="")) == "spf"
    assert await asks.proof(message, True, SENT._replace(sender="x@elsewhere.test")) == ""
    dns.said = "softfail"
    assert await asks.proof(message, True, SENT) == ""
    assert dns.asked == [
        "spf provider.test 192.0.2.7 out.provider.test", "spf out.provider.test 192.0.2.7 out.provider.test",
        "spf provider.test 192.0.2.7 out.provider.test",
    ]  # fmt: skip


async def test_dns_does_not_answer(dns: Dns) -> None:
    dns.texts = None
    with pytest.raises(NoRoute):
        await prover(dns).proof(signed(complaint()), True, SENT)


@pytest.mark.parametrize(
    "field",
    [
        b"DKIM-Signature: v=1; a=rsa-sha256; d=provider.test; s=s1", b"DKIM-Signature: " + b"d=provider.test;" * 10_000,
        b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=provider.test; s=s1; h=from; bh=!; b=\xff\xfe",
        b"DKIM-Signature: v=1; a=rsa-sha1; c=x; d=provider.test; s=s1; h=from; bh=eA==; b=eA==",
        b"DKIM-Signature: v=1; a=rsa-sha256; d=provider.test; s=" + "ü".encode() * 50 + b"; h=from; bh=eA==; b=eA==",
    ],
)  # fmt: skip
async def test_nonsense(dns: Dns, field: bytes) -> None:
    assert await prover(dns).proof(field + b"\r\n" + complaint(), True, SENT) == ""


async def test_a_body_of_blanks_costs_no_time(dns: Dns) -> None:
    """The library's own way with that many of them takes a minute."""
    field = b"DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=provider.test; s=s1; h=from; bh=eA==; b=eA==\r\n"
    blanks = field + complaint() + b" " * 250_000 + b"x\r\n"
    began = time.process_time()
    assert await prover(dns).proof(blanks, True, SENT) == ""
    assert time.process_time() - began < 5


@pytest.fixture
async def server() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(NameServer, ("127.0.0.1", 0))
    yield transport.get_extra_info("sockname")[1]
    transport.close()


async def test_with_real_dns(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a receiver is given: TXT records and pyspf, over our resolver; a name without records is an answer, a name
    server that fails is none."""
    record = key()[1]
    monkeypatch.setitem(RECORDS, ("s1._domainkey.provider.test.", "TXT"), [f'"{record[:200]}" "{record[200:]}"'])
    monkeypatch.setitem(RECORDS, ("provider.test.", "TXT"), ['"v=spf1 ip4:192.0.2.7 -all"'])
    config = Config.model_validate({"dns": {"servers": ["127.0.0.1"], "port": server}})
    lookups = Lookups(*spf.lookups(config))
    asks = Prover([TrustedReporter(domain="provider.test", spf=True)], lookups)
    assert await asks.proof(signed(complaint()), True, SENT) == "dkim"
    assert await asks.proof(complaint(), True, SENT) == "spf"
    assert await asks.proof(complaint(), True, SENT._replace(client="192.0.2.8")) == ""
    assert await lookups.texts("nothing.test") == []
    assert await lookups.texts(f"{'x' * 70}.test") == []
    with pytest.raises(NoRoute):
        await lookups.texts("broken.test")
