"""Everything a plugin imports. A plugin is one Python file whose `async def` functions are named after hooks:

    from pydantic import BaseModel
    from zonemta_py.plugin import Address, PluginApi, Reject, Session

    class Options(BaseModel):
        blocked: list[str] = []

    _api: PluginApi
    _blocked: list[str]

    def setup(api: PluginApi, options: Options) -> None:
        global _api, _blocked
        _api, _blocked = api, options.blocked

    async def smtp_rcpt_to(address: Address, session: Session) -> None:
        if address.address in _blocked:
            _api.count("refused")
            raise Reject(550, "This mailbox is not served here")

Enable it with `enabled = ["/etc/zonemta/block.py"]` under [plugins]; [plugins.options.block] fills Options. Declare
those of a hook's arguments that you need, by name. An exception that is not a verdict is a failure of the plugin, and
the mail is deferred; so is awaiting longer than plugins.timeout_s. What blocks stops its whole process: use `await
asyncio.to_thread(...)`. `async def start(api, process)` opens connections, and begins threads and tasks (`api.task`).
"""

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.admin import AdminRefused, AdminUnavailable
from zonemta_py.plugin.api import PluginApi, log
from zonemta_py.plugin.arguments import (
    Address,
    Attempts,
    Auth,
    Bounce,
    CommandHandler,
    Connection,
    ConnectOptions,
    Deferral,
    Ending,
    Info,
    NextTry,
    Node,
    Notice,
    Process,
    Refusal,
    Routing,
    Server,
    Session,
    Sni,
    StoredMessage,
    Stream,
)
from zonemta_py.plugin.encodings import decoded, encoded
from zonemta_py.plugin.event_batches import MailEvent
from zonemta_py.plugin.http import HttpAnswer, HttpError, HttpRequest
from zonemta_py.plugin.injection import InjectionRefused
from zonemta_py.plugin.store import StoreUnavailable, Taking
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Reject, Verdict
from zonemta_py.queue.api import Delivery, Outcome, Result

__all__ = [
    "Address",
    "AdminRefused",
    "AdminUnavailable",
    "Attempts",
    "Auth",
    "Bounce",
    "CommandHandler",
    "ConnectOptions",
    "Connection",
    "Defer",
    "Deferral",
    "Delivery",
    "Drop",
    "Ending",
    "Envelope",
    "Headers",
    "Hold",
    "HttpAnswer",
    "HttpError",
    "HttpRequest",
    "Info",
    "InjectionRefused",
    "MailEvent",
    "NextTry",
    "Node",
    "Notice",
    "Outcome",
    "PluginApi",
    "Process",
    "Recipient",
    "Refusal",
    "Reject",
    "Reply",
    "Result",
    "Routing",
    "Server",
    "Session",
    "Sni",
    "StoreUnavailable",
    "StoredMessage",
    "Stream",
    "Taking",
    "Verdict",
    "decoded",
    "encoded",
    "log",
]  # fmt: skip
