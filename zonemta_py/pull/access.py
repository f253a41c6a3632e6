"""Who may do what: tokens of the configuration, compared in constant time. Without tokens everybody may do all, which
the configuration allows on loopback only."""

from __future__ import annotations

import hashlib
import hmac

from zonemta_py.config import PullSection
from zonemta_py.config.services.pull import PullRight, PullToken
from zonemta_py.pull.command import Command

_NAMES_NONE = frozenset(("help", "queues"))


class NotAllowed(Exception):
    """One sentence with the remedy."""


class Tokens:
    """Those of the configuration."""

    def __init__(self, section: PullSection) -> None:
        self._tokens = [(token.hash.encode(), token) for token in section.tokens]
        self.needed = bool(self._tokens)

    def revise(self, before: dict[str, str], now: dict[str, str]) -> bool:
        """Another configuration holds: forgets tokens that are not in it as they are here. Returns whether there are
        any. before, now: name → what its rights depend on."""
        lost = {name for name, digest in before.items() if now.get(name) != digest}
        self._tokens = [one for one in self._tokens if one[1].name not in lost]
        return bool(lost)

    def holder(self, shown: str) -> PullToken | None:
        """None if none is needed. Raises NotAllowed."""
        hashed = hashlib.sha256(shown.encode("latin-1")).hexdigest().encode()
        found = None
        for known, token in self._tokens:  # always to the end, for constant time
            if hmac.compare_digest(hashed, known):
                found = token
        if found is None and self.needed:
            raise NotAllowed("the token is unknown; send one whose hash is in [[pull.tokens]]")
        return found


def check(token: PullToken, command: Command) -> None:
    """Raises NotAllowed. What a receipt is for is known later."""
    right: PullRight = "push" if command.verb == "push" else "pop"
    if command.verb not in _NAMES_NONE and not command.receipt and not token.may(right, command.queue):
        raise refused(token, right, command.queue)


def refused(token: PullToken, right: PullRight, queue: str) -> NotAllowed:
    return NotAllowed(
        f"the token {token.name!r} may not {right} at {queue!r}; give it in rights and queues of [[pull.tokens]]"
    )
