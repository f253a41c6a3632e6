"""`api.store`: small values with an end, and counters that have a limit in a time, shared by all processes and queues.

Each name is kept by one queue, on stable storage, and decided there (`queue.core.plugin_store`): counters are exact
whoever asks and whoever is killed. A question waits for a queue that starts again, as long as its hook may.

Failures: ValueError for names, values and numbers that cannot be kept; StoreUnavailable while the queue that has the
name cannot be asked, or its disk has errors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any, NamedTuple

from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core import plugin_values
from zonemta_py.queue.core.plugin_values import KIND, PluginRow, check_name, decide

Ask = Callable[[str, str, str, str, list[Any]], Awaitable[Any]]
"""What, the plugin's name, the name there, a token, what else there is to say."""
_TOKEN_BYTES = 8
UNDONE_MAX = 10_000
"""Takings that nobody waits for any more, and which are being taken back."""


class StoreUnavailable(OSError):
    """The store cannot be asked now, or cannot write: try again later. Not caught it is the plugin's failure (451)."""


class Taking(NamedTuple):
    """What was taken of a counter: for `give_back`. Plain, so that it can be kept in notes as a list.

    name: of the counter. n: how much was taken. window: which of its times that was.
    """

    name: str
    n: int
    window: str


class SharedStore:
    """A plugin's own: its names are no other plugin's."""

    def __init__(self, plugin: str, ask: Ask) -> None:
        self._plugin, self._ask = plugin, ask
        self._undoing: set[asyncio.Task[None]] = set()

    async def get(self, name: str, default: Any = None) -> Any:
        """The value of that name, as JSON has it (a tuple comes back as a list); default: there is none."""
        found = await self._asked(plugin_values.GET, name)
        return default if found is None else json.loads(found)

    async def set(self, name: str, value: Any, seconds: float | None = None) -> None:
        """Keeps a value that JSON knows, 16 kB at most. seconds: until it is gone; None: it stays."""
        try:
            content = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{name!r} cannot be kept: {error}") from None
        await self._asked(plugin_values.SET, name, content, seconds)

    async def delete(self, name: str) -> bool:
        """Whether there was a value of that name."""
        return bool(await self._asked(plugin_values.DELETE, name))

    async def take(self, name: str, n: int, limit: int, seconds: float) -> Taking | None:
        """Adds n to a counter, if it is not above the limit then; None: it would be, and nothing has changed.

        The counter begins at 0 with its first `take`, and again so many seconds after that. One step: of all processes
        together no more is taken than the limit. If the hook is cut off meanwhile, it is given back.
        """
        token = token_hex(_TOKEN_BYTES)
        try:
            window = await self._asked(plugin_values.TAKE, name, n, limit, seconds, token=token)
        except (asyncio.CancelledError, StoreUnavailable):
            self._undo(name, token, n)
            raise
        return None if window is None else Taking(name, n, window)

    async def give_back(self, taken: Taking | list[Any]) -> bool:
        """Takes back what `take` has returned, once; False: its time is over, and the counter has begun anew."""
        name, n, window = taken
        return bool(await self._asked(plugin_values.GIVE, name, n, window))

    async def taken(self, name: str) -> int:
        """What is taken of a counter now."""
        return int(await self._asked(plugin_values.TAKEN, name))

    async def _asked(self, what: str, name: str, *arguments: Any, token: str = "") -> Any:
        check_name(name)
        try:
            return await self._ask(what, self._plugin, name, token or token_hex(_TOKEN_BYTES), [*arguments])
        except OverflowError:
            raise ValueError(f"a number for {name!r} has more than 64 bits") from None
        except QueueRefusal as refusal:
            raise StoreUnavailable(f"what is kept under {name!r} cannot be reached: {refusal.reply.text}") from None

    def _undo(self, name: str, token: str, n: int) -> None:
        """Nobody knows whether it was taken; it is not, once this has been heard."""
        if len(self._undoing) < UNDONE_MAX:
            task = asyncio.ensure_future(self._undone(name, token, n))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)

    async def _undone(self, name: str, token: str, n: int) -> None:
        try:
            await self._asked(plugin_values.UNDO, name, token, n)
        except (StoreUnavailable, ValueError):
            return  # the counter says more than was used until its time is over


class InMemory:
    """For tests of plugins: the same decisions, kept in this process."""

    def __init__(self, now: Callable[[], float]) -> None:
        """now: seconds."""
        self._rows: dict[tuple[str, str, str], PluginRow] = {}
        self._now = now

    async def __call__(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        key, now_ms = (plugin, KIND[what], name), int(self._now() * 1000)
        row = self._rows.get(key)
        if row is not None and 0 < row.until_ms <= now_ms:
            row = None
        answer, becomes = decide(what, row, now_ms, token, arguments)
        if becomes is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = becomes
        return answer
