"""Makes the reports that are due, one at a time, each by `zonemta campaign report` in a process of its own.

Promise: a report is put into its folder whole, and not made again, whenever this process is killed: what a run has made
waits under a name of its own until it is in its place and that is noted. Each try is noted before it begins; after one
that failed there is a pause, each time twice as long.

Failures: what hinders a report is said in the log, with the remedy, and noted; nothing ends this process but SIGTERM,
which lets the run that is under way come to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zonemta_py
from zonemta_py.config import Config
from zonemta_py.logs.causes import cause
from zonemta_py.queue import questions
from zonemta_py.queue.api import Admin, QueueRefusal
from zonemta_py.reports import decisions
from zonemta_py.reports.folder import CampaignReport, ReportShelf

log = logging.getLogger(__name__)

LOOK_S = 10.0
RUN_S = 6 * 3600.0
"""A run that takes longer is ended."""
SAID_MAX = 300
_TEMPORARY = "tmp"
_HOUR_MS = 3_600_000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class ReportMaker:
    """queue: which is asked. now_ms: UNIX ms. command: what makes a campaign's page in that file; exit status 69 says
    that something is not installed."""

    def __init__(
        self, config: Config, queue: Admin, now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        command: Callable[[Config, CampaignReport, Path], list[str]] | None = None,
    ) -> None:  # fmt: skip
        self._config, self._queue, self._now_ms, self._command = config, queue, now_ms, command or _command
        self._shelf = ReportShelf(config)
        self._rows: dict[str, CampaignReport] = {}
        self._since_ms = 0
        self._swept_ms = 0
        self._ending = asyncio.Event()

    def stop(self) -> None:
        """Ends it after the run that is under way."""
        self._ending.set()

    async def run(self) -> None:
        """Until it is stopped."""
        began = False
        while not self._ending.is_set():
            made = False
            try:
                if not began:
                    self.begin()
                    began = True
                made = await self.look()
            except OSError as error:
                log.warning("reports of campaigns: %s: %s", error.filename or self._shelf.folder, cause(error))
            except (QueueRefusal, ValueError) as error:
                log.debug("reports of campaigns: the queue cannot be asked: %s", error)
            if not made:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), LOOK_S)

    def begin(self) -> None:
        """Puts in its place what a run had made before this process was killed. Raises OSError."""
        _end_left_over(self._shelf.folder / _TEMPORARY)
        self._since_ms = self._shelf.begin(self._now_ms())
        self._rows = {row.key: row for row in self._shelf.rows()}
        wanted = {row.waiting_name for row in self._rows.values()}
        for path in self._shelf.folder.glob("*.html*"):
            if path.name not in wanted:
                path.unlink()
        for row in [*self._rows.values()]:
            if not self._take(row) and (other := decisions.interrupted(row)) is not None:
                self._note(other)

    async def look(self) -> bool:
        """Notes what is new, and makes one report; True: it has tried one. Raises OSError, QueueRefusal, ValueError."""
        said = {one["name"]: one for one in await self._queue.ask(questions.campaign_ends)}
        now_ms, again_ms = self._now_ms(), int(self._config.reports.again_after_h * _HOUR_MS)
        self._notice(said, now_ms)
        for row in sorted(self._rows.values(), key=lambda row: row.ended_ms):
            returned = _returned(row, said)
            if decisions.due(row, returned, now_ms, again_ms):
                await self._try(decisions.trying(row, returned, now_ms))
                return True
            if (other := decisions.settled(row, returned, now_ms, again_ms)) is not None:
                self._note(other)
        self._sweep(said, now_ms)
        return False

    def _notice(self, said: dict[str, questions.CampaignEnd], now_ms: int) -> None:
        for one in said.values():
            key = CampaignReport(one["name"], one["created_ms"]).key
            if (row := decisions.noticed(self._rows.get(key), one, self._since_ms)) is not None:
                self._note(row)
        for known in [row for row in self._rows.values() if not _is_of(row, said)]:
            if (row := decisions.gone(known, now_ms)) is not None:
                self._note(row)

    def _note(self, row: CampaignReport) -> None:
        self._shelf.write(row)
        self._rows[row.key] = row

    # -- one report

    async def _try(self, row: CampaignReport) -> None:
        self._note(row)
        target = self._shelf.folder / row.waiting_name
        status, said = (0, "") if target.exists() else await self._run(row, target)
        try:
            if status == 0 and self._take(row):
                return
        except OSError as error:
            said = f"{error.filename or self._config.reports_folder}: {cause(error)}"
        row = decisions.failed(row, said or f"exit status {status}", status == os.EX_UNAVAILABLE)
        self._note(row)
        wait_min = max(1, round((row.next_ms - self._now_ms()) / 60_000))
        then = f"the next try is in {wait_min} minutes"
        if row.tries >= decisions.TRIES_MAX:
            then = f"no further try; `zonemta campaign report {row.name}` makes it"
        log.warning("campaign %s: its report cannot be made: %s; %s", row.name, row.trouble, then)

    def _take(self, row: CampaignReport) -> bool:
        """Puts into its place what a run has made; False: there is nothing. Raises OSError."""
        waiting = self._shelf.folder / row.waiting_name
        try:
            content = waiting.read_bytes()
        except FileNotFoundError:
            return False
        path = self._shelf.put(row, content)
        self._note(decisions.made(row, self._now_ms(), str(path.parent)))
        waiting.unlink()
        log.info("campaign %s: its report is %s", row.name, path)
        return True

    async def _run(self, row: CampaignReport, target: Path) -> tuple[int, str]:
        """Exit status, and the last sentence on standard error. Raises OSError."""
        place = self._shelf.folder / _TEMPORARY
        _end_left_over(place)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        said = place / "stderr"
        with said.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *self._command(self._config, row, target), stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL, stderr=errors, env=_environment(place), start_new_session=True,
                preexec_fn=_with_us,
            )  # fmt: skip
        try:
            status = await asyncio.wait_for(process.wait(), RUN_S)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            return os.EX_TEMPFAIL, f"it was not made within {RUN_S / 3600:g} hours"
        sentence = _last(said)
        shutil.rmtree(place, ignore_errors=True)
        return status, sentence

    # -- what is too old

    def _sweep(self, said: dict[str, questions.CampaignEnd], now_ms: int) -> None:
        """Once an hour. What the queue still tells of stays noted, or it would be made again."""
        if now_ms - self._swept_ms < _HOUR_MS:
            return
        self._swept_ms, keep_ms = now_ms, int(self._config.reports.keep_days * 24 * _HOUR_MS)
        for row in [row for row in self._rows.values() if decisions.outdated(row, now_ms, keep_ms)]:
            self._shelf.remove(row)
            if not _is_of(row, said):
                self._shelf.drop(row)
                del self._rows[row.key]


def _is_of(row: CampaignReport, said: dict[str, questions.CampaignEnd]) -> bool:
    """Whether the queue still tells of this campaign, and not of a later one of its name."""
    return row.name in said and said[row.name]["created_ms"] == row.created_ms


def _returned(row: CampaignReport, said: dict[str, questions.CampaignEnd]) -> int | None:
    return int(said[row.name]["returned"]) if _is_of(row, said) else None


def _command(config: Config, row: CampaignReport, target: Path) -> list[str]:
    reports = config.reports
    lake = ["--lake", str(config.folder / reports.lake)] if reports.lake is not None else []
    return [
        sys.executable, "-m", "zonemta_py", "campaign", "report", row.name, "--folder", str(config.folder),
        "--output", str(target), "--memory", f"{reports.memory_gb:g}", *lake,
    ]  # fmt: skip


def _environment(place: Path) -> dict[str, str]:
    """What a run leaves lies where the next one removes it."""
    kept = {name: value for name, value in os.environ.items() if name != "ZONEMTA_CONFIG"}
    ours = [str(Path(zonemta_py.__file__).parents[1]), *filter(None, [kept.get("PYTHONPATH", "")])]
    return kept | {"TMPDIR": str(place), "SPARK_LOCAL_DIRS": str(place), "PYTHONPATH": os.pathsep.join(ours)}


def _with_us() -> None:
    """It dies with this process; its JVM ends when that has gone, or by `_end_left_over`."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_left_over(place: Path) -> None:
    """Ends what a run that was killed has left, known by its environment: a JVM that was about to start would wait for
    ever once its folder is removed."""
    mark = os.fsencode(f"TMPDIR={place}")
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _last(path: Path) -> str:
    """The last sentence of ours, else the last line."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8192))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    ours = [line.removeprefix("zonemta: ") for line in lines if line.startswith("zonemta: ")]
    return "".join(ours[-1:] or lines[-1:])[:SAID_MAX]
