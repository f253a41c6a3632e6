"""When the queue's process looks for garbage: objects that only refer to one another.

Python's collector walks over all that is alive whenever a quarter has been added: with full windows that is half a
second in which no mail is sent. Here it never looks at much: at what is new, and again when that has become older; but
what a look that takes long has found in use is kept for good (`gc.freeze`). That is not looked at any more, but given
back like all else as soon as nothing refers to it. So a circle is lost that was in use when it was kept; what serves
mail and questions makes none (tests/wire/test_cycles.py).
"""

from __future__ import annotations

import gc
from time import thread_time
from typing import Any

YOUNG, OLDER, OLD = 4_000, 1, 1
"""After so many new objects they are looked at; every so many times those left over, too, and so many times of those
all that is not kept for good."""
LOOK_S = 0.003
"""A look that takes longer is the last one at what it has found in use."""


class Garbage:
    """Of this process, from now on."""

    def __init__(self) -> None:
        self._begun = 0.0
        gc.callbacks.append(self._note)
        gc.freeze()
        gc.collect()  # at nothing: until as much is new as a quarter of what this one has found, there is no whole one
        gc.set_threshold(YOUNG, OLDER, OLD)
        gc.enable()

    def _note(self, phase: str, _: dict[str, Any]) -> None:
        """Called before and after each look."""
        if phase == "start":
            self._begun = thread_time()
        elif thread_time() - self._begun > LOOK_S:
            gc.freeze()
