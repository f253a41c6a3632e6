"""Notes: what plugins keep with a message, and with each of its recipients, from reception to the last notice.

They are dicts of what JSON knows, in `Envelope.notes`, `Recipient.notes` and `Delivery.notes`, and bounded, as each is
stored with the queue's keys and travels with every delivery. What a sender's plugins change is merged into what the
queue has: of a message by name, as several of its deliveries may be under way; of a recipient as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from zonemta_py.mail.envelope import Recipient

MESSAGE_BYTES_MAX, RECIPIENT_BYTES_MAX = 8_192, 1_024
"""Of all notes of a message, of a recipient, as JSON."""
NESTED_MAX = 16


def fit(value: Any, most: int) -> bool:
    """Whether these are notes of at most so many bytes."""
    if value == {}:
        return True
    try:
        return isinstance(value, dict) and _plain(value, NESTED_MAX) and _size(value) <= most
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _size(value: Any) -> int:
    return len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())


def _plain(value: Any, deep: int) -> bool:
    if value is None or isinstance(value, (str, bool, float)):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if deep and isinstance(value, (list, tuple)):
        return all(_plain(one, deep - 1) for one in value)
    if deep and isinstance(value, dict):
        return all(isinstance(name, str) and _plain(one, deep - 1) for name, one in value.items())
    return False


class NoteChanges(NamedTuple):
    """message: those that were set, by name; gone: names of those that were removed. people: all of a recipient, by its
    index."""

    message: dict[str, Any]
    gone: list[str]
    people: dict[int, dict[str, Any]]

    def merged(self, before: dict[str, Any]) -> dict[str, Any]:
        """A message's notes after these changes; as before if that is too much."""
        after = {name: value for name, value in before.items() if name not in self.gone} | self.message
        return after if fit(after, MESSAGE_BYTES_MAX) else before


class NotesBefore:
    """Of a message and some recipients, to find what becomes of them."""

    __slots__ = ("_message", "_people")

    def __init__(self, message: dict[str, Any], people: Sequence[Recipient]) -> None:
        self._message = {name: json.dumps(value) for name, value in message.items()}
        self._people = [json.dumps(one.noted) if one.noted else "" for one in people]

    def changes(self, message: dict[str, Any], people: Sequence[Recipient]) -> NoteChanges | None:
        """None: there are none."""
        known = self._message
        set_ = {name: value for name, value in message.items() if known.get(name) != json.dumps(value)}
        gone = [name for name in known if name not in message]
        theirs = {
            index: one.noted or {}
            for index, (one, before) in enumerate(zip(people, self._people, strict=True))
            if (json.dumps(one.noted) if one.noted else "") != before
        }
        return NoteChanges(set_, gone, theirs) if set_ or gone or theirs else None
