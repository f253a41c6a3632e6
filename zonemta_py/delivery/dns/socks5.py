"""SOCKS5 as its client speaks it (RFC 1928, RFC 1929), in two parts, so that a failure has an owner: what comes in
`greet` is the proxy's own; what comes in `connect` may be about the destination.

Failures: both raise SocksRefused for what the proxy says, and OSError for what the connection does
(ConnectionResetError if the proxy hangs up). The socket stays open then; the caller closes it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

_NO_LOGIN, _LOGIN = 0, 2
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REPLIES = {
    1: "general failure", 2: "not allowed by its rules", 3: "network unreachable", 4: "host unreachable",
    5: "connection refused", 6: "TTL expired", 7: "command not supported", 8: "address type not supported",
}  # fmt: skip
DESTINATION_FAILED = frozenset((3, 4, 5, 6))
"""Replies about the destination: network or host unreachable, refused, TTL expired (RFC 1928 6)."""


class SocksRefused(Exception):
    """What the proxy has answered. code: of its reply to CONNECT; 0: it came before that, or is no SOCKS5."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


async def greet(sock: socket.socket, user: str = "", password: str = "") -> None:
    """Agrees on how to log in, and does. user "": without."""
    loop = asyncio.get_running_loop()
    methods = bytes((_NO_LOGIN, _LOGIN)) if user else bytes((_NO_LOGIN,))
    await loop.sock_sendall(sock, bytes((5, len(methods))) + methods)
    version, method = await _exactly(sock, 2)
    if version != 5:
        raise SocksRefused(f"it does not speak SOCKS5 (its first byte is {version})")
    if method not in methods:
        raise SocksRefused("it accepts neither our user nor none" if user else "it asks for a user and password")
    if method == _LOGIN:
        name, secret = user.encode(), password.encode()
        if max(len(name), len(secret)) > 255:
            raise SocksRefused("our user or password is longer than 255 bytes")
        await loop.sock_sendall(sock, b"\1" + bytes((len(name),)) + name + bytes((len(secret),)) + secret)
        _, status = await _exactly(sock, 2)
        if status:
            raise SocksRefused("it refuses our user or password")


async def connect(sock: socket.socket, address: str, port: int) -> None:
    """Lets it connect to that IP address; from then on the socket is the destination's."""
    one = ipaddress.ip_address(address)
    kind = _IPV4 if one.version == 4 else _IPV6
    request = bytes((5, _CONNECT, 0, kind)) + one.packed + port.to_bytes(2, "big")
    await asyncio.get_running_loop().sock_sendall(sock, request)
    version, code, _, kind = await _exactly(sock, 4)
    if version != 5:
        raise SocksRefused(f"it does not speak SOCKS5 (it answers with {version})")
    if code:
        raise SocksRefused(_REPLIES.get(code, f"unknown reply {code}"), code)
    if kind == _NAME:
        length = (await _exactly(sock, 1))[0]
    elif kind in (_IPV4, _IPV6):
        length = 4 if kind == _IPV4 else 16
    else:
        raise SocksRefused(f"it does not speak SOCKS5 (address type {kind})")
    await _exactly(sock, length + 2)


async def _exactly(sock: socket.socket, count: int) -> bytes:
    """No byte more: what follows may be the destination's."""
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < count:
        more = await loop.sock_recv(sock, count - len(found))
        if not more:
            raise ConnectionResetError("hung up")
        found += more
    return found
