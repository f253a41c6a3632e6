"""What sender domains are for mail that leaves: their keys, and the names of their return paths and links.

A domain that is a tenant's is so for that tenant's mail alone, whoever else may use its addresses. Without
server.sender_domains there is none of this.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.disk.domain_book import BookUnreadable, DomainBook
from zonemta_py.journal.folders import mta_of
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.dkim.signature import Key, KeyUnusable
from zonemta_py.mail.sender_domain import SenderDomain
from zonemta_py.queue.api import Delivery

log = logging.getLogger(__name__)

KEYS_MAX = 2_000


class DomainTerms:
    """Of a process: return paths, links and signatures share one (`shared`). folder: the MTA's."""

    def __init__(self, folder: Path) -> None:
        self._book = DomainBook(folder)
        self._keys = OrderedDict[tuple[str, str, str], Key]()
        self._fault = ""

    def of(self, delivery: Delivery) -> SenderDomain | None:
        """By the return path's domain. None: there is none, it is another tenant's, or it cannot be read now."""
        try:
            of = canonical(delivery.sender.rpartition("@")[2])
            return self._book.of(of, delivery.tenant, time.monotonic())
        except BookUnreadable as error:
            self._tell(str(error))
            return None

    def keys(self, domain: str, tenant: str, own: bool, now: float) -> tuple[Key, ...]:
        """Those that sign mail of that author's domain. own: whoever handed it in may use the author's address, which
        a tenant may of its own domain. Raises KeyUnusable: nothing is known now."""
        try:
            found = self._book.of(domain, tenant, now)
        except BookUnreadable as error:
            raise KeyUnusable(str(error)) from None
        if found is None or not (found.tenant or own):
            return ()
        return tuple(self._key(found, key.selector, key.pem) for key in found.signing())

    def _key(self, domain: SenderDomain, selector: str, pem: str) -> Key:
        place = domain.name, selector, pem
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = Key(domain.name, selector, pem.encode(), known=True)
            if len(self._keys) > KEYS_MAX:
                self._keys.popitem(last=False)
        return key

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            log.error("%s; mail has the return paths and links of the configuration until then", fault)
        self._fault = fault


_shared: dict[Path, DomainTerms] = {}


def shared(config: Config) -> DomainTerms:
    """The one of this process."""
    folder = mta_of(config.folder)
    return _shared.setdefault(folder, DomainTerms(folder))
