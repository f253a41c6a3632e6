"""Quarantine as recovery uses it: one case per finding, even if recovery is restarted before it is done.

A process that dies during a repair, or for lack of space, is started again at once, and finds the same damage. What has
been set aside is listed in `quarantine/.begun` until recovery is done, and is not set aside again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zonemta_py.disk.files import replace_file
from zonemta_py.disk.quarantine import HARMLESS, Quarantine

_LIST = ".begun"


class Once(Quarantine):
    """In use until `done`. Raises OSError as `Quarantine` does."""

    def case(self, what: str, note: dict[str, Any], contents: dict[str, bytes] | None = None) -> Path:
        return self._known(what, note) or self._note(what, note, super().case(what, note, contents))

    def copy(self, what: str, note: dict[str, Any], paths: list[Path]) -> Path:
        known = self._known(what, note)
        if known is not None:
            return known
        fresh = Quarantine(self.folder).copy(what, note, paths)
        return self._note(what, note, fresh)

    def cases_begun(self) -> list[tuple[str, str]]:
        """Names of cases, and what is wrong, also of a recovery that was cut off before this one."""
        rows = [(place, name.partition(" ")) for name, place in self._begun().items()]
        return [(place, wrong) for place, (what, _, wrong) in rows if what != HARMLESS]

    def done(self) -> None:
        """Later findings get cases of their own."""
        (self.folder / _LIST).unlink(missing_ok=True)

    def _known(self, what: str, note: dict[str, Any]) -> Path | None:
        place = self._begun().get(_name(what, note))
        return self.folder / place if place and (self.folder / place).is_dir() else None

    def _note(self, what: str, note: dict[str, Any], place: Path) -> Path:
        rows = self._begun() | {_name(what, note): place.name}
        replace_file(self.folder / _LIST, json.dumps(rows).encode())
        return place

    def _begun(self) -> dict[str, str]:
        try:
            rows = json.loads((self.folder / _LIST).read_text())
        except (OSError, ValueError):
            return {}
        return {str(name): str(place) for name, place in rows.items()} if isinstance(rows, dict) else {}


def _name(what: str, note: dict[str, Any]) -> str:
    return what + " " + str(note.get("error", note))
