"""trials/faults: full disks, failing syncs, power cuts and damaged files, one trial after the other, at length."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from survival import broken_off, damage, disk, disk_mounted, powercut, shim
from survival.report import bar, table

BROKEN_OFF_S = 3600
EACH = 1_000
"""More than there are."""
Trial = Callable[[Path, int, Callable[[int, str], None]], dict[str, Any]]


def _no_space(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(disk.no_space(folder, rounds=100, seed=seed, progress=progress))


def _failing_syncs(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(disk.failing_syncs(folder, calls=range(1, 101), seed=seed, progress=progress))


def _read_only(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(disk.read_only(folder, rounds=20, seed=seed, progress=progress))


def _full(kind: str, by: str) -> Trial:
    def run(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
        return asyncio.run(disk_mounted.full(folder, kind=kind, by=by, rounds=20, progress=progress))

    return run


def _full_of_broken_off(kind: str) -> Trial:
    def run(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
        return asyncio.run(disk_mounted.broken_off(folder, kind=kind, rounds=10, progress=progress))

    return run


def _error_of_ext4(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(disk_mounted.read_only(folder, rounds=10, progress=progress))


def _power_cuts(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(powercut.trial(folder, cuts=50, seed=seed, progress=progress))


def _power_cuts_of_three(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(powercut.trial(folder, cuts=60, queues=3, seed=seed, progress=progress))


def _damage(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return damage.trial(folder, flips=500, cuts=200, files=200, seed=seed, progress=progress)


def _each(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return damage.trial(folder, each=EACH, seed=seed, progress=progress)


def _broken_off(folder: Path, seed: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    return asyncio.run(broken_off.trial(folder, seconds=BROKEN_OFF_S, seed=seed, progress=progress))


TRIALS: dict[str, tuple[str, int, Callable[[], str], Trial]] = {
    "no-space": ("ENOSPC at random offsets", 100, shim.missing, _no_space),
    "failing-syncs": ("EIO from the k-th sync", 100, shim.missing, _failing_syncs),
    "read-only": ("EROFS, as after a remount, and back", 20, shim.missing, _read_only),
    **{
        f"full-{kind}-{by}": (f"A small {kind}, full by {by}", 20, disk_mounted.cannot_mount, _full(kind, by))
        for kind in disk_mounted.KINDS
        for by in ("another", "mail")
    },
    **{
        f"full-{kind}-broken-off": (
            f"A small {kind} and bodies that never end",
            10,
            disk_mounted.cannot_mount,
            _full_of_broken_off(kind),
        )
        for kind in disk_mounted.KINDS
    },
    "error-ext4": ("An error makes an ext4 read-only", 10, disk_mounted.cannot_mount, _error_of_ext4),
    "power-cuts": ("Power cuts", 50, powercut.missing, _power_cuts),
    "power-cuts-3": ("Power cuts with three queues", 60, powercut.missing, _power_cuts_of_three),
    "broken-off": ("Large bodies broken off and delivered", BROKEN_OFF_S, lambda: "", _broken_off),
    "each": ("Each family of keys lost once, each file gone and flipped once", EACH, lambda: "", _each),
    "damage": ("Files flipped, cut, zeroed, emptied and gone", 900, lambda: "", _damage),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/trials/faults", description=__doc__)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help=f"which of {', '.join(TRIALS)}; default: all")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run's dice")
    parser.add_argument("--folder", type=Path, help="where queues and logs lie; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    unknown = [name for name in options.trials if name not in TRIALS]
    if unknown:
        parser.error(f"there is no trial {unknown[0]!r}; there are {', '.join(TRIALS)}")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-faults-"))
    console = Console(stderr=options.json)
    console.print(f"seed {options.seed}, queues and logs in {folder}")
    figures = {name: _run(console, name, folder / name, options.seed) for name in options.trials or TRIALS}
    if options.json:
        print(json.dumps({"seed": options.seed, "trials": figures}, indent=1))
    return 1 if any(row.get("broken") for row in figures.values()) else 0


def _run(console: Console, name: str, folder: Path, seed: int) -> dict[str, Any]:
    title, total, missing, trial = TRIALS[name]
    reason = missing()
    if reason:
        console.print(f"[yellow]skipped[/yellow] {title}: {reason}")
        return {"skipped": reason}
    folder.mkdir(parents=True, exist_ok=True)
    with bar(console, title, total) as progress:
        figures = trial(folder, seed, progress)
    table(console, title, figures)
    return figures


if __name__ == "__main__":
    sys.exit(main())
