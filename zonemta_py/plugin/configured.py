"""Names that the configuration has, and that plugins may choose by: zones, pools of source addresses, DKIM keys.

Where a set is empty because nothing is known of the configuration (a plugin that is loaded alone, in a test), each name
is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from zonemta_py.config import Config


class Configured(NamedTuple):
    """known: the rest is that of a configuration, complete. keys: "SELECTOR._domainkey.DOMAIN" of those that sign.
    switches: what may be switched on for single recipients, "srs" and "verp"."""

    zones: frozenset[str] = frozenset()
    known: bool = False
    pools: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: Config) -> Configured:
        path = config.return_path
        return cls(
            frozenset(zone.name for zone in config.zones),
            True,
            frozenset(pool.name for pool in config.pools),
            frozenset(key.name for key in config.dkim if key.state == "active"),
            frozenset(name for name in ("srs", "verp") if getattr(path, name)),
        )

    def lacks(self, field: str, value: object) -> str:
        """ "": a field of `Routing` may have that value. Else how a sentence about it goes on."""
        if not self.known or not value:
            return ""
        if field == "pool" and value not in self.pools:
            return "which is no pool of the configuration"
        if field == "dkim" and value != "none" and value not in self.keys:
            return "which is no DKIM key of the configuration that signs"
        if field in ("srs", "verp") and field not in self.switches:
            return f"but the configuration has no return_path.{field}"
        return ""


ANYTHING = Configured()
"""Of what is configured nothing is known."""
