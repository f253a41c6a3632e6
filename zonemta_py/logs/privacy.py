"""Personal data in log lines: addresses, user names and clients' IP addresses, hashed or cut.

hashed: the local part of an address, a user name, an IP address become twelve hexadecimal digits of a keyed hash: the
same person has the same ones in all lines of this queue, and nobody without the key (the file log.key in the queue's
folder) can try addresses until one fits. cut: only an address's domain and a client's network are left.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import secrets
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import replace_file

KEY_FILE = "log.key"
_ADDRESS = re.compile(r'(?:"(?:[^"\\]|\\.){0,128}"|[^\s<>()\[\]",;:@=]+)@[^\s<>()\[\]",;:@]+')
PEOPLE = ("sender", "recipient", "to")
SENTENCES = ("text", "reason")
"""Fields with words of others, who may name anybody."""
_KEPT = 8_192


class UserName(str):
    """A user's name among the arguments of a line, so that it is known as such."""

    __slots__ = ()


class Persons:
    """hide: what becomes of a local part or user name; hide_ip: of an IP address."""

    def __init__(self, hide: Callable[[str], str], hide_ip: Callable[[str], str]) -> None:
        self._hide, self._hide_ip = lru_cache(_KEPT)(hide), lru_cache(_KEPT)(hide_ip)

    @classmethod
    def hashed(cls, key: bytes) -> Persons:
        def digits(text: str) -> str:
            return hashlib.blake2b(text.lower().encode(errors="surrogatepass"), key=key, digest_size=6).hexdigest()

        return cls(digits, digits)

    @classmethod
    def cut(cls) -> Persons:
        return cls(lambda _: "…", _network)

    def fields(self, fields: dict[str, Any]) -> None:
        """Hides what those of a line about mail say of people."""
        for name in PEOPLE:
            if fields.get(name):
                fields[name] = self.addresses(fields[name])
        if fields.get("user"):
            fields["user"] = self._hide(fields["user"])
        if fields.get("client"):
            fields["client"] = self._hide_ip(fields["client"])
        for name in SENTENCES:
            if fields.get(name):
                fields[name] = self.text(fields[name])

    def argument(self, value: Any, of_clients: bool) -> Any:
        """Of a line that is not about mail. of_clients: IP addresses in it are those of clients."""
        if isinstance(value, UserName):
            return self._hide(value) if value else value
        return self._hide_ip(value) if of_clients and isinstance(value, str) and _is_ip(value) else value

    def addresses(self, text: str) -> str:
        """Several, with commas in between."""
        return self.text(text) if '"' in text else ",".join(map(self.address, text.split(",")))

    def address(self, address: str) -> str:
        local, at, domain = address.rpartition("@")
        return f"{self._hide(local)}@{domain}" if at else address

    def text(self, text: str) -> str:
        """Every address in a sentence."""
        return _ADDRESS.sub(lambda found: self.address(found[0]), text) if "@" in text else text


def of(setting: str, folder: Path) -> Persons | None:
    """setting: whole, hashed or cut. None: nothing is hidden. Raises OSError: the key cannot be read or made."""
    if setting == "whole":
        return None
    return Persons.cut() if setting == "cut" else Persons.hashed(_key(folder / KEY_FILE))


def _key(path: Path) -> bytes:
    try:
        return path.read_bytes()[:64]
    except FileNotFoundError:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        replace_file(fresh, secrets.token_bytes(32), 0o600)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(fresh, path)
        fresh.unlink()
        return path.read_bytes()[:64]


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _network(address: str) -> str:
    try:
        length = 24 if ipaddress.ip_address(address).version == 4 else 48
        return str(ipaddress.ip_network((address, length), strict=False))
    except ValueError:
        return "…"
