"""What a process of the MTA offers to its plugins beside hooks: the interface between the host and the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from zonemta_py.plugin.arguments import StoredMessage
from zonemta_py.plugin.injection import Injection
from zonemta_py.queue.questions.question import Question

if TYPE_CHECKING:
    from zonemta_py.config import Config


class PluginServices(Protocol):
    """Of one process."""

    def use(self, config: Config) -> None:
        """Another configuration holds."""
        raise NotImplementedError

    async def store(self, what: str, plugin: str, name: str, token: str, arguments: list[Any]) -> Any:
        """`api.store`, as `queue.core.plugin_store.PluginStore.do`. Raises ValueError, QueueRefusal."""
        raise NotImplementedError

    async def admin(self, question: Question[..., Any], arguments: dict[str, Any]) -> Any:
        """`api.admin`: a question of operators to the MTA. Raises ValueError, QueueRefusal."""
        raise NotImplementedError

    async def inject(self, host: Any, wanted: Injection) -> StoredMessage:
        """`api.inject`. host: the plugins of the process (`plugin.host`). Raises InjectionRefused, ValueError."""
        raise NotImplementedError
