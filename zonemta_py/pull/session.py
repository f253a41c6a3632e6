"""One connection: a token if tokens are needed, one command, its answer.

Promise: a clean end says that a push is on stable storage, or that a pop has been answered as a whole. Whatever is not
so ends with a reset, after a line `error: …` where there is something to say and somebody to read it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from zonemta_py.config.services.pull import PullToken
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.report import count
from zonemta_py.pull.access import NotAllowed, Tokens, check
from zonemta_py.pull.actions import ACTIONS, Exchange
from zonemta_py.pull.command import LINE_BYTES_MAX, Command, LineError, parse
from zonemta_py.pull.connection import Cut, PullConnection
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.reception.log_throttle import LogThrottle
from zonemta_py.reception.pull import NamedQueues, QueueProblem

log = logging.getLogger(__name__)
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
