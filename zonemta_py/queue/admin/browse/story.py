"""The story of a message, or of all mail to a recipient: acceptance, each attempt with its reply, what was done to it,
its end; read from the journal and the archive.

A process of its own searches their files (`reading.py`), the newest first. It looks for LOOK_S at most: `next` is the
file before which the question goes on (`before`), `back_to_ms` how far it has looked. A message's files from before its
acceptance are not looked at. One story is read at a time; the process is ended when nobody has asked for KEPT_S, when
it does not answer, and by the end of this one.

Rows, oldest first: seq, ms, id, what (accepted, attempt, delivered, deferred, bounced, held, requeued, postponed, in
doubt, removed, released, task, ended; moved to another queue of the MTA, or taken over from one; suppressed, no longer
suppressed), recipients (`reading.RECIPIENTS_MAX` at most; `count` of them there were), zone, and what the record says.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import PIPE, Popen
from threading import Timer
from typing import Any

from zonemta_py.queue.admin.browse import reading
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import Refused

LOOK_S = 1.0
ANSWER_S = 30.0
"""The longest that an answer may take: a busy machine gives the process little time."""
KEPT_S = 20.0


async def trace(queue: QueueContext, what: str, before: str = "") -> dict[str, Any]:
    """what: a message's id, or an address. Raises ValueError for anything else, and if the files cannot be read."""
    what, kind = reading.subject(what)
    question = [str(queue.core.config.folder), what, kind, before, LOOK_S]
    found = await asyncio.get_running_loop().run_in_executor(_reader.thread, _reader.ask, question)
    return {"about": what, "kind": kind} | found


class Reader:
    """The process, and the thread that waits for it."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "trace")
        self._process: Popen[bytes] | None = None
        self._unused: Timer | None = None

    def ask(self, question: list[Any]) -> dict[str, Any]:
        """In the thread. Raises ValueError."""
        if self._unused is not None:
            self._unused.cancel()
        answer = self._answer(question)
        if answer is None:
            self.end()
            raise Refused("the journal's files could not be searched; see the log, and ask again")
        self._unused = Timer(KEPT_S, self.thread.submit, (self.end,))
        self._unused.daemon = True
        self._unused.start()
        return answer

    def _answer(self, question: list[Any]) -> dict[str, Any] | None:
        if self._process is None or self._process.poll() is not None:
            self.end()
            command = [sys.executable, "-m", reading.__name__]
            self._process = Popen(command, stdin=PIPE, stdout=PIPE)  # its standard error is ours
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        late = Timer(ANSWER_S, self._process.kill)
        late.start()
        try:
            reading.send(asked, question)
            found: dict[str, Any] | None = reading.receive(answered)
            return found
        except OSError:
            return None
        finally:
            late.cancel()

    def end(self) -> None:
        """In the thread."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


_reader = Reader()
