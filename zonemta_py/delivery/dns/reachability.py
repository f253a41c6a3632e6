"""Which addresses found in DNS may be connected to: a third party controls them, and may publish 127.0.0.1 or 10.0.0.5.

`refusal` checks the address that is connected to, not a name, so an answer that changes between look-up and connect
makes no difference. `LocalIdentity` knows whether a host or an address is this machine's own SMTP service.

Failures: none; anything that is not an IP address is refused.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache

from zonemta_py.config import Config

SMTP_PORT = 25
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SHARED = ipaddress.ip_network("100.64.0.0/10")
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
_DOCUMENTATION = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
)
_PROTOCOLS = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "64:ff9b:1::/48", "5f00::/16")
)
"""Ranges that Python does not count as private, or only in part: protocol assignments, 6to4 relays, local NAT64,
SRv6."""


@lru_cache(8192)
def refusal(address: str) -> str:
    """ "" if DNS may lead to that address, else the reason against it, in words.

    Ranges: RFC 6890 and the IANA registries of special-purpose addresses. An IPv4 address inside an IPv6 one (mapped,
    NAT64, 6to4, Teredo) is judged itself.
    """
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return "not an IP address"
    return next(filter(None, map(_range, (given, *_inner(given)))), "")


def _inner(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in inner if one is not None]


def _range(address: Address) -> str:
    if isinstance(address, ipaddress.IPv6Address) and _inner(address):
        return ""  # Python calls these reserved or private as a whole; the IPv4 address inside decides
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address in _SHARED:
        return "a carrier's shared address"
    if any(address in network for network in _DOCUMENTATION):
        return "an address of documentation"
    if any(address in network for network in _PROTOCOLS):
        return "an address for protocols"
    if address.is_private or address in _SITE_LOCAL:
        return "a private address"
    return "a reserved address" if address.is_reserved else ""


class LocalIdentity:
    """This machine, according to its listeners and its hostname."""

    def __init__(self, config: Config) -> None:
        self._name = config.server.name.lower().rstrip(".")
        self._places = {(ipaddress.ip_address(one.address), one.port) for one in config.listeners}
        self._any = {(place.version, port) for place, port in self._places if place.is_unspecified}
        self._any |= {(4, port) for version, port in self._any if version == 6}  # :: usually accepts IPv4 too

    def is_host(self, name: str, addresses: tuple[str, ...]) -> bool:
        """Whether an MX host is this machine, by name or by an address on which it listens on port 25."""
        return name == self._name or any(self.at(address) for address in addresses)

    def at(self, address: str, port: int = SMTP_PORT) -> bool:
        """Whether one of our listeners is on that IP address and port."""
        given = ipaddress.ip_address(address)
        given = (given.ipv4_mapped if isinstance(given, ipaddress.IPv6Address) else None) or given
        return (given, port) in self._places or ((given.version, port) in self._any and is_local(given))

    def barred(self, address: str, port: int) -> str:
        """ "" if DNS may lead to that address and port, else the reason against it, in words."""
        return refusal(address) or ("one of our own listeners" if self.at(address, port) else "")


def is_local(address: Address) -> bool:
    """Whether the address belongs to this machine, so that a socket can be bound to it."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
