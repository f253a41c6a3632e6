"""Waits a moment for what a dying MTA has yet to release: after `kill -9` and an immediate start, ports and locks are
held until the kernel has ended the last child."""

from __future__ import annotations

import time
from collections.abc import Callable

from zonemta_py.cli.terminal.errors import CommandError

_PATIENCE_S = 2.0
_PAUSE_S = 0.02


def until(check: Callable[[], object]) -> None:
    """Repeats `check` until it does not raise CommandError, for two seconds at most; then raises its last one."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            check()
            return
        except CommandError:
            if time.monotonic() >= end:
                raise
        time.sleep(_PAUSE_S)
