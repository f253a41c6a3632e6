"""For how long mail was stopped by choice: stretches of steady time, by what was stopped.

A message does not age while an operator has stopped its path. What is stopped now is in `policy/state.py`; past stops
are here, for as long as a message that waited through them may live. Pure, but for what it remembers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

KEPT_MS = 400 * 86_400_000
STRETCHES_MAX = 100
"""Of one name; beyond that the two oldest are joined, so that mail lives too long rather than too short."""

Span = tuple[int, int]


class Pauses:
    """By kind and name."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, str], list[Span]] = {}

    def __bool__(self) -> bool:
        return bool(self._spans)

    def add(self, kind: str, name: str, since_ms: int, until_ms: int) -> None:
        """It was stopped for so long."""
        if until_ms <= since_ms:
            return
        spans = self._spans.setdefault((kind, name), [])
        spans.append((since_ms, until_ms))
        if len(spans) > STRETCHES_MAX:
            spans[:2] = [(spans[0][0], spans[1][1])]

    def within(self, names: Iterable[tuple[str, str]], more: list[Span], since_ms: int, until_ms: int) -> int:
        """How much of that time at least one of the names was stopped; `more`: stretches besides."""
        spans = sorted([*more, *(span for name in names for span in self._spans.get(name, ()))])
        total, at = 0, since_ms
        for begin, end in spans:
            begin, end = max(begin, at), min(end, until_ms)
            if end > begin:
                total, at = total + end - begin, end
        return total

    def state(self, now_ms: int) -> list[Any]:
        """For position records; forgets what is long ago."""
        for name, spans in list(self._spans.items()):
            self._spans[name] = [span for span in spans if span[1] > now_ms - KEPT_MS]
            if not self._spans[name]:
                del self._spans[name]
        return [[kind, name, [list(span) for span in spans]] for (kind, name), spans in self._spans.items()]

    def restore(self, state: list[Any]) -> None:
        for kind, name, spans in state:
            self._spans[kind, name] = [(begin, end) for begin, end in spans]
