"""The listening sockets: bound by the supervisor and kept open there, so that no process that serves them is missed.

Each receiver has its own socket for each listener (SO_REUSEPORT). A configuration with more or fewer receivers shares
the sockets that are there: one that is closed takes with it the connections that wait to be accepted. A listener is
known by its address and port. Failures: StartError, one sentence.
"""

from __future__ import annotations

import errno
import socket
from typing import TypeAlias

from zonemta_py.config import Config, Listener, processes

Key: TypeAlias = tuple[str, str, int]
"""Which service ("" for SMTP), address and port."""
SMTP = "receiver"
"""The role whose listeners are those for SMTP."""
_CLOSED = b"421 4.3.2 This listener is closed, try again\r\n"


class StartError(Exception):
    """Why the MTA cannot start: one sentence with the remedy."""


class Ports:
    """All that are open."""

    def __init__(self) -> None:
        self._bound: dict[Key, list[socket.socket]] = {}

    @property
    def all(self) -> list[socket.socket]:
        return [bound for every in self._bound.values() for bound in every]

    def bind(self, config: Config) -> list[Key]:
        """Takes those of a configuration that are not open yet; which. Clients are let in by `listen`.

        Raises StartError: none is taken.
        """
        added: list[Key] = []
        wanted = [(_key(listener), listener, processes(config.server.receivers)) for listener in config.listeners]
        wanted += [(_key(service, service.name), service, 1) for service in config.services]
        try:
            for key, listener, count in wanted:
                if key in self._bound:
                    continue
                self._check(key, listener)
                self._bound[key] = []
                added.append(key)
                for _ in range(count):
                    self._bound[key].append(_bind(listener))
        except BaseException:
            self.drop(added)
            raise
        return added

    def refuse(self) -> None:
        """Who connects is refused, until `listen`; the ports stay ours, also those that only root may open."""
        for bound in self.all:
            bound.shutdown(socket.SHUT_RDWR)

    def listen(self, keys: list[Key] | None = None) -> None:
        """On all, if not said. Raises StartError."""
        for key in self._bound if keys is None else keys:
            for bound in self._bound[key]:
                try:
                    bound.listen(1024)
                except OSError as error:
                    raise StartError(f"cannot listen on {key[1]}:{key[2]} ({error.strerror}); try again") from None

    def _check(self, key: Key, listener: Listener) -> None:
        """That nobody else has the port: neither another listener of ours nor another program."""
        same = [other for other in self._bound if other[2] == key[2]]
        if any(other[1] == key[1] for other in same):
            raise _taken(listener, "another listener still uses it")
        if any(other[0] == key[0] for other in same):
            return  # such as one for all addresses, while there is one for loopback
        with _socket(listener) as probe:
            try:
                probe.bind((listener.address, listener.port))
            except OSError as error:
                raise _taken(listener, _why(error)) from None

    def rows(
        self, listeners: list[Listener], number: int, count: int, service: str
    ) -> list[tuple[Listener, socket.socket]]:
        """What process `number`, from 0 on, of `count` serves. service: its role."""
        found = []
        for listener in listeners:
            every = self._bound[_key(listener, "" if service == SMTP else service)]
            if len(every) <= count:
                found.append((listener, every[number % len(every)]))
            else:
                found += [(listener, bound) for bound in every[number::count]]
        return found

    def drop(self, keys: list[Key]) -> list[socket.socket]:
        """Closes these; returns them."""
        gone = [bound for key in keys for bound in self._bound.pop(key)]
        for bound in gone:
            bound.close()
        return gone

    def close_unused(self, config: Config) -> list[socket.socket]:
        """Closes those that the configuration lacks; clients that still wait there are told to come again."""
        kept = {_key(listener) for listener in config.listeners}
        kept |= {_key(service, service.name) for service in config.services}
        gone = [(key, bound) for key in self._bound.keys() - kept for bound in self._bound.pop(key)]
        for key, bound in gone:
            _turn_away(bound, b"" if key[0] else _CLOSED)
            bound.close()
        return [bound for _, bound in gone]


def _turn_away(bound: socket.socket, words: bytes) -> None:
    while True:
        try:
            connection, _ = bound.accept()
        except OSError:
            return
        with connection:
            connection.setblocking(False)
            try:
                connection.sendall(words)
            except OSError:
                continue


def _key(listener: Listener, service: str = "") -> Key:
    return service, listener.address, listener.port


def _socket(listener: Listener) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in listener.address else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound


def _bind(listener: Listener) -> socket.socket:
    bound = _socket(listener)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((listener.address, listener.port))
    except OSError as error:
        bound.close()
        raise _taken(listener, _why(error)) from None
    bound.setblocking(False)
    return bound


def _why(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return f"{error.strerror}: ports below 1024 are opened by root, at a start only"
    return error.strerror or str(error)


def _taken(listener: Listener, why: str) -> StartError:
    remedy = f"give listener {listener.name!r} another address or port, or stop the program that uses it"
    if "root" in why:
        remedy = "restart the MTA"
    elif "listener" in why:
        remedy = "restart the MTA, or give one of them another port"
    return StartError(f"cannot listen on {listener.address}:{listener.port} ({why}); {remedy}")
