"""Names that the configuration says, as every program of the machine finds them: the hosts file, and localhost.

The file is read again when it has changed. What is not in it is asked of DNS (`destination`). MX records name hosts by
DNS only: nobody elsewhere may name our hosts file's.

Failures: a file that cannot be read has no names.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from zonemta_py.mail.addresses.domain import canonical

FILE = Path("/etc/hosts")
LOOPBACK = ("127.0.0.1", "::1")


class HostsFile:
    """One hosts file (hosts(5))."""

    def __init__(self, path: Path = FILE) -> None:
        self._path, self._seen = path, (-1, -1)
        self._names: dict[str, tuple[str, ...]] = {}

    def of(self, host: str) -> tuple[str, ...]:
        """The addresses of a host, () if it is not in the file; localhost, and what is below it, are loopback anyway
        (RFC 6761 6.3)."""
        name = canonical(host)
        found = self._read().get(name, ())
        return found or (LOOPBACK if f".{name}".endswith(".localhost") else ())

    def _read(self) -> dict[str, tuple[str, ...]]:
        try:
            state = os.stat(self._path)
            if (state.st_mtime_ns, state.st_ino) != self._seen:
                self._names = _names(self._path.read_text("utf-8", "replace"))
                self._seen = (state.st_mtime_ns, state.st_ino)
        except OSError:
            self._names, self._seen = {}, (-1, -1)
        return self._names


def _names(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            address = str(ipaddress.ip_address(address))
        except ValueError:
            continue
        for name in map(canonical, names):
            if address not in found.get(name, ()):
                found[name] = (*found.get(name, ()), address)
    return found
