"""The listener of `[pull]`, on a socket that is already bound, until SIGTERM or SIGUSR1
(`reception.retirement`); what has begun then comes to its end. A connection is a token if tokens are needed (without
them everybody may do all, which the configuration allows on loopback only), one command, and its answer.

Promise: a clean end says that a push is on stable storage, or that a pop has been answered as a whole. Whatever is not
so ends with a reset, after a line `error: …` where there is something to say and somebody to read it.

A client that is slow, silent or half-open is cut off by one timer that visits all connections (`connection_limits`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import socket
from dataclasses import dataclass
from functools import partial

from zonemta_py.config import Config, PullSection
from zonemta_py.config.senders import Rights, rights
from zonemta_py.config.services.pull import PullRight, PullToken
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics import report
from zonemta_py.metrics.connections import OpenConnections
from zonemta_py.metrics.report import count
from zonemta_py.plugin.host import Host
from zonemta_py.pull.actions import ACTIONS, Exchange
from zonemta_py.pull.command import LINE_BYTES_MAX, Command, LineError, parse
from zonemta_py.pull.connection import Cut, PullConnection
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception import tls
from zonemta_py.reception.connection_limits import ConnectionLimits
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.pull import NamedQueues, PullFace, QueueProblem
from zonemta_py.reception.retirement import Retirement

_NAMES_NONE = frozenset(("help", "queues"))


class NotAllowed(Exception):
    """One sentence with the remedy."""


class Tokens:
    """Those of the configuration."""

    def __init__(self, section: PullSection) -> None:
        self._tokens = [(token.hash.encode(), token) for token in section.tokens]
        self.needed = bool(self._tokens)

    def revise(self, before: dict[str, str], now: dict[str, str]) -> bool:
        """Another configuration holds: forgets tokens that are not in it as they are here. Returns whether there are
        any. before, now: name → what its rights depend on."""
        lost = {name for name, digest in before.items() if now.get(name) != digest}
        self._tokens = [one for one in self._tokens if one[1].name not in lost]
        return bool(lost)

    def holder(self, shown: str) -> PullToken | None:
        """None if none is needed. Raises NotAllowed."""
        hashed = hashlib.sha256(shown.encode("latin-1")).hexdigest().encode()
        found = None
        for known, token in self._tokens:  # always to the end, for constant time
            if hmac.compare_digest(hashed, known):
                found = token
        if found is None and self.needed:
            raise NotAllowed("the token is unknown; send one whose hash is in [[pull.tokens]]")
        return found


def check(token: PullToken, command: Command) -> None:
    """Raises NotAllowed. What a receipt is for is known later."""
    right: PullRight = "push" if command.verb == "push" else "pop"
    if command.verb not in _NAMES_NONE and not command.receipt and not token.may(right, command.queue):
        raise _denied(token, right, command.queue)


def _denied(token: PullToken, right: PullRight, queue: str) -> NotAllowed:
    return NotAllowed(
        f"the token {token.name!r} may not {right} at {queue!r}; give it in rights and queues of [[pull.tokens]]"
    )


_CUT_OFF = "the command's line was cut off; end it with a newline, then send the message"


@dataclass(slots=True)
class PullSite:
    """What all connections share."""

    queues: NamedQueues
    tokens: Tokens
    notes: LogThrottle


async def serve_connection(site: PullSite, connection: PullConnection) -> None:
    """Until its end; raises nothing."""
    count("zonemta_pull_sessions_total")
    result = await _served(site, connection)
    if connection.verb or result != "done":  # else it has connected, and gone again without a word
        count("zonemta_pull_commands_total", (connection.verb or "none", result))


async def _served(site: PullSite, connection: PullConnection) -> str:
    """How it ended, for metrics."""
    result = "refused"
    try:
        await _serve(site, connection)
        connection.close()
        return "done"
    except Cut:
        connection.abort()
        return "cut"
    except NotAllowed as problem:
        site.notes.warn("token", connection.peer, "pull: %s: %s", connection.peer, problem)
        sentence = str(problem)
    except (LineError, QueueProblem) as problem:
        sentence = str(problem)
    except QueueRefusal as refusal:
        sentence = refused(refusal.reply)
    except Exception:
        log.exception("pull: a command of %s failed", connection.peer)
        sentence, result = "the server failed on this command; its log says why", "failed"
    await connection.refuse(sentence)
    return result


def refused(reply: Reply) -> str:
    """What a client is told of the queue's refusal."""
    again = not reply.permanent and "try again" not in reply.text
    return f"{reply.text}; try again later" if again else reply.text


