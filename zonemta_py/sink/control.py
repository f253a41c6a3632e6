"""Rates that change while the sink runs: from a file of JSON, or from the program around it.

Failures: a control file that cannot be read, or has invalid values, changes nothing and is logged.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from zonemta_py.logs.causes import cause
from zonemta_py.sink.options import SinkError, SinkOptions

log = logging.getLogger(__name__)

_KINDS: dict[str, tuple[type, ...]] = {"rate_limit": (int, float), "rate_burst": (int, float), "rate_code": (int,)}


def changed(options: SinkOptions, rates: Mapping[str, object]) -> SinkOptions:
    """With other rates. Raises SinkError."""
    for name, value in rates.items():
        if name not in _KINDS:
            raise SinkError(f"{name!r} cannot be changed while the sink runs; only {', '.join(_KINDS)} can")
        if type(value) not in _KINDS[name]:
            raise SinkError(f"{name} is {value!r}, but must be a number")
    coming = dataclasses.replace(options, **rates)  # type: ignore[arg-type]
    coming.check()
    return coming


class Control:
    """Watches the file, and calls `change` with its contents whenever they are new."""

    def __init__(self, path: Path | None, change: Callable[..., None]) -> None:
        self._path, self._change = path, change
        self._text = ""

    def look(self) -> None:
        """A missing file changes nothing."""
        try:
            text = self._path.read_text() if self._path is not None else ""
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            text = ""
            log.warning("%s cannot be read (%s)", self._path, cause(error))
        if not text or text == self._text:
            return
        self._text = text
        try:
            rates = json.loads(text)
            if not isinstance(rates, dict):
                raise SinkError('write an object, such as {"rate_limit": 20}')
            self._change(**rates)
        except (ValueError, TypeError) as error:  # SinkError and JSONDecodeError are ValueErrors
            log.warning("%s changes nothing: %s", self._path, error)
