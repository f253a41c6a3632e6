"""How many random lives a test lives. More of them take minutes: ZONEMTA_LIVES=100 pytest tests/queue."""

import os
from collections.abc import Iterable

_LIVES = int(os.environ.get("ZONEMTA_LIVES", "0"))


def seeds(few: int) -> range:
    return range(_LIVES or few)


def shared(places: Iterable[int], turn: bool) -> list[int]:
    """Every other of them, from the first or the second on: two ways to be struck share all places."""
    return [*places] if _LIVES else [*places][turn::2]
