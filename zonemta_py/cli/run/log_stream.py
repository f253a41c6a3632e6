"""Standard error of a server: failing to write there is no reason to end.

Its disk may be full, often the queue's own, and the reader of a pipe may go away. Promise: writing and flushing raise
nothing, but for EIO: a terminal that has gone, which ends what runs in it. What could not be written may be lost.
"""

from __future__ import annotations

import errno
import io
from typing import TextIO


class LogStream(io.TextIOBase):
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            _passed_over(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            _passed_over(error)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _passed_over(error: OSError) -> None:
    if error.errno == errno.EIO:
        raise error
