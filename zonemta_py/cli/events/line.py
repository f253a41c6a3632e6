"""An event as text: one line in a pipe; at a terminal, lines of its width, what follows the first indented."""

from __future__ import annotations

import shutil
import sys
import textwrap
from datetime import datetime
from typing import Any

from zonemta_py.cli.terminal.output import moment, printable
from zonemta_py.events.event import Event

_TYPE_WIDTH = 10
_YEAR_9999_MS = 253_370_764_800_000
_INDENT = " " * 9
_SHOWN = frozenset(("message", "recipient", "domain", "code", "enhanced", "reply", "remote", "kind", "name", "cause"))
_DETAILS = frozenset(("lease", "started_ms", "local", "tls", "stage", "rule", "zones", "priority", "hold_until_ms"))
"""For programs: not in the text."""


def line(event: Event) -> str:
    at_terminal = sys.stdout.isatty()
    data = event.data
    when = _clock(event.ms) if at_terminal else moment(event.ms)
    who = [str(data[name]) for name in ("message", "recipient") if data.get(name)] or [_what(data)]
    text = printable(" ".join([when, event.type.ljust(_TYPE_WIDTH), *who, *_rest(data)])).replace("\n", " ").rstrip()
    if not at_terminal:
        return text
    width = max(40, shutil.get_terminal_size().columns)
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
    )


def _clock(ms: int) -> str:
    """The time of day alone, of what happened today."""
    then = datetime.fromtimestamp(ms / 1000)
    return f"{then:%H:%M:%S}" if then.date() == datetime.now().date() else moment(ms)


def _what(data: dict[str, Any]) -> str:
    return " ".join(str(data[name]) for name in ("kind", "name") if data.get(name))


def _rest(data: dict[str, Any]) -> list[str]:
    """The answer, or the cause; then whatever else there is."""
    said = " ".join(str(data[name]) for name in ("code", "enhanced", "reply", "cause") if data.get(name))
    others = [
        f"{name.removesuffix('_ms')}={_shown(name, value)}"
        for name, value in data.items()
        if name not in _SHOWN and name not in _DETAILS
    ]
    about = [_what(data)] if data.get("recipient") and data.get("kind") else []
    return [*about, *([said] if said else []), *others, *([f"by {data['remote']}"] if data.get("remote") else [])]


def _shown(name: str, value: Any) -> str:
    if name.endswith("_ms") and name != "took_ms" and isinstance(value, int) and 0 < value < _YEAR_9999_MS:
        return moment(value).replace(" ", "T")
    if isinstance(value, list):
        return ",".join(map(str, value))
    text = str(value)
    return repr(text) if " " in text else text
