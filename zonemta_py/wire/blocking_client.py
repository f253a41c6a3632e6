"""Questions to the queue's process, without an event loop: for commands."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgpack

from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueFault
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.wire import AUTHORITY, SOCKET
from zonemta_py.wire.frames import FAULT, OK, Operation, pack, unpacker

_AFTER: dict[str, Callable[[list[Any]], Any]] = {
    questions.standing: len,
    questions.in_doubt: lambda rows: f"{rows[-1]['id']} {rows[-1]['recipient']}",
    questions.campaigns: lambda rows: rows[-1]["name"],
}
"""Questions whose answers are pages of rows: where the next one begins."""
ROWS_AT_ONCE = 500
ANSWER_S = 30.0
LONG_S = 300.0
"""How long to wait for the answer to an order that loads and checks a whole configuration."""


class QueueGone(Exception):
    """No process answers on the socket. asked: whether it may have heard the question."""

    def __init__(self, sentence: str, asked: bool = True) -> None:
        super().__init__(sentence)
        self.asked = asked


def ask(folder: Path, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """One question, without an event loop, for the command line. Raises QueueGone, PermissionError, ValueError,
    QueueFault."""
    return ask_at(_socket(folder), question, *_, **arguments)


def ask_at(path: Path, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """As `ask`, at that socket."""
    asked = False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG_S if question == questions.reload else ANSWER_S)
        try:
            connection.connect(str(path))
            asked = True
            connection.sendall(pack((int(Operation.ASK), 1, question, arguments)))
            found: A = _answer(connection)
            return found
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, str(path)) from None
        except TimeoutError:
            sentence = f"the queue at {path} gave no answer in {connection.gettimeout():g} s; its log may say why"
            raise QueueGone(sentence) from None
        except OSError as error:
            if asked:
                sentence = f"the queue at {path} ended before it answered; see its log, and ask again"
            else:
                sentence = f"no queue answers at {path}{_why(error)}; start it with `zonemta run`"
            raise QueueGone(sentence, asked) from None


def _socket(folder: Path) -> Path:
    """Where questions to the MTA are answered: by its queue, or for several by their authority."""
    authority = folder / AUTHORITY
    return authority if authority.exists() else folder / SOCKET


def ask_all(folder: Path, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """As `ask`; all rows, where the answer is a page of them."""
    following = _AFTER.get(question)
    if following is None:
        return ask(folder, question, *_, **arguments)
    page_of: Any = partial(cast(Any, ask), folder, question, limit=ROWS_AT_ONCE, **arguments)
    rows = page = page_of()
    while len(page) == ROWS_AT_ONCE:
        page = page_of(after=following(rows))
        rows += page
    return cast(A, rows)


def _why(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
        return ""
    return f" ({error.strerror.lower() if error.strerror else 'the path is too long for a socket'})"


def _answer(connection: socket.socket) -> Any:
    unpacked = unpacker()
    while True:
        data = connection.recv(1 << 20)
        if not data:
            raise OSError("the queue closed the connection")
        unpacked.feed(data)
        try:
            for _, status, payload in unpacked:
                if status == OK:
                    return payload
                if status == FAULT:
                    raise QueueFault(payload)
                raise ValueError(payload if isinstance(payload, str) else " ".join(str(part) for part in payload))
        except msgpack.OutOfData:
            continue
