"""Where a failure comes from: what the operating system, or a library for it, says of it, in words, without its
numbers; and whether somebody else has ended the work."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl

_NUMBER = re.compile(r"\[Errno -?\d+\] ")


def cause(error: BaseException) -> str:
    """For a sentence that says what failed, where and what to do. A file's name comes first."""
    if isinstance(error, TimeoutError) and not error.errno:
        return str(error) or "timed out"
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror | ssl.SSLError):
        own = error.strerror and not error.strerror.startswith("Connect call failed")  # asyncio has an address there
        words = str(error.strerror if own else os.strerror(error.errno)).lower()
        return f"{error.filename}: {words}" if error.filename else words
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _NUMBER.sub("", str(said)) or type(error).__name__


def from_outside(error: BaseException) -> bool:
    """Whether the task is cancelled: its process ends, or nobody waits for it. A CancelledError that nobody has asked
    for is a bug like another."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
