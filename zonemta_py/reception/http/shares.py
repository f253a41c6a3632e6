"""Limits of requests in progress, in total and per key; requests above them get a Retry-After.

An eighth of the places is reserved for the operator's key, so that the state can always be queried.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zonemta_py.reception.http.documents.problem import BUSY_S, RequestProblem


class RequestShares:
    def __init__(self, most: int, most_per_key: int) -> None:
        self._most, self._most_per_key = most, most_per_key
        self._most_of_others = max(1, most - max(1, most // 8))
        self._under_way: dict[str, int] = {}
        self._all = 0

    @contextmanager
    def one(self, key: str, operator: bool = False) -> Iterator[None]:
        """Counts a request in, and out at the end. Raises RequestProblem (429, 503)."""
        here = self._under_way.get(key, 0)
        if here >= self._most_per_key:
            sentence = f"{here} requests with the key {key!r} are in progress; try again when one of them is answered"
            raise RequestProblem("share", sentence, retry_s=BUSY_S)
        if self._all >= (self._most if operator else self._most_of_others):
            raise RequestProblem(
                "unavailable", f"{self._all} requests are in progress; try again in a moment", retry_s=BUSY_S
            )
        self._all += 1
        self._under_way[key] = here + 1
        try:
            yield
        finally:
            self._all -= 1
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
