"""The archive: segments are added as soon as they are closed, and leave the journal once no restart needs them.

Promise: what happened before `rotate` is called can be read in the archive when it has returned. Failures: OSError of
the disk; the next call makes up for it.
"""

from __future__ import annotations

import asyncio
import logging

from zonemta_py.journal.repair import repair_segments
from zonemta_py.journal.segments import every_file, files, first_seq, summary_of
from zonemta_py.queue.core import segments
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queue.suppression.register import SuppressionList

log = logging.getLogger(__name__)


async def publish(core: Core) -> None:
    """Links closed segments into the archive. Raises OSError."""
    await core.disk.journal.stable()
    folder = core.config.folder
    segments.publish(folder / "journal", folder / "archive")


async def rotate(core: Core) -> str:
    """Closes the open segment, if it holds anything but positions: its name, or "". Raises ValueError."""
    closed = core.disk.ledger.rotate_with_news()
    try:
        await publish(core)
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}; free space or repair the disk, then ask again") from None
    newest = files(core.config.folder / "archive")[-1:]
    return newest[0].name if closed and newest else ""


async def retire(core: Core, suppression: SuppressionList, before_seq: int) -> None:
    """Removes finished segments from the journal, and outdated ones from the archive.

    Each is read once more before: readers of the archive get a record of what was lost meanwhile.
    """
    folder = core.config.folder
    spans = core.disk.segments.finished(before_seq)
    if spans:
        places = folder / "journal", folder / "archive"
        for fault in await asyncio.to_thread(repair_segments, *places, spans, core.disk.quarantine):
            log.error("damage in the journal: %s; what could be read stays in the archive", fault)
        core.note_damage()
        segments.retire(folder / "journal", folder / "archive", spans)
        await prune(core, suppression)


async def prune(core: Core, suppression: SuppressionList) -> None:
    """Deletes outdated segments. The archive can replace a lost store, so if the suppression list was last written in
    what is deleted, it is first written to the journal again."""
    folder, queue = core.config.folder, core.config.queue
    archive, oldest = folder / "archive", segments.oldest(folder / "journal")
    bytes_max = queue.archive_bytes and max(queue.archive_bytes, 2 * suppression.told_bytes)
    gone = segments.outdated(archive, core.clock.earlier_ms(), queue.archive_days, bytes_max, oldest)
    if not gone or core.disk.journal.trouble is not None:
        return
    left = min(first_seq(path) for path in every_file(folder / "journal", archive) if path not in gone)
    if suppression.told_from < left:
        await suppression.tell_all()
    for path in gone:
        summary_of(path).unlink(missing_ok=True)
        path.unlink()
