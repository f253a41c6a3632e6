"""The sink's options, as one dataclass. Every invalid value is a SinkError of one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from zonemta_py.mail import limits

_LISTEN = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):(\d{1,5})")


class SinkError(ValueError):
    """One sentence: what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How the sink listens, answers and remembers. The defaults accept everything at once and only count."""

    listen: tuple[str, ...] = ("127.0.0.1:2526",)
    """Addresses and ports, "127.0.0.1:2526" or "[::1]:2526"; port 0 takes a free one."""
    hostname: str = "sink.test"
    """Name in the banner, in replies to EHLO and in a self-signed certificate."""
    capabilities: tuple[str, ...] = (
        "PIPELINING",
        f"SIZE {limits.MESSAGE_BYTES_MAX}",
        "8BITMIME",
        "SMTPUTF8",
        "ENHANCEDSTATUSCODES",
        "DSN",
    )
    """Lines of the EHLO reply. STARTTLS may be among them. SIZE with a number is enforced (RFC 1870)."""
    certificate: Path | None = None
    """PEM file with the certificate chain for STARTTLS; None: one is made, valid for `hostname` and loopback."""
    key: Path | None = None
    """PEM file with its private key; None: it is in the certificate file."""
    implicit_tls: bool = False
    """TLS from the first byte, on every port."""
    latency_s: float = 0.0
    """Seconds before every reply, the banner included."""
    dot_latency_s: float = 0.0
    """Seconds before the reply to the final dot, in place of `latency_s`, where it is more than 0."""
    jitter: float = 0.0
    """Share, 0 to 1, by which each latency is varied at random, both ways."""
    rules: tuple[str, ...] = ()
    """Replies by pattern and share, the first that applies counts; see `rules.Rule`."""
    rate_limit: float = 0.0
    """Messages per second that each client address may begin; 0: any number. Above it, MAIL is refused."""
    rate_burst: float = 0.0
    """Messages that it may begin at once; 0: a second's worth."""
    rate_code: int = 421
    """Code of that refusal, 421 (hangs up) or another 4xx."""
    control: Path | None = None
    """JSON file with other values for rate_limit, rate_burst, rate_code; read whenever it changes, within 0.1 s."""
    seed: int | None = None
    """Makes shares and jitter repeatable, as far as clients come in the same order; None: they are not."""
    record: Path | None = None
    """File that holds the counters as JSON: rewritten when they changed, at the end, and at SIGUSR1."""
    record_every_s: float = 1.0
    """How often `record` is written."""
    log: Path | None = None
    """File to which every accepted message is added as one line of JSON."""
    events: Path | None = None
    """File to which connections, messages and rate refusals are added as they happen; see `timeline`."""
    per_second: bool = False
    """Count messages by second and client, and recipients by second and domain; `record` gets them too."""
    checksum: bool = False
    """Put the body's SHA-256 into the log."""
    store: Path | None = None
    """Folder that gets every accepted message as a file, 00000001.eml …, exactly as sent (dots unstuffed)."""
    keep: bool = False
    """Keep every accepted message in memory, as `Sink.messages`, for tests."""

    @property
    def size_max(self) -> int:
        """Bytes of the SIZE capability, 0 where it names none."""
        for line in self.capabilities:
            name, _, number = line.partition(" ")
            if name.upper() == "SIZE" and number.isdigit():
                return int(number)
        return 0

    @property
    def starttls(self) -> bool:
        return not self.implicit_tls and any(line.upper() == "STARTTLS" for line in self.capabilities)

    def addresses(self) -> list[tuple[str, int]]:
        """`listen` as (address, port). Raises SinkError."""
        if not self.listen:
            raise SinkError("the sink has nothing to listen on; name at least one ADDRESS:PORT")
        return [_address(text) for text in self.listen]

    def check(self) -> None:
        """Raises SinkError for values that make no sense."""
        if self.latency_s < 0 or self.dot_latency_s < 0:
            raise SinkError("a latency cannot be negative; give 0 seconds or more")
        if not 0 <= self.jitter <= 1:
            raise SinkError(f"jitter {self.jitter} is not a share; give a number from 0 to 1")
        if self.record_every_s <= 0:
            raise SinkError("the record cannot be written every 0 seconds; give more than 0")
        if self.rate_limit < 0 or self.rate_burst < 0 or (self.rate_burst and self.rate_burst < 1):
            raise SinkError("a rate is 0 (none) or more, and its burst 0 (a second's worth) or at least 1 message")
        if not 400 <= self.rate_code <= 499:
            raise SinkError(
                f"{self.rate_code} is not a temporary reply; give a code from 400 to 499, such as 421 or 451"
            )
        if self.key is not None and self.certificate is None:
            raise SinkError("a key needs a certificate; name the certificate's PEM file too")


def _address(text: str) -> tuple[str, int]:
    found = _LISTEN.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise SinkError(f"{text!r} is not an address to listen on; write 127.0.0.1:2526 or [::1]:2526")
    return found[1] or found[2], int(found[3])
