"""Which messages of pull zones are listed as in doubt: they are listed until they end, and no longer.

Where mail is sent, what is in doubt may have been delivered twice, and is listed for as long as the archive is kept. In
a pull zone it is only what somebody may have taken, and nobody needs to know of it once it was taken again and
acknowledged, or removed.
"""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.zones import pull


class PullDoubts:
    """Their keys, by the message's id."""

    def __init__(self, config: Config, store: Store) -> None:
        self._config = config
        self._keys: dict[str, set[bytes]] = {}
        for key, value in store.scan(keys.IN_DOUBTS, keys.end(keys.IN_DOUBTS)):
            self.listed(key.decode().split(" ", 2)[1], key, str(packing.unpack(value)[0]))

    def configure(self, config: Config) -> None:
        """Other zones from now on."""
        self._config = config

    def pulled(self, zone: str) -> bool:
        """Whether it is the name of a pull zone, or once was that of a queue without a table of its own."""
        settings = self._config.zone(zone)
        return settings.pulled if settings else zone.startswith(pull.PREFIX)

    def listed(self, message_id: str, key: bytes, zone: str) -> None:
        """It is, or is being, written."""
        if self.pulled(zone):
            self._keys.setdefault(message_id, set()).add(key)

    def ended(self, message_id: str) -> list[Operation]:
        """What changes in the store with the end of the message."""
        found = self._keys.pop(message_id, None)
        return [(key, None) for key in found] if found else []
