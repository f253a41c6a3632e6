"""Which days (UTC) have been reported on (RFC 8460), and reporting on those that have not.

FOLDER/tls/reported has the day in its first line, then a line for each domain whose report has been sent, and finally a
dot. Each line is on stable storage before the next report is made: a crash can repeat only the report that was being
handed in, and both copies have the same Report-ID (RFC 8460 4.4).

Reports are sent within SPREAD_S after midnight, at a time derived from our hostname, so that not all senders report at
once (RFC 8460 4.1). Missed days are reported later, up to MISSED_MAX of them.

Failures: `run` raises QueueRefusal if the queue does not accept a report now, OSError if the file cannot be written:
then the day is not done, and the next call continues where it stopped.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.delivery.tls.mail import HandIn, send_day
from zonemta_py.delivery.tls.mta_sts import Names
from zonemta_py.disk.files import replace_file
from zonemta_py.mail.envelope import Envelope, Notify, Recipient
from zonemta_py.queue.api import QueueRefusal, Submission

log = logging.getLogger(__name__)

SPREAD_S = 4 * 3600
MISSED_MAX = 7
_DAY_S = 86_400
_DONE = "."


class Ledger:
    """The file. folder: the MTA's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tls" / "reported"

    def read(self) -> tuple[date | None, set[str], bool]:
        """The last day that was begun, the domains done, and whether the day is complete. An invalid file counts as
        missing."""
        try:
            first, *lines = self._path.read_text().split("\n")
            return date.fromisoformat(first), set(lines[:-1]), _DONE in lines[:-1]  # the last one may be incomplete
        except (OSError, ValueError):
            return None, set(), True

    def begin(self, day: date) -> None:
        """Starts a day, dropping the one before. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, f"{day}\n".encode(), 0o600, suffix=f".{os.getpid()}")

    def note(self, domain: str) -> None:
        """Records that the domain's report has been sent. Raises OSError."""
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, f"{domain}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)

    def end(self) -> None:
        """Every report on the day has been sent. Raises OSError."""
        self.note(_DONE)


def wait_s(config: Config, now: float) -> float:
    """Seconds until there is something to report; 0: now. now: UNIX time."""
    start_s = now // _DAY_S * _DAY_S + _offset(config.server.name)
    if not any(True for _ in missing(Ledger(config.folder), now)):
        start_s += _DAY_S
    return max(0.0, start_s - now)


def missing(ledger: Ledger, now: float) -> Iterable[date]:
    """The days to report on, oldest first."""
    yesterday = datetime.fromtimestamp(now, UTC).date() - timedelta(days=1)
    last, _, whole = ledger.read()
    day = yesterday if last is None else max(last + timedelta(days=whole), yesterday - timedelta(days=MISSED_MAX - 1))
    while day <= yesterday:
        yield day
        day += timedelta(days=1)


async def run(config: Config, names: Names, submission: Submission, now: float) -> None:
    """Reports on every missing day."""
    ledger, hand_in = Ledger(config.folder), through(submission, now)
    for day in list(missing(ledger, now)):
        last, done, _ = ledger.read()
        if last != day:
            ledger.begin(day)
            done = set()
        for said in await send_day(config, day, names, hand_in, done, ledger.note):
            log.info("TLS report on %s: %s", day, said)
        ledger.end()


def through(submission: Submission, now: float) -> HandIn:
    """Hands reports in to our own queue. Failed reports cause no notification: it would go to postmaster, daily."""

    async def hand_in(sender: str, recipients: list[str], message: bytes) -> None:
        envelope = Envelope(
            sender, [Recipient(recipient, int(Notify.NEVER)) for recipient in recipients], len(message),
            smtputf8=not "".join((sender, *recipients)).isascii(), protocol="LOCAL", received_ms=int(now * 1000),
        )  # fmt: skip
        try:
            await submission.accept(envelope, message)
        except QueueRefusal as refusal:
            if not refusal.reply.permanent:
                raise
            raise OSError(str(refusal.reply)) from None

    return hand_in


def _offset(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % SPREAD_S
