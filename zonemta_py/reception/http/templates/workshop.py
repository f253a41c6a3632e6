"""Work on templates that others have written, in processes of their own (`merge.trial`), one at a time: only requests
that bring a template wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Literal

TRIAL_S = 20.0
"""How long the work on one template may take."""
TOO_MUCH = "the template takes too long or too much memory; make it simpler"


class Workshop:
    """Runs one such process after another."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)

    async def run(self, what: Literal["look", "prepare", "render"], given: bytes) -> bytes | None:
        """What the process says; None: it took too much, or died."""
        async with self._turn:
            working = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "zonemta_py.merge.trial", what,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                said, _ = await asyncio.wait_for(working.communicate(given), TRIAL_S)
            except TimeoutError:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    working.kill()
            return said if said and working.returncode == 0 else None
