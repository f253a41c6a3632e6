"""Questions whose answers are pages of rows, asked until all rows are there, without an event loop: for commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from zonemta_py.wire.asking import ask

_AFTER: dict[str, Callable[[list[Any]], Any]] = {
    "standing": len,
    "in-doubt": lambda rows: f"{rows[-1]['id']} {rows[-1]['recipient']}",
    "campaigns": lambda rows: rows[-1]["name"],
}
"""Questions whose answers are pages of rows: where the next one begins."""
ROWS_AT_ONCE = 500


def ask_all(folder: Path, question: str, **arguments: Any) -> Any:
    """As `ask`; all rows, where the answer is a page of them."""
    following = _AFTER.get(question)
    if following is None:
        return ask(folder, question, **arguments)
    rows = page = ask(folder, question, limit=ROWS_AT_ONCE, **arguments)
    while len(page) == ROWS_AT_ONCE:
        page = ask(folder, question, limit=ROWS_AT_ONCE, after=following(rows), **arguments)
        rows += page
    return rows
