"""The queue's hooks: routing a recipient, stopping a notification. Plugins are called through them.

`NoHooks` is used when no plugin listens: the flags are False, and nothing is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.notices.wording import Failed
from zonemta_py.mail.reply import Reply


@dataclass(slots=True)
class Routed:
    """Where one recipient goes. routing: what plugins decided, by name (`plugin.arguments.Routing`); None if nothing.

    delay_s: seconds to wait first; said: why, and whose verdict that is. held: [plugin, hook, reason] of whoever wants
    it held for an operator. refusal: reject this recipient with this reply; by: [plugin, hook] of whoever does. drop:
    [plugin, hook, reason] of whoever wants it removed.
    """

    recipient: Recipient
    zone: str
    routing: dict[str, Any] | None = None
    delay_s: float = 0.0
    refusal: Reply | None = None
    by: tuple[str, str] | None = None
    drop: tuple[str, str, str] | None = None
    said: str = ""
    held: tuple[str, str, Reply] | None = None


class PutOff(NamedTuple):
    """A recipient whose attempt has failed for now. kind: of the reply, "" if none is known."""

    recipient: Recipient
    reply: Reply
    attempts: int
    first_ms: int
    kind: str
    remote: str


def attributed(reply: Reply, plugin: str, hook: str) -> str:
    """A reply in words, with whose verdict it is."""
    return f"{reply} (plugin {plugin}, hook {hook})"


def why_dropped(routing: dict[str, Any]) -> str:
    """Why a plugin has dropped the recipient, for its REMOVED record; "": none has."""
    if "dropped" not in routing:
        return ""
    plugin, hook, reason = routing["dropped"]
    return f"dropped: {reason} (plugin {plugin}, hook {hook})"


def chosen(routing: dict[str, Any]) -> dict[str, Any]:
    """What was decided for a recipient, for people: of a login the user alone."""
    known = {name: value for name, value in routing.items() if name != "auth"}
    return known | ({"login": routing["auth"][0]} if routing.get("auth") else {})


class Hooks(Protocol):
    """The flags say whether any plugin listens; a hook is called only then."""

    routes: bool
    delays: bool
    bounces: bool
    releases: bool
    sends: bool
    """Whether a sender's plugins do: they get more of the envelope."""
    retries: bool
    defers: bool

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        """queue_route. May raise QueueRefusal: the whole message gets that reply."""

    async def delayed(
        self, message_id: str, zone: str, envelope: Envelope, failed: Failed, first_ms: int
    ) -> Failed | None:
        """queue_delayed. The recipient to notify of, possibly in other words; None: no delay notice for it."""

    async def bounced(self, message_id: str, zone: str, envelope: Envelope, failed: list[Failed]) -> list[Failed]:
        """queue_bounce. The failures to notify, possibly with changed texts."""

    async def released(self, message_id: str, zone: str, envelope: Envelope) -> None:
        """queue_release. The message's last recipient has ended."""

    async def retried(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, wait_s: float) -> float:
        """queue_retry. In how many seconds it is tried again."""

    async def deferred(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, next_ms: int) -> None:
        """queue_deferred. next_ms: UNIX time of the next try."""


class NoHooks:
    """No plugins."""

    routes = delays = bounces = releases = sends = retries = defers = False

    async def route(self, envelope: Envelope, routed: Routed) -> Routed:
        return routed

    async def delayed(
        self, message_id: str, zone: str, envelope: Envelope, failed: Failed, first_ms: int
    ) -> Failed | None:
        return failed

    async def bounced(self, message_id: str, zone: str, envelope: Envelope, failed: list[Failed]) -> list[Failed]:
        return failed

    async def released(self, message_id: str, zone: str, envelope: Envelope) -> None:
        return None

    async def retried(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, wait_s: float) -> float:
        return wait_s

    async def deferred(self, message_id: str, zone: str, envelope: Envelope, put_off: PutOff, next_ms: int) -> None:
        return None
