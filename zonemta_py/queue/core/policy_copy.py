"""A second copy of the policy state (stops and learned values) in the store, so that a damaged journal loses no order.

Each STANDING record is copied once it is stable in the journal. With each position the whole state is written, and
replaces the copies before it. A start uses the later of the two states, and all changes since, by number, wherever they
are found. Failures: StoreError.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.queue.core.commit import JournalLine, StoreLine, immediately
from zonemta_py.schedule.policy.saved import Packed, pack_around


class PolicyCopy:
    """Writes the copy."""

    def __init__(self, store: Store, journal: JournalLine, lines: StoreLine) -> None:
        self._journal, self._lines = journal, lines
        found = store.keys(keys.STANDING, keys.end(keys.STANDING))
        self._copies = [int(key.removeprefix(keys.STANDING)) for key in found if key != keys.STANDING_STATE]

    def add(self, seq: int, body: bytes) -> None:
        """A record that was just appended to the journal."""
        self._journal.when_stable(partial(self._copy, seq, body))

    def _copy(self, seq: int, body: bytes) -> None:
        self._copies.append(seq)
        self._lines.submit([(keys.standing(seq), body)], immediately, sync=False, keep=True)

    def save(self, policy: Packed, admission: Packed) -> None:
        """Writes the current state, packed, with the next batch; it includes everything up to the journal's last stable
        record."""
        seq = self._journal.stable_seq
        value = pack_around({"seq": seq, "standing": policy, "permits": admission})
        operations: list[Operation] = [(keys.STANDING_STATE, value)]
        operations += [(keys.standing(copy), None) for copy in self._copies if copy <= seq]
        self._copies = [copy for copy in self._copies if copy > seq]
        self._lines.submit(operations, immediately, sync=False, keep=True)


def is_kept(store: Store) -> bool:
    """Whether the store has a copy at all. Raises StoreError."""
    return store.get(keys.STANDING_STATE) is not None


def taken_up(
    store: Store, seq: int, policy: dict[str, Any], admission: dict[str, Any], changed: list[tuple[int, StandingRecord]]
) -> tuple[dict[str, Any], dict[str, Any], list[StandingRecord]]:
    """The policy state, the limits used, and the changes since. Arguments: the same from the journal, as of record
    `seq`, and its changes, by number. Raises StoreError."""
    value = store.get(keys.STANDING_STATE)
    kept: dict[str, Any] = packing.unpack(value) if value else {"seq": 0}
    if kept["seq"] > seq:  # the position record that followed it is gone
        policy, admission, seq = kept["standing"], kept["permits"], kept["seq"]
    changes = dict(changed)
    for key, body in store.scan(keys.STANDING, keys.end(keys.STANDING)):
        if key != keys.STANDING_STATE:
            changes.setdefault(int(key.removeprefix(keys.STANDING)), StandingRecord.of(packing.unpack(body)))
    return policy, admission, [changes[number] for number in sorted(changes) if number > seq]
