"""DKIM keys from their files, by domain. A changed file is read again, at most CHECK_S later.

If a file becomes unusable, the key read before stays in force, and the log says so; a key that could never be read
raises KeyUnusable, so that nothing leaves unsigned that should be signed. Each fault is logged once, not for each
message.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from zonemta_py.config import Config, ConfigError, DkimKey
from zonemta_py.delivery.message.domain_terms import shared
from zonemta_py.mail.dkim.signature import Key, KeyUnusable

log = logging.getLogger(__name__)

CHECK_S = 1.0


def read(settings: DkimKey) -> Key:
    """Raises KeyUnusable, also for a file that cannot be read."""
    try:
        pem = settings.key.expanduser().read_bytes()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KeyUnusable(
            f"{settings.key} cannot be read ({reason.lower()}); check the path and its permissions"
        ) from None
    try:
        return Key(settings.domain, settings.selector, pem, settings.identity)
    except KeyUnusable as error:
        raise KeyUnusable(f"{settings.key} cannot be used: {error}") from None


def check(config: Config) -> None:
    """Reads the key files of all signing keys. Raises ConfigError."""
    for settings in config.dkim:
        if settings.state == "active":
            try:
                read(settings)
            except KeyUnusable as error:
                raise ConfigError(f"dkim: {settings.name}: {error}") from None


@dataclass(slots=True)
class _File:
    """One key's file as last seen. seen: what identifies that version of the file."""

    settings: DkimKey
    key: Key | None = None
    seen: tuple[int, ...] | None = None
    fault: str = ""
    checked: float = float("-inf")

    def current(self, now: float) -> Key:
        """Raises KeyUnusable."""
        if now >= self.checked + CHECK_S:
            self.checked = now
            seen = _state(self.settings.key)
            if seen != self.seen:
                self.seen = seen
                self._read()
        if self.key is None:
            raise KeyUnusable(self.fault)
        return self.key

    def _read(self) -> None:
        name = self.settings.name
        try:
            self.key, self.fault = read(self.settings), ""
            log.info("DKIM key %s: %s read", name, self.settings.key)
        except KeyUnusable as error:
            if str(error) != self.fault:
                kept = "the previous one keeps signing" if self.key else "mail of that domain is deferred"
                log.error("DKIM key %s: %s; %s", name, error, kept)
            self.fault = str(error)


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.expanduser().stat()
    except (OSError, RuntimeError):
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class DkimKeys:
    """The active keys of a configuration."""

    def __init__(self, config: Config) -> None:
        self._by_domain: dict[str, list[_File]] = {}
        for settings in config.dkim:
            if settings.state == "active":
                self._by_domain.setdefault(settings.domain, []).append(_File(settings))
        self._third_party = config.signing.third_party
        self._domains = shared(config) if config.server.sender_domains else None

    def __bool__(self) -> bool:
        return bool(self._by_domain) or self._domains is not None

    def of(self, domain: str, now: float, own: bool = True, tenant: str = "") -> tuple[Key, ...]:
        """Every key that signs a message with an author at `domain` ("" if there is none): those of the longest
        matching domain, or else those of a sender domain, and the third party's. now: seconds of a steady clock. own:
        the submitter may use that author address; if not, only a third party's key signs, and no mail claims the
        author's domain, but that of its own tenant. Raises KeyUnusable."""
        files = self._files(domain)
        domains = self._domains.keys(domain, tenant, own, now) if self._domains is not None and not files else ()
        if domains:
            third = self._by_domain[self._third_party] if self._third_party else []
            return (*domains, *(file.current(now) for file in third))
        if not own:
            if f".{domain}".endswith(f".{self._third_party}"):
                return ()
            files = []
        if self._third_party:
            files = files + [file for file in self._by_domain[self._third_party] if file not in files]
        return tuple(file.current(now) for file in files)

    def named(self, name: str, now: float) -> Key:
        """The key of that name in DNS. Raises KeyUnusable, also where there is none."""
        files = (file for files in self._by_domain.values() for file in files)
        file = next((file for file in files if file.settings.name == name), None)
        if file is None:
            raise KeyUnusable(f"{name} is not configured any more")
        return file.current(now)

    def _files(self, domain: str) -> list[_File]:
        while domain:
            if domain in self._by_domain:
                return self._by_domain[domain]
            domain = domain.partition(".")[2]
        return []
