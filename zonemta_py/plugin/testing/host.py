"""A plugin that is loaded and called as the server does it, without a server.

Failures: `load` raises PluginError, as at a start. A verdict is raised as the plugin raised it; whatever else goes
wrong in a plugin is logged and a PluginFailed, raised from the cause.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zonemta_py.config import Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin.arguments import Info
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.store import InMemory
from zonemta_py.plugin.streams import BodyHooks


def load(
    file: str | Path, options: dict[str, Any] | None = None, zones: Iterable[str] = ("default",), timeout_s: float = 5
) -> Host:
    """The host with this plugin alone. options: those of [plugins.options.NAME]. zones: names of the configured zones.
    What it keeps (`api.store`) is in memory.

    Raises PluginError.
    """
    path = Path(file).absolute()
    enabled = Plugins(enabled=[str(path)], timeout_s=timeout_s, options={path.stem: options or {}})
    host = Host.load(enabled, Configured(frozenset(zones)))
    host.ask(InMemory(time.monotonic))
    return host


async def received(host: Host, message: bytes, envelope: Envelope | None = None) -> bytes:
    """The message as it would be sent from the queue: after message_headers, message_rewrite and message_queue, seen by
    the other message_ hooks.

    Raises Verdict, PluginFailed.
    """
    section, _, body = message.partition(b"\r\n\r\n")
    headers = Headers.parse(section + b"\r\n")
    stored = bytearray()

    async def keep(block: bytes) -> None:
        stored.extend(block)

    envelope = envelope or Envelope("", [])
    hooks = BodyHooks(host, envelope, headers, keep)
    await hooks.on_headers()
    await hooks.feed(body)
    await hooks.finish()
    size = len(headers.build()) + 2 + len(stored)
    await host.call("message_queue", envelope=envelope, info=Info(None, size, headers, hooks.unread))
    return headers.build() + b"\r\n" + bytes(stored)
