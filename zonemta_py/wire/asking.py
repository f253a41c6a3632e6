"""One question to the queue's process, without an event loop: for commands."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import msgpack

from zonemta_py.wire import SOCKET
from zonemta_py.wire.frames import OK, Operation, pack, unpacker

ANSWER_S = 30.0
LONG_S = 300.0
"""How long to wait for the answer to an order that loads and checks a whole configuration."""


class QueueGone(Exception):
    """No process answers on the socket. asked: whether it may have heard the question."""

    def __init__(self, sentence: str, asked: bool = True) -> None:
        super().__init__(sentence)
        self.asked = asked


def ask(folder: Path, question: str, **arguments: Any) -> Any:
    """One question, without an event loop, for the command line. Raises QueueGone, PermissionError, ValueError."""
    path, asked = folder / SOCKET, False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG_S if question == "reload" else ANSWER_S)
        try:
            connection.connect(str(path))
            asked = True
            connection.sendall(pack((int(Operation.ASK), 1, question, arguments)))
            return _answer(connection)
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
                raise ValueError(payload if isinstance(payload, str) else " ".join(str(part) for part in payload))
        except msgpack.OutOfData:
            continue
