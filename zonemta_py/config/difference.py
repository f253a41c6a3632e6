"""What differs between two configurations, by the full names of keys: limits.connections, zones.default.retry.

A table in a list goes by its name (a source by its address), or by its number. Values are shown as they are written;
secrets never are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zonemta_py.config.root import Config
from zonemta_py.config.secret import HIDDEN, hidden

FIXED = ("server.folder", "server.user", "server.group", "cluster.")
"""What a running MTA cannot change, not even for its next start: commands find it by its folder, as its user. Ending in
a dot: a whole table, which it is connected by."""
LATER = ("queue.write_buffer_bytes",)
"""What a reload takes over for the next start only."""
ABSENT = "(default)"


class Change(NamedTuple):
    """old, new: as people may see them."""

    key: str
    old: Any
    new: Any


def leaves(config: Config) -> dict[str, Any]:
    """The value of every key that has not its default, ready for JSON; secrets as they are."""
    return dict(leaves_of("", config.model_dump(mode="json", exclude_defaults=True), ("name", "address")))


def difference(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Of two results of `leaves`, in the order of the names."""
    return [
        Change(name, shown(name, old.get(name, ABSENT)), shown(name, new.get(name, ABSENT)))
        for name in sorted({*old, *new})
        if old.get(name, ABSENT) != new.get(name, ABSENT)
    ]


def shown(name: str, value: Any) -> Any:
    """A key's value as people may see it."""
    if value == ABSENT:
        return value
    parts = name.split(".")
    if parts[-1] == "hash" or parts[0] == "users":
        return HIDDEN
    plugins = name.startswith("plugins.options.")
    for part in parts[:-1]:
        if hidden(part, "x", plugins) != "x":
            return HIDDEN
    return hidden(parts[-1], value, plugins)


def leaves_of(name: str, value: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every key and value in a table. names: keys by the first of which a table in a list goes."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from leaves_of(f"{name}.{key}".removeprefix("."), one, names)
    elif isinstance(value, list | tuple) and any(isinstance(row, dict) for row in value):
        for number, row in enumerate(value):
            own = next(filter(None, map(row.get, names)), number) if isinstance(row, dict) else number
            yield from leaves_of(f"{name}.{own}" if isinstance(row, dict) else name, row, names)
    else:
        yield name, value
