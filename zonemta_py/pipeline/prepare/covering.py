"""Entries of a suppression list that are no addresses, in Spark's workers: how they are spelled, and which patterns a
recipient fits. The queue's own code decides both."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from zonemta_py.mail.addresses.entries import PATTERN, checked
from zonemta_py.mail.addresses.patterns import PatternIndex


def spelled(texts: pa.Array) -> pa.Array:
    """As the queue stores them, null where they are none."""
    return pa.array([_spelled(text) for text in texts.to_pylist()], pa.string())


def fitting(entries: Iterable[str]) -> Callable[[pa.Array], pa.Array]:
    """Of recipients as `mail.person` spells them: the first pattern that each fits, null if none."""
    index = PatternIndex(entry.removeprefix(PATTERN) for entry in entries)

    def fits(people: pa.Array) -> pa.Array:
        found = (index.fitting(who) if who is not None else () for who in people.to_pylist())
        return pa.array([PATTERN + some[0] if some else None for some in found], pa.string())

    return fits


def _spelled(text: str | None) -> str | None:
    try:
        return checked(text) if text is not None else None
    except ValueError:
        return None
