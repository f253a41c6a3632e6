"""How connections leave this machine: from a socket bound to a source IP or interface, or through a proxy.

`Sources` finds a zone's source by its address; an `Egress` opens connections from it. With a proxy, the source address
belongs to the proxy: SOCKS5 (RFC 1928, RFC 1929) only gets the destination; HAProxy gets source and destination in a
PROXY protocol header, version 2 (https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt, 2.2), and can use them
(`source 0.0.0.0 usesrc clientip`, `server mx 0.0.0.0`). A proxy always gets an IP address, never a name, so that the
address that was checked is the one connected to.

Failures: `open` raises DeliveryError. The stages "source" (the address or interface is not local, or has no free port)
and "proxy" (it cannot be reached, or refuses us) are local problems: logged once a minute, and never blamed on the
destination. Stage "connect" is the destination's: it refuses, cannot be reached, or times out. HAProxy gives no reason
when it hangs up, and a silent SOCKS5 proxy looks like a silent destination: these also count as the destination's.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import struct
import time
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from zonemta_py.config import Config, Zone
from zonemta_py.config.sources import Source
from zonemta_py.mail.classify import DeliveryError, ProxyFailed, ReplyTimeout, SourceBusy, SourceUnusable, Unreachable

log = logging.getLogger(__name__)

COMPLAIN_EVERY_S = 60.0
IP_BIND_ADDRESS_NO_PORT = 24
"""From <linux/in.h>: the port is chosen at connect, so that the port range is per destination, not for all of them
together."""

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_PROXY_COMMAND = 0x21
_TCP = {4: 0x11, 6: 0x21}
_DESTINATION_FAILED = frozenset((3, 4, 5, 6))
"""SOCKS5 replies about the destination: network or host unreachable, refused, TTL expired (RFC 1928 6)."""


class Egress:
    """One source address, or ("") whichever the system chooses. hostname: for EHLO, "" for the zone's."""

    __slots__ = ("_bound", "_complained", "_family", "_interface", "_kind", "_password", "_proxy", "_user", "address",
                 "hostname")  # fmt: skip

    def __init__(self, source: Source | None = None) -> None:
        self.address, self.hostname = (source.address, source.hostname) if source else ("", "")
        self._family, self._interface = (source.family, source.interface) if source else ("any", "")
        url = urlsplit(source.proxy if source else "")
        self._kind = url.scheme
        self._proxy = (url.hostname or "", url.port or 0)
        self._user, self._password = unquote(url.username or ""), unquote(url.password or "")
        self._bound = bool(self.address) and not self._kind and not ipaddress.ip_address(self.address).is_unspecified
        self._complained = -COMPLAIN_EVERY_S

    # addresses

    def reaches(self, address: str) -> bool:
        """Whether it can connect to that IP address: of the source's own family where that matters, and of an allowed
        one."""
        if address.startswith("/"):
            return True
        version = 6 if ":" in address else 4
        if (self._bound or self._kind == "haproxy") and version != (6 if ":" in self.address else 4):
            return False
        return self._family not in ("ipv4", "ipv6") or self._family == f"ipv{version}"

    def order(self, addresses: list[str]) -> list[str]:
        """The addresses it can connect to, the preferred family first, otherwise in the given order."""
        reached = [address for address in addresses if self.reaches(address)]
        if self._family.startswith("prefer-"):
            reached.sort(key=lambda address: (":" in address) != (self._family == "prefer-ipv6"))
        return reached

    def seen(self, local: str) -> str:
        """The address that the server sees, given the local address of the connection."""
        return self.address if self._kind and local else local

    # connecting

    def direct(self, address: str) -> bool:
        """True: no source or proxy applies, so the event loop's own connect will do, which is twice as fast."""
        return not (self._bound or self._kind or self._interface or address.startswith("/"))

    async def open(self, address: str, port: int, timeout_s: float) -> socket.socket:
        """A connected socket. address: IP, or the path of a unix socket (then the port is ignored).

        Raises DeliveryError with stage connect, proxy or source.
        """
        ends = asyncio.get_running_loop().time() + timeout_s
        try:
            if not self._kind or address.startswith("/"):
                return await self._straight(address, port, ends)
            sock = await self._to_proxy(ends)
            if self._kind == "haproxy":
                return await self._announced(sock, address, port)
            return await self._negotiated(sock, address, port, ends)
        except (ProxyFailed, SourceUnusable) as error:
            self._complain(error)
            raise

    async def _straight(self, address: str, port: int, ends: float) -> socket.socket:
        try:
            return await self._dial(address, port, ends)
        except TimeoutError:
            raise ReplyTimeout("connect") from None
        except OSError as error:
            if self._bound and error.errno == errno.EADDRNOTAVAIL:
                raise SourceBusy(f"{self.address} has no free port left for {address}") from None
            raise Unreachable("connect", f"{address}: {_words(error)}") from None

    async def _to_proxy(self, ends: float) -> socket.socket:
        host, port = self._proxy
        try:
            async with asyncio.timeout_at(ends):
                [(_, _, _, _, found), *_] = await asyncio.get_running_loop().getaddrinfo(
                    host, port, type=socket.SOCK_STREAM
                )
            return await self._dial(str(found[0]), port, ends)
        except OSError as error:
            raise ProxyFailed(f"{self._name}: {_words(error)}") from None

    async def _dial(self, address: str, port: int, ends: float) -> socket.socket:
        """Raises SourceUnusable or OSError (TimeoutError included)."""
        path = address.startswith("/")
        sock = socket.socket(socket.AF_UNIX if path else socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            sock.setblocking(False)
            if not path:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._bind(sock)
            async with asyncio.timeout_at(ends):
                await asyncio.get_running_loop().sock_connect(sock, address if path else (address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def _bind(self, sock: socket.socket) -> None:
        try:
            if self._interface:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._interface.encode() + b"\0")
        except OSError as error:
            raise SourceUnusable(f"interface {self._interface}: {_words(error)}") from None
        if not self._bound:
            return
        try:
            sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((self.address, 0))
        except OSError as error:
            raise SourceUnusable(f"{self.address} is not an address of this machine ({_words(error)})") from None

    # proxies

    async def _announced(self, sock: socket.socket, address: str, port: int) -> socket.socket:
        try:
            header = proxy_header(self.address, sock.getsockname()[1], address, port)
            await asyncio.get_running_loop().sock_sendall(sock, header)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                raise ProxyFailed(f"{self._name}: {_words(error)}") from None
            raise
        return sock

    async def _negotiated(self, sock: socket.socket, address: str, port: int, ends: float) -> socket.socket:
        from python_socks import ProxyError, ProxyType  # here: most sources have no proxy
        from python_socks.async_.asyncio import Proxy

        reached: Any = _Reached(sock)
        proxy = Proxy(ProxyType.SOCKS5, *self._proxy, self._user or None, self._password or None, forward=reached)
        left_s = ends - asyncio.get_running_loop().time()
        try:
            return await proxy.connect(address, port, timeout=max(left_s, 0.001))
        except TimeoutError:
            raise ReplyTimeout("connect", f"{address} through proxy {self._name}") from None
        except ProxyError as error:
            if error.error_code in _DESTINATION_FAILED:
                raise Unreachable("connect", f"{address} through proxy {self._name}: {error}") from None
            raise ProxyFailed(f"{self._name}: {str(error) or 'hung up'}") from None
        except OSError as error:
            raise ProxyFailed(f"{self._name}: {_words(error)}") from None

    @property
    def _name(self) -> str:
        """For replies and logs: without user and password."""
        host, port = self._proxy
        return f"{self._kind}://{f'[{host}]' if ':' in host else host}:{port}"

    def _complain(self, error: DeliveryError) -> None:
        now = time.monotonic()
        if now >= self._complained + COMPLAIN_EVERY_S:
            self._complained = now
            log.warning("source %s: %s", self.address or "any", error.reply.text)


class _Reached:
    """A proxy connection for python-socks that is already connected, so that we know who a failure belongs to."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def connect(self, dest_host: str, dest_port: int, timeout: float | None) -> socket.socket:  # noqa: ASYNC109
        return self._sock


class Sources:
    """The Egress of each zone and source address, created once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._made: dict[tuple[str, str, str], Egress] = {("", "", ""): Egress()}

    def of(self, zone: Zone, address: str, pool: str = "") -> Egress:
        """Settings from the zone's pool, else from another pool with that address, else none; "": the system chooses.
        pool: a plugin's choice, instead of the zone's.

        Raises SourceUnusable if it is not an IP address (it may come from a plugin).
        """
        key = (zone.name, pool or zone.pool, address) if address else ("", "", "")
        egress = self._made.get(key)
        if egress is None:
            pools = [self._config.sources(zone, pool), *(pool.sources for pool in self._config.pools)]
            known = (source for sources in pools for source in sources if source.address == address)
            egress = self._made[key] = Egress(next(known, None) or _plain(address))
        return egress


def _plain(address: str) -> Source:
    try:
        return Source(address=address)
    except ValidationError:
        raise SourceUnusable(f"{address!r} is not an IP address") from None


def proxy_header(source: str, source_port: int, address: str, port: int) -> bytes:
    """The header of the PROXY protocol, version 2, for a TCP connection. Both addresses are of the same family."""
    one, other = ipaddress.ip_address(source), ipaddress.ip_address(address)
    body = one.packed + other.packed + struct.pack("!HH", source_port, port)
    return _SIGNATURE + struct.pack("!BBH", _PROXY_COMMAND, _TCP[other.version], len(body)) + body


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
