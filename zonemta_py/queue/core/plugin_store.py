"""`api.store` in the queue: each name of a plugin is kept in one queue (`queues/placement.py`), whose process decides.

What is decided one after another in memory goes to the store with the next group commit, and is answered once that is
on stable storage: so a limit holds for all processes of all queues together, whoever dies. Answers are kept, too, under
the token of the question (`plugin_values`), in the same batch: whoever asks again, because this process or the
connection ended, has the first answer.

Times are steady ones: setting the clock ends nothing sooner or later. Failures: ValueError for a plugin's mistake;
QueueRefusal while the disk has errors, and for a name that another queue has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, StoreError
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core.commit import immediately
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.core.plugin_values import (
    GIVE,
    KIND,
    NAMES_MAX,
    READS,
    TOKEN_MS,
    UNDO,
    PluginRow,
    check_name,
    decide,
)

NOT_MINE = Reply(451, "4.3.0", "another queue has what plugins keep under that name; ask again")
AT_ONCE = 1_000


class PluginStore:
    """mine: whether a plugin's name belongs to this queue."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.mine: Callable[[str, str], bool] = lambda plugin, name: True
        self._ends: dict[str, dict[bytes, int]] = {}
        """Of each plugin: its keys, with their ends."""
        self._answers: dict[str, tuple[int, Any]] = {}
        """By token, with the time until which they are kept."""
        self._loaded = False
        self._unwritten: dict[bytes, tuple[int, bytes | None]] = {}
        """What the store is about to have, with the number of the change."""
        self._changes = 0
        self._under_way: dict[str, asyncio.Future[None]] = {}

    async def do(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        """Raises ValueError, QueueRefusal."""
        if what not in KIND or not isinstance(token, str) or not isinstance(arguments, list):
            raise ValueError(f"{what!r} is nothing that a plugin's store does")
        check_name(plugin)
        check_name(name)
        try:
            if not self.mine(plugin, name):
                raise QueueRefusal(NOT_MINE)
            self._load()
            if what in READS:
                return decide(what, self._row(keys.plugin(plugin, KIND[what], name)), 0, "", [])[0]
            if token not in self._answers:
                self._change(what, plugin, name, token, arguments)
        except StoreError as error:
            raise QueueRefusal(self._core.disk.unreadable(error)) from None
        _, answer = self._answers[token]
        if (writing := self._under_way.get(token)) is not None:
            await asyncio.shield(writing)
        return answer

    def _change(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> None:
        """Raises ValueError, QueueRefusal, StoreError."""
        lines, now_ms = self._core.disk.lines, self._core.clock.steady_ms()
        if lines.trouble is not None:
            raise QueueRefusal(lines.trouble)
        key = keys.plugin(plugin, KIND[what], name)
        row, changes = self._row(key), list[Operation]()
        if what == UNDO:  # of a `take` whose answer nobody waits for any more, and which may come yet
            taken, n = arguments
            _, window = self._answers.get(taken, (0, None))
            arguments = [n, window]
            changes.append(self._answer(taken, now_ms, plugin, name, None))
        answer, becomes = decide(GIVE if what == UNDO else what, row, now_ms, token, arguments)
        if becomes is not row:
            mine = self._ends.setdefault(plugin, {})
            if key not in mine and becomes is not None and len(mine) >= NAMES_MAX and not self._room(mine):
                raise ValueError(
                    f"a plugin may keep {NAMES_MAX:,} names in a queue; delete values, or give names an end"
                )
            changes.append((key, becomes.pack() if becomes is not None else None))
            if becomes is None:
                mine.pop(key, None)
            else:
                mine[key] = becomes.until_ms
        changes.append(self._answer(token, now_ms, plugin, name, answer))
        self._write(changes, token)

    def _room(self, mine: dict[bytes, int]) -> bool:
        """Whether there is some once what is over is gone."""
        self.tidy()
        return len(mine) < NAMES_MAX

    def _answer(self, token: str, now_ms: int, plugin: str, name: str, answer: Any) -> Operation:
        until_ms = now_ms + TOKEN_MS
        self._answers[token] = (until_ms, answer)
        return keys.plugin_done(token), packing.pack([until_ms, answer, plugin, name])

    def _write(self, changes: list[Operation], token: str) -> None:
        self._changes += 1
        number = self._changes
        for key, value in changes:
            self._unwritten[key] = (number, value)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[token] = done

        def written(_: Reply | None) -> None:
            for key, _value in changes:
                if self._unwritten.get(key, (0,))[0] == number:
                    del self._unwritten[key]
            self._under_way.pop(token, None)
            if not done.done():
                done.set_result(None)

        self._core.disk.lines.submit(changes, written, sync=True, keep=True)

    def _row(self, key: bytes) -> PluginRow | None:
        """None: there is none, or its time is over. Raises StoreError."""
        value = self._unwritten[key][1] if key in self._unwritten else self._core.disk.store.get(key)
        row = PluginRow.of(value) if value is not None else None
        return row if row is None or not self._is_over(row.until_ms) else None

    def _is_over(self, until_ms: int) -> bool:
        return 0 < until_ms <= self._core.clock.steady_ms()

    def _load(self) -> None:
        """Names with their ends, and answers; when the first plugin asks. Raises StoreError."""
        if self._loaded:
            return
        store = self._core.disk.store
        for key, value in store.scan(keys.PLUGINS, keys.end(keys.PLUGINS)):
            self._ends.setdefault(keys.plugin_of(key)[0], {})[key] = PluginRow.of(value).until_ms
        for key, value in store.scan(keys.PLUGINS_DONE, keys.end(keys.PLUGINS_DONE)):
            until_ms, answer = packing.unpack(value)[:2]
            self._answers[key.removeprefix(keys.PLUGINS_DONE).decode()] = (until_ms, answer)
        self._loaded = True

    def tidy(self) -> bool:
        """Deletes a portion of what is over; True: there may be more. Raises StoreError."""
        core = self._core
        if not self._loaded:
            if core.disk.store.first(keys.PLUGINS, keys.end(keys.PLUGINS_DONE)) is None:
                return False
            self._load()
        over = [(plugin, key) for plugin, mine in self._ends.items() for key, end in mine.items() if self._is_over(end)]
        tokens = [token for token, (end, _) in self._answers.items() if self._is_over(end)]
        gone, forgotten = list(islice(over, AT_ONCE)), tokens[:AT_ONCE]
        for plugin, key in gone:
            del self._ends[plugin][key]
        for token in forgotten:
            del self._answers[token]
        changes: list[Operation] = [(key, None) for _, key in gone if key not in self._unwritten]
        changes += [(keys.plugin_done(token), None) for token in forgotten]
        if changes:
            core.disk.lines.submit(changes, immediately, sync=False, keep=True)
        return len(over) > AT_ONCE or len(tokens) > AT_ONCE
