"""Pull zones: the listener from which messages are taken, who may, and what may be pushed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator, model_validator

from zonemta_py.config.reception import Listener
from zonemta_py.config.section import NAME, Port, Section
from zonemta_py.config.values import FilePath, LocalAddress
from zonemta_py.mail import limits

QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What a queue may be called."""
_PATTERN = re.compile(r"[A-Za-z0-9._-]*\*?")
PullRight = Literal["push", "pop"]


def queue_patterns(values: list[str]) -> list[str]:
    """In lower case, as the names are. Raises ValueError for what is neither a queue's name nor the beginning of
    one."""
    for value in values:
        if not value or not _PATTERN.fullmatch(value):
            raise ValueError(f"{value!r} is not the name of a queue such as jobs, and not a pattern such as jobs.*")
    return [value.lower() for value in values]


def names_queue(patterns: Iterable[str], queue: str) -> bool:
    """Whether any of them means that queue, which is in lower case."""
    return any(queue.startswith(one[:-1]) if one.endswith("*") else queue == one for one in patterns)


class PullToken(Section):
    """A token for queues; `zonemta api-key new NAME` makes a key whose hash may stand here too."""

    name: str = Field(pattern=NAME)
    """Name in logs."""
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the token in hexadecimal; the token itself is kept nowhere."""
    queues: list[str] = Field(["*"], min_length=1)
    """Which queues it is for: names, or beginnings of names with * at the end."""
    rights: list[PullRight] = Field(["push", "pop"], min_length=1)
    """What it may do: push, or pop (also reserve, acknowledge and look)."""

    @field_validator("queues")
    @classmethod
    def _check_queues(cls, values: list[str]) -> list[str]:
        return queue_patterns(values)

    def may(self, right: PullRight, queue: str) -> bool:
        """Whether the token gives that right to that queue."""
        return right in self.rights and names_queue(self.queues, queue)


class PullSection(Section):
    """The listener for named queues: push and pop over plain TCP (`printf 'pop jobs\\n' | ncat localhost 1234`)."""

    enabled: bool = False
    """Enable it."""
    address: LocalAddress = "127.0.0.1"
    """Address to listen on; any but loopback needs a certificate and tokens."""
    port: Port = 1234
    """TCP port."""
    certificate: FilePath | None = None
    """PEM file with the certificate chain; then it speaks TLS only."""
    key: FilePath | None = None
    """PEM file with the private key; empty: it is in the certificate file."""
    connections: int = Field(1000, ge=1, le=100_000)
    """Connections open at once."""
    timeout_s: float = Field(300, gt=0)
    """Seconds a client may take for a command, and in each of which, of a message, limits.least_bytes_s times as many
    bytes must come or go."""
    message_bytes: int = Field(limits.MESSAGE_BYTES_MAX, ge=1000)
    """Largest message that can be pushed."""
    reserve_s: float = Field(60, gt=0)
    """Seconds a reservation lasts if its client does not say."""
    reserve_max_s: float = Field(43_200, gt=0)
    """Longest reservation, and longest waiting for a message."""
    life_h: float = Field(0, ge=0)
    """Hours after which what was pushed expires; 0: never. Mail that came by SMTP lives as [retry] says."""
    create: bool = True
    """A push to a name that is no pull zone of this file makes a queue of that name."""
    queues_max: int = Field(1000, ge=1, le=100_000)
    """Queues that were made in this way and hold messages."""
    tokens: list[PullToken] = []

    @model_validator(mode="after")
    def _check(self) -> PullSection:
        loopback = ipaddress.ip_address(self.address).is_loopback
        if not loopback and (self.certificate is None or not self.tokens):
            raise ValueError(
                f"address {self.address} is not loopback: set certificate = a PEM file and add a [[pull.tokens]] table,"
                " or keep 127.0.0.1"
            )
        for names in ([token.name for token in self.tokens], [token.hash for token in self.tokens]):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two tokens have {name!r}; give each its own name and hash")
        return self

    @property
    def listener(self) -> Listener:
        """The same as one of [[listeners]]."""
        tls: Literal["none", "implicit"] = "implicit" if self.certificate else "none"
        return Listener(
            name="pull", address=self.address, port=self.port, tls=tls, certificate=self.certificate, key=self.key,
            relay_networks=[],
        )  # fmt: skip
