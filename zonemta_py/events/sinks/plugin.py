"""Events for a plugin: its `event` is called with each batch, in the process of the event feed.

What it returns from has arrived. `Defer`, and whatever else goes wrong in it, means that all of the batch comes again;
`Reject` that none of it will ever be taken. Its time limit is the sink's, not that of hooks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown
from zonemta_py.plugin.event_batches import MailEvent
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.verdicts import Defer, PluginFailed, Reject

log = logging.getLogger(__name__)

HOOK = "event"


def wanted(config: Config) -> frozenset[str]:
    """Names of the plugins that sinks are for."""
    return frozenset(sink.plugin for sink in config.event_sinks if sink.kind == "plugin")


def check(config: Config, host: Host) -> None:
    """host: all its plugins. Raises ConfigError for a sink whose plugin is not enabled, or has no `event`; warns of an
    `event` that no sink is for."""
    have = {call.plugin for call in host.calls(HOOK)}
    for sink in config.event_sinks:
        if sink.kind == "plugin" and sink.plugin not in have:
            is_there = sink.plugin in host.names
            what = "has no `async def event(batch)`" if is_there else "is not in plugins.enabled"
            there = f"; {', '.join(sorted(have))} has one" if have else ""
            raise ConfigError(f"event_sinks[{sink.name}].plugin: plugin {sink.plugin!r} {what}{there}")
    for name in sorted(have - wanted(config)):
        log.warning(
            "plugin %s has an `event`, which is not called: no [[event_sinks]] has kind = \"plugin\", plugin = %r",
            name, name,
        )  # fmt: skip


class PluginSink:
    """One plugin's. source is not needed: it is in every event."""

    def __init__(self, settings: EventSink, source: str, host: Host) -> None:
        """Raises ConfigError."""
        found = [call for call in host.calls(HOOK) if call.plugin == settings.plugin]
        if not found:
            raise ConfigError(f"event sink {settings.name!r}: there is no plugin {settings.plugin!r} with an `event`")
        self._call = found[0].within(settings.timeout_s)

    async def open(self) -> None:
        return

    async def send(self, batch: Sequence[Ready]) -> None:
        events = [MailEvent(one.id, one.type, one.subject, one.ms, one.body) for one in batch]
        try:
            await self._call.run({"batch": events})
        except Defer as verdict:
            raise SinkDown(verdict.reply.text, verdict.seconds) from None
        except Reject as verdict:
            raise Rejected(verdict.reply.text, range(len(batch))) from None
        except PluginFailed as failure:
            raise SinkDown(str(failure)) from None
        if refused := [index for index, one in enumerate(events) if one.refused is not None]:
            raise Rejected(events[refused[0]].refused or "", refused)

    async def close(self) -> None:
        return
