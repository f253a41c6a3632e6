"""What clients are told of a disk that has failed, whoever met its error first."""

from __future__ import annotations

import errno
import logging

from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.mail.reply import Reply

log = logging.getLogger(__name__)

NO_SPACE = Reply(452, "4.3.1", "the queue's disk is full, try again later")
NO_QUORUM = Reply(
    451, "4.3.2", "the cluster cannot keep mail safely now, try again later; most of its NATS servers must be reached"
)
DISK_ERROR = Reply(451, "4.3.0", "the queue's disk reported an error, try again later")


def refusal(error: Exception) -> Reply:
    """Why nothing can be stored now. A fenced store was written to in vain a moment ago, and says of what it failed."""
    full = (
        error.full if isinstance(error, StoreFailed) else getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    )
    return NO_SPACE if full else DISK_ERROR


def tell(before: Reply | None, now: Reply, error: Exception) -> None:
    """Logs each disk error once; writing is retried twice a second."""
    if before is not now:
        log.error("%s; mail is refused with %d until the disk can be written again", error, now.code)
