"""How connections leave this machine: from a socket bound to a source IP or interface, or through a proxy.

`Sources` finds a zone's source by its address; an `Egress` opens connections from it. With a proxy, the source address
belongs to the proxy: SOCKS5 (RFC 1928, RFC 1929) only gets the destination; HAProxy gets source and destination in a
PROXY protocol header, version 2 (https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt, 2.2), and can use them
(`source 0.0.0.0 usesrc clientip`, `server mx 0.0.0.0`). A proxy always gets an IP address, never a name, so that the
address that was checked is the one connected to.

Failures: `open` raises DeliveryError. The stages "source" (the address or interface is not local, has no free port, or
no route where others of this machine have one) and "proxy" (it cannot be reached within PROXY_S, or refuses us) are
local problems: logged once a minute, and never blamed on the destination. Stage "connect" is the destination's: it
refuses, cannot be reached, or times out. HAProxy gives no reason when it hangs up: that counts as the destination's.
`lost` says whether a connection that broke did so because the source or its proxy has gone; `Sources.watch` ends those
of an address that has.
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
from contextlib import suppress
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

from pydantic import ValidationError

from zonemta_py.config import Config, Zone
from zonemta_py.config.sources import Source
from zonemta_py.delivery.dns import socks5
from zonemta_py.mail.classify import (
    NO_ROUTE,
    DeliveryError,
    ProxyFailed,
    ReplyTimeout,
    SourceBusy,
    SourceUnusable,
    Unreachable,
)

log = logging.getLogger(__name__)

COMPLAIN_EVERY_S = 60.0
PROXY_S = 3.0
"""How long a proxy may take to accept a connection, and to greet: it is near, and a lost packet fits in."""
LOOK_S = 1.0
"""How often it is looked whether the addresses of open connections are still there."""
IP_BIND_ADDRESS_NO_PORT = 24
"""From <linux/in.h>: the port is chosen at connect, so that the port range is per destination, not for all of them
together."""

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_PROXY_COMMAND = 0x21
_TCP = {4: 0x11, 6: 0x21}
_NO_ROUTE = frozenset((errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EACCES, errno.EINVAL))
"""What connect says where the routing tables have nothing for this address; a router far away may say some of it."""


class Egress:
    """One source address, or ("") whichever the system chooses. hostname: for EHLO, "" for the zone's."""

    __slots__ = ("_bound", "_complained", "_family", "_interface", "_kind", "_open", "_password", "_proxy", "_user",
                 "address", "hostname")  # fmt: skip

    def __init__(self, source: Source | None = None) -> None:
        self.address, self.hostname = (source.address, source.hostname) if source else ("", "")
        self._family, self._interface = (source.family, source.interface) if source else ("any", "")
        url = urlsplit(source.proxy if source else "")
        self._kind = url.scheme
        self._proxy = (url.hostname or "", url.port or 0)
        self._user, self._password = unquote(url.username or ""), unquote(url.password or "")
        self._bound = bool(self.address) and not self._kind and not ipaddress.ip_address(self.address).is_unspecified
        self._complained = -COMPLAIN_EVERY_S
        self._open = WeakSet[socket.socket]()
        """Those bound to the address."""

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

    @property
    def proxied(self) -> bool:
        return bool(self._kind)

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
            if error.errno in _NO_ROUTE and self._lacks_route(address):
                raise SourceUnusable(f"{self._from} {NO_ROUTE} {address}") from None
            raise Unreachable("connect", f"{address}: {_words(error)}") from None

    async def _to_proxy(self, ends: float) -> socket.socket:
        host, port = self._proxy
        ends = min(ends, asyncio.get_running_loop().time() + PROXY_S)
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
        if self._bound and not path:
            self._open.add(sock)
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
        try:
            await self._greeted(sock, ends)
            async with asyncio.timeout_at(ends):
                await socks5.connect(sock, address, port)
        except BaseException as error:
            sock.close()
            raise self._owned(error, address) from None
        return sock

    async def _greeted(self, sock: socket.socket, ends: float) -> None:
        """Raises ProxyFailed."""
        try:
            async with asyncio.timeout_at(min(ends, asyncio.get_running_loop().time() + PROXY_S)):
                await socks5.greet(sock, self._user, self._password)
        except (OSError, socks5.SocksRefused) as error:
            words = _words(error) if isinstance(error, OSError) else str(error)
            raise ProxyFailed(f"{self._name}: {words}") from None

    def _owned(self, error: BaseException, address: str) -> BaseException:
        """Whose failure it is that no connection came about."""
        if isinstance(error, TimeoutError):
            return ReplyTimeout("connect", f"{address} through proxy {self._name}")
        if isinstance(error, socks5.SocksRefused) and error.code in socks5.DESTINATION_FAILED:
            return Unreachable("connect", f"{address} through proxy {self._name}: {error}")
        if isinstance(error, socks5.SocksRefused):
            return ProxyFailed(f"{self._name}: {error}")
        return ProxyFailed(f"{self._name}: {_words(error)}") if isinstance(error, OSError) else error

    # whether it can be used

    async def check(self, route_to: str = "") -> None:
        """Whether it can be used now, as far as that shows without mail. route_to: an address that it had no route to.
        Raises ProxyFailed, SourceUnusable."""
        if not self._kind:
            self._check_here()
            if route_to and self._lacks_route(route_to):
                raise SourceUnusable(f"{self._from} {NO_ROUTE} {route_to}")
            return
        ends = asyncio.get_running_loop().time() + 2 * PROXY_S
        sock = await self._to_proxy(ends)
        try:
            if self._kind == "socks5":
                await self._greeted(sock, ends)
        finally:
            sock.close()

    async def lost(self) -> DeliveryError | None:
        """Why a connection from here may have ended that nobody at its other end has ended; None: not because of us."""
        try:
            await self.check()
        except DeliveryError as error:
            self._complain(error)
            return error
        return None

    def end_lost(self) -> None:
        """Ends all connections of an address that this machine has lost: nothing else would, for minutes."""
        if not self._open:
            return
        try:
            self._check_here()
        except SourceUnusable as error:
            self._complain(error)
            for sock in list(self._open):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _check_here(self) -> None:
        """Raises SourceUnusable."""
        with socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET) as sock:
            self._bind(sock)

    def _lacks_route(self, address: str) -> bool:
        """Whether this machine has a route there, and none from here. Nothing is sent."""
        return (self._bound or bool(self._interface)) and not self._routed(address, True) and self._routed(address)

    def _routed(self, address: str, bound: bool = False) -> bool:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                if bound:
                    self._bind(sock)
                sock.connect((address, 9))
            except (OSError, SourceUnusable):
                return False
        return True

    @property
    def _from(self) -> str:
        return self.address if self._bound else f"interface {self._interface}"

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

    async def watch(self) -> None:
        """For ever: connections of an address that this machine has lost are ended."""
        while True:
            await asyncio.sleep(LOOK_S)
            for egress in list(self._made.values()):
                egress.end_lost()


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
