"""The pulse of a sender: a thread that tells the queue every few seconds that this process runs.

Leases have a deadline. A sender that is stopped, frozen, or not scheduled for `queue.lease_s` seconds loses its leases:
what it may have sent already is listed as in doubt, and other senders send it. The pulse comes from a thread with a
connection of its own, so that a loop that is busy for a while (a plugin, a large message) costs no leases; a loop that
has not turned for LOOP_S counts as dead.

A sender that is stuck for as long again is killed, and the supervisor starts another: it may be the only one. If it
runs again before that, what it was handed meanwhile is returned untried (`stale`); what it had begun continues, and its
results are accepted unless another sender has begun the same (`Settling.late`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from pathlib import Path
from secrets import token_hex

from zonemta_py.wire.frames import Operation, pack

BEATS = 6
"""Pulses per interval in which one is needed."""
LOOP_S = 300.0


class Pulse:
    """Begins when it is made. Its thread ends with the process, or with `stop`."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self.token, self._path, self._lease_s = token_hex(8), path, lease_s
        self._last, self._woken = time.monotonic(), 0.0
        self._loop, self._turned = asyncio.get_running_loop(), time.monotonic()
        self._stopped = threading.Event()
        self._turn()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def stale(self, since: float) -> bool:
        """Whether this process has been stuck since then (monotonic seconds), so that its leases may be gone."""
        return self._woken >= since or time.monotonic() - self._last > self._lease_s

    def stop(self) -> None:
        self._stopped.set()

    def _turn(self) -> None:
        self._turned = time.monotonic()
        self._loop.call_later(self._lease_s / BEATS, self._turn)

    def _beat(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._lease_s)
                connection.connect(os.fspath(self._path))
                while not self._stopped.wait(self._lease_s / BEATS):
                    now = time.monotonic()
                    if now - self._last > self._lease_s:
                        self._woken = now
                    self._last = now
                    if now - self._turned < LOOP_S:
                        connection.sendall(pack((int(Operation.BEAT), 0, self.token)))
            self._stopped.wait(self._lease_s / BEATS)


def sibling(transport: asyncio.Transport | None) -> int:
    """The process at the other end, if the same supervisor has started it; 0: it has not, is gone, or is this one."""
    peer = transport.get_extra_info("socket") if transport is not None else None
    if peer is None:
        return 0
    pid: int = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return pid if pid != os.getpid() and int(after_name[1]) == os.getppid() else 0
