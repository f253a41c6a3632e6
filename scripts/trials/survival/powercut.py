"""A power cut: the queue's file system is shut down under the working MTA, and nothing that was not synced is left.

The queue lives on ext4 in an image behind a loop device. EXT4_IOC_SHUTDOWN with NOLOGFLUSH makes ext4 drop everything
at once, its own journal's open transaction too, as a disk that loses its power does; the next mount replays the rest.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from survival.client import Client
from survival.ledger import Ledger
from survival.rig import PATIENCE_S, RULES, Mta, enter, sink

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_NOLOGFLUSH = 2
_IMAGE_MB = 192
_TOOLS = {"mkfs.ext4": "e2fsprogs", "losetup": "mount", "mount": "mount", "umount": "mount"}
Progress = Callable[[int, str], None]


def missing() -> str:
    """Why the power cannot be cut here; empty if it can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            return f"{tool} is not installed: apt-get install {package}"
    probe = subprocess.run(["losetup", "--find"], capture_output=True, text=True)
    return "" if probe.returncode == 0 else f"there are no loop devices ({probe.stderr.strip()})"


class Disk:
    """An ext4 file system in an image."""

    def __init__(self, folder: Path) -> None:
        self._image, self.place = folder / "image", folder / "disk"
        self.place.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(_IMAGE_MB << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True)

    def mount(self) -> None:
        """Replays ext4's journal where that is needed. Raises CalledProcessError."""
        subprocess.run(["mount", "-o", "loop", self._image, self.place], check=True)

    def cut(self) -> None:
        handle = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _NOLOGFLUSH))
        finally:
            os.close(handle)

    def unmount(self) -> None:
        """Waits for those who are still about to end."""
        end = time.monotonic() + PATIENCE_S
        while subprocess.run(["umount", self.place], capture_output=True).returncode != 0:
            if not os.path.ismount(self.place):
                return
            if time.monotonic() > end:
                raise AssertionError(f"{self.place} cannot be unmounted")
            time.sleep(0.02)


async def trial(
    folder: Path, *, cuts: int, queues: int = 1, seed: int, progress: Progress = lambda done, note: None
) -> dict[str, Any]:
    """Letters go in without a break; each cut falls a random while after mail is taken again.

    Every other one after clients are greeted, so perhaps while the queue recovers; and every other one is followed by
    `fsck`, with --repair or without, which must find the queue healthy.
    """
    dice, ledger = random.Random(seed), Ledger()
    disk = Disk(folder)
    disk.mount()
    async with sink(ledger, dot_latency_s=0.005, jitter=1.0, rules=RULES, seed=seed) as running:
        mta = Mta(disk.place / "queue", running.port, home=folder, queues=queues)
        client = Client(mta.port, ledger)
        opened, fscks = list[str](), 0
        try:
            mta.start()
            for number in range(cuts):
                await (mta.accepting() if number % 2 else mta.taking())
                letters = asyncio.create_task(client.hand_in(range(number * 10_000, (number + 1) * 10_000)))
                await asyncio.sleep(dice.uniform(0.05, 0.8))
                letters_before = client.replies[250]
                disk.cut()
                mta.end()
                _damage_said(mta)  # what it said when its disk was gone beneath it does not count
                letters.cancel()
                await asyncio.gather(letters, return_exceptions=True)
                disk.unmount()
                disk.mount()
                opened += _damage_said(mta)
                if number % 2:
                    repair = ["--repair"] if number % 4 == 1 else []
                    opened += filter(None, [await asyncio.to_thread(mta.fsck, *repair)])
                    fscks += 1
                mta.start()
                progress(number + 1, f"{letters_before:,} letters acknowledged")
            await mta.taking()
            await mta.drained()
            in_doubt = mta.in_doubt()
            mta.end()
            opened += _damage_said(mta)
            enter(running, ledger)
            judgement = ledger.judge(in_doubt)
            problems = await mta.problems()
        finally:
            mta.end()
            disk.unmount()
    return {
        "cuts": cuts,
        "fsck_runs": fscks,
        "replies": dict(client.replies),
        **judgement.figures(),
        "broken": judgement.broken
        + [f"check: {problem}" for problem in problems[:5]]
        + [f"not clean after a cut: {line}" for line in opened[:5]],
    }


def _damage_said(mta: Mta) -> list[str]:
    """Lines in which the MTA says that it found damage, since the last look; the log begins anew."""
    lines = mta.log.read_text(errors="replace").splitlines() if mta.log.exists() else []
    mta.log.unlink(missing_ok=True)
    return [line for line in lines if "damage" in line or "repaired" in line]
