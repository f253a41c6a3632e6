"""Log lines of one process: from `server.log_level` on, through plugins that listen to `log_entry`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Filter = Callable[[dict[str, Any]], dict[str, Any] | None]
"""What plugins make of an entry; None: they drop it."""


def begin(level: str, entries: Filter | None) -> None:
    """level: as configured. entries: None where no plugin listens."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if entries is not None:
        logging.getLogger().handlers[0].addFilter(lambda record: _kept(entries, record))


def _kept(entries: Filter, record: logging.LogRecord) -> bool:
    """Shows a line to plugins, and applies their changes; False: one of them dropped it."""
    if getattr(record, "unfiltered", False):
        return True
    entry = {"level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
    kept = entries(entry)
    if kept is None:
        return False
    record.msg, record.args = str(kept.get("message", record.getMessage())), None
    record.levelname = str(kept.get("level", record.levelname)).upper()
    record.name = str(kept.get("logger", record.name))
    return True
