"""Recipients that were deferred only because their destination was away: they go as soon as it is back.

They wait in the store as all that are deferred do, until their retry is due, and their notes say why (`Note.away`).
Here their keys are kept besides, by egress path, so that the first answer of the destination brings them back into
the window, where they take turns with the rest. Only those that were tried are here: what had not been is parked on
its flow queue. So they are few, and it costs nothing where none is away. After a restart the walk over deferred
mail that looks for deadlines finds them again.

A destination that turns some connections away and takes others would have them tried again and again: while it does not
rest, they are brought back once in `damp_s` at most.
"""

from __future__ import annotations

from collections import deque

KEYS_MAX = 100_000
"""In a zone; later ones wait for their retry."""


class Away:
    """Of one zone. now: steady seconds."""

    def __init__(self, damp_s: float) -> None:
        self._damp_s = damp_s
        self.waiting: dict[tuple[str, str], tuple[float, dict[bytes, None]]] = {}
        self._count = 0
        self.back: deque[bytes] = deque()
        """Keys to be read now. Some may have gone, be busy, or be here twice."""

    def configure(self, damp_s: float) -> None:
        """Another bound from now on."""
        self._damp_s = damp_s

    def add(self, site: str, source: str, key: bytes, now: float) -> None:
        """It was deferred, and is in the store. The first walk after a start may find one that its sender has put off
        since; it is here once."""
        since, found = self.waiting.get((site, source)) or (now, {})
        if self._count < KEYS_MAX and key not in found:
            self._count += 1
            found[key] = None
            self.waiting[site, source] = max(since, now), found

    def answered(self, site: str, source: str, probed: bool, now: float) -> bool:
        """That destination has answered, at the end of its rest if probed. True: there is something to read."""
        since, found = self.waiting.get((site, source), (now, {}))
        if not found or not (probed or now - since >= self._damp_s):
            return False
        del self.waiting[site, source]
        self._count -= len(found)
        self.back.extend(found)
        return True

    def renamed(self, domain: str, site: str) -> None:
        """The domain's mail goes to that site: unknown after a restart."""
        for name, source in [name for name in self.waiting if name[0] == domain] if domain != site else ():
            since, found = self.waiting.pop((name, source))
            latest, others = self.waiting.get((site, source)) or (since, {})
            both = others | found
            self._count -= len(others) + len(found) - len(both)
            self.waiting[site, source] = max(since, latest), both
