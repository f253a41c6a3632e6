"""The store as it is at one instant: what is written meanwhile, in other threads too, is not in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class KeptInstant:
    """One instant for several walks, between which others have their turns; for no longer than a question takes.

    It begins with the first walk. Failures: RuntimeError, which `Store.instant` names, if the store was opened anew.
    """

    __slots__ = ("_db", "_snapshot")

    def __init__(self) -> None:
        self._db = self._snapshot = None

    def of(self, db: Any) -> Any:
        if self._snapshot is None:
            self._db, self._snapshot = db, db.snapshot()
        if self._db is not db:
            raise RuntimeError("the store was opened anew meanwhile")
        return self._snapshot

    def close(self) -> None:
        """Harmless if the store was closed before."""
        if self._snapshot is not None:
            self._snapshot.close()


class Instant:
    """Of `Store.instant`, which names the errors; not to be used once that is over. The methods are the store's."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    def get(self, key: bytes) -> bytes | None:
        return self._snapshot.get(key, verify_checksums=True)  # type: ignore[no-any-return]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows: Iterator[tuple[bytes, bytes]] = self._walk(start, stop)
        return rows

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        found: Iterator[bytes] = self._walk(start, stop, include_value=False)
        return found

    def _walk(self, start: bytes, stop: bytes, **options: Any) -> Any:
        return self._snapshot.iterator(start=start, stop=stop, verify_checksums=True, fill_cache=False, **options)
