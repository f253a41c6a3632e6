"""Questions about people: who is on the suppression list, orders about it, and forgetting somebody altogether."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from zonemta_py.queue.forgetting import forget
from zonemta_py.queue.parts import Parts
from zonemta_py.queue.suppression import ERASED, KINDS, LIST_MAX, Suppressed, checked, checked_person

ROWS_MAX = 100_000


async def _suppress(queue: Parts, rows: list[list[Any]]) -> dict[str, int]:
    """All of them, or none where one makes no sense (ValueError)."""
    if len(rows) > ROWS_MAX:
        raise ValueError(f"{len(rows):,} rows at once are too many; give {ROWS_MAX:,} at most")
    now_ms = queue.core.clock.ms()
    return await queue.core.suppression.add([checked(row, now_ms) for row in rows])


async def _unsuppress(queue: Parts, addresses: list[str], by: str = "") -> int:
    return await queue.core.suppression.remove([checked_person(address) for address in addresses], by)


async def _suppression(queue: Parts, address: str) -> dict[str, Any] | None:
    found = queue.core.suppression.of(checked_person(address))
    return found._asdict() if found is not None else None


async def _suppressions(queue: Parts, after: str = "", limit: int = 1_000, kind: str | None = None) -> dict[str, Any]:
    if kind is not None and kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r}; take {', '.join(KINDS)}")
    rows, following = queue.core.suppression.page(after, max(1, min(limit, LIST_MAX)), kind)
    return {"rows": [row._asdict() for row in rows], "next": following}


async def _forget(queue: Parts, address: str, keep: bool = False, by: str = "") -> dict[str, Any]:
    """keep: the address stays on the list, as erased and with nothing else; else it leaves the list too."""
    who, suppression = checked_person(address), queue.core.suppression
    listed = suppression.of(who) is not None
    if listed:
        await suppression.remove([who], by)
    if keep:
        await suppression.add([Suppressed(who, ERASED, queue.core.clock.ms(), "", "", by, "")])
    return {**await forget(queue, who), "listed": listed, "kept": keep}


QUESTIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "suppress": _suppress,
    "unsuppress": _unsuppress,
    "suppression": _suppression,
    "suppressions": _suppressions,
    "forget": _forget,
}
