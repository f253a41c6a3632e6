"""Log lines of one process: from `server.log_level` on, through plugins that listen to `log_entry`, to standard error,
all in the shape that `log.format` says; lines about mail (`mail.py`) among them.

Failures: a key for hashing that cannot be made is a ConfigError.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from zonemta_py.config import Config, ConfigError
from zonemta_py.logs import privacy
from zonemta_py.logs.privacy import Persons
from zonemta_py.logs.shape import SHAPES, Shape
from zonemta_py.logs.stream import LogStream

Filter = Callable[[dict[str, Any]], dict[str, Any] | None]
"""What plugins make of an entry; None: they drop it."""
_WITH_CLIENTS = ("zonemta_py.reception", "zonemta_py.pull")


def begin(config: Config, entries: Filter | None) -> None:
    """For this process, instead of what was before. entries: None where no plugin listens. Raises ConfigError."""
    use(config, handler_of(config, entries))


def handler_of(config: Config, entries: Filter | None) -> logging.Handler:
    """What `use` needs, and all of it that may fail; nothing is changed yet. Raises ConfigError."""
    hidden = people(config)
    handler = _Handler(stream(), SHAPES[config.log.format], hidden)
    if hidden is not None:  # before plugins have it, as lines about mail
        handler.addFilter(lambda record: _hide(hidden, record))
    if entries is not None:
        handler.addFilter(lambda record: _kept(entries, record))
    return handler


def use(config: Config, handler: logging.Handler) -> None:
    """From now on lines go there."""
    shape(config)
    logging.basicConfig(level=config.server.log_level.upper(), handlers=[handler], force=True)


def stream() -> LogStream:
    """Standard error."""
    if not isinstance(sys.stderr, LogStream):
        sys.stderr = LogStream(sys.stderr)
    return sys.stderr


def shape(config: Config) -> None:
    """From now on also what is printed to standard error has the shape of log lines, if that is JSON."""
    json = SHAPES["json"] if config.log.format == "json" else None
    stream().shape = json and (lambda line: json(_now_ms(), "info", "zonemta", line.removeprefix("zonemta: "), {}))


def totals(process: str) -> list[tuple[str, tuple[str, ...], float]]:
    """What is counted here, for metrics. Asked for once a second, so lines that wait are tried again meanwhile."""
    lost = 0
    if isinstance(sys.stderr, LogStream):
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        lost = sys.stderr.dropped
    return [("zonemta_log_lines_dropped_total", (process,), lost)]


def people(config: Config) -> Persons | None:
    try:
        return privacy.of(config.log.personal, config.folder)
    except OSError as error:
        raise ConfigError(
            f"log.personal: the key {config.folder / privacy.KEY_FILE} cannot be made or read ({error.strerror}); let"
            " the server's user own server.folder"
        ) from None


class _Handler(logging.Handler):
    """Lines of the logging module."""

    def __init__(self, to: LogStream, shape: Shape, people: Persons | None) -> None:
        super().__init__()
        self._to, self._shape, self._persons = to, shape, people
        self._tracebacks = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        message, fields = record.getMessage(), {}
        if record.exc_info:
            trace = self._tracebacks.formatException(record.exc_info)
            if self._persons is not None:
                trace = self._persons.text(trace)
            if self._shape is SHAPES["json"]:
                fields["exception"] = trace
            else:
                message = f"{message}\n{trace}"
        ms = int(record.created * 1000)
        with contextlib.suppress(OSError):  # the terminal has gone; who prints there is told
            self._to.put(self._shape(ms, record.levelname.lower(), record.name, message, fields))


def _hide(people: Persons, record: logging.LogRecord) -> bool:
    """A line of those who deal with clients names theirs by IP address."""
    of_clients = record.name.startswith(_WITH_CLIENTS)
    if isinstance(record.args, tuple):
        record.args = tuple(people.argument(value, of_clients) for value in record.args)
    record.msg, record.args = people.text(record.getMessage()), None
    return True


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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
