"""What plugins have of the queue, in whatever process they run: `api.store`, `api.admin`, `api.inject`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zonemta_py.config import Config

if TYPE_CHECKING:
    from zonemta_py.plugin.arguments import StoredMessage
    from zonemta_py.plugin.host import Host
    from zonemta_py.plugin.injection import Injection
    from zonemta_py.queue.questions.question import Question
    from zonemta_py.queues.client import Queues
    from zonemta_py.reception.injection import PluginReception
    from zonemta_py.wire.client import RemoteQueue

Client = Callable[[Config, str], "RemoteQueue | Queues"]


class QueueServices:
    """`plugin.services.PluginServices`. config: the MTA's. client: makes a connection to its queues, when somebody
    needs it first."""

    def __init__(self, config: Config, client: Client) -> None:
        self._config, self._client = config, client
        self._queue: RemoteQueue | Queues | None = None
        self._receptions: dict[Host, PluginReception] = {}

    def use(self, config: Config) -> None:
        """config: of a queue, or the MTA's."""
        self._config, self._receptions = config, {}

    @property
    def queue(self) -> RemoteQueue | Queues:
        if self._queue is None:
            self._queue = self._client(self._config, "plugins")
        return self._queue

    async def store(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        return await self.queue.plugin_store(what, plugin, name, token, arguments)

    async def admin(self, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        return await self.queue.ask(question, **arguments)

    async def inject(self, host: Host, wanted: Injection) -> StoredMessage:
        if host not in self._receptions:
            from zonemta_py.reception.injection import PluginReception

            self._receptions = {host: PluginReception(self._config, self.queue, host)}  # of the newest alone
        return await self._receptions[host].inject(wanted)