async def _serve(site: PullSite, connection: PullConnection) -> None:
    command, whole = await _command(connection)
    token = None
    if command is not None and command.verb == "auth":
        token = site.tokens.holder(command.token)
        command, whole = await _command(connection)
        if command is not None and command.verb == "auth":
            raise LineError("the token was sent already; send the command on the line after it")
    connection.verb = command.verb if command is not None else ""
    if command is None:  # connected, and gone again without a word
        await connection.end()
        return
    if site.tokens.needed:
        if token is None:
            raise NotAllowed("a token is needed; send auth TOKEN as the first line, then the command on the next")
        check(token, command)
    if command.verb == "push" and not whole:
        raise LineError(_CUT_OFF)
    connection.idle = False
    await ACTIONS[command.verb](_exchange(site, connection, command, token))


def _exchange(site: PullSite, connection: PullConnection, command: Command, token: PullToken | None) -> Exchange:
    if token is None:
        return Exchange(connection, site.queues, command)
    return Exchange(connection, site.queues, command, token.name, lambda queue: token.may("pop", queue))


async def _command(connection: PullConnection) -> tuple[Command | None, bool]:
    """The command of the next line, None for none, and whether the line has an end."""
    line, whole = await connection.line(LINE_BYTES_MAX)
    if not whole and len(line) > LINE_BYTES_MAX:
        raise LineError(f"the first line is longer than {LINE_BYTES_MAX:,} bytes; send a command, such as help")
    return (parse(line) if line or whole else None), whole


log = logging.getLogger(__name__)


async def serve(
    config: Config, bound: socket.socket, queue: PullFace, host: Host, opened: OpenConnections | None = None
) -> None:
    """Serves until SIGTERM or SIGUSR1, and then until no command is in progress. bound: listening.

    Raises ConfigError.
    """
    section = config.pull
    local = ipaddress.ip_address(section.address).is_loopback
    own = {
        "connections": section.connections, "timeout_s": section.timeout_s,
        "connections_per_client": section.connections if local else config.limits.connections_per_client,
    }  # fmt: skip
    gate = ConnectionLimits(config.limits.model_copy(update=own), opened)
    site = PullSite(NamedQueues(config, queue), Tokens(section), LogThrottle(log))
    context = tls.context(section.listener, host)
    loop = asyncio.get_running_loop()
    gate.watch(loop)
    if context is not None:
        tls.Renewal(section.listener, context).watch(loop)
    bound.setblocking(False)

    def connect() -> PullConnection:
        return PullConnection(gate, partial(serve_connection, site), context, least)

    least = config.limits.least_bytes_s
    report.measure(lambda: [("zonemta_pull_sessions_open", (), len(gate))])

    def revise(now: Rights) -> None:
        if site.tokens.revise(rights(config)["tokens"], now["tokens"]):
            for guest in gate.guests():
                if isinstance(guest, PullConnection):
                    guest.leave()

    retirement = Retirement(queue.ask, revise, host.retire)
    server = await loop.create_server(connect, sock=bound, backlog=1024)
    try:
        await retirement.begins()
    finally:
        server.close()
    await retirement.look()  # who has just been accepted is not among the guests yet
    while len(gate):
        for guest in gate.guests() if retirement.hurried else ():
            if isinstance(guest, PullConnection):
                guest.leave()
        await retirement.look()
