"""The declarations: complete, in the flow's order, consistent with what the host makes of them."""

from __future__ import annotations

import pytest

from zonemta_py.plugin import spec
from zonemta_py.plugin.spec import HOOKS, Auth
from zonemta_py.plugin.verdicts import Defer, Drop, Hold

ORDER = [
    "start", "smtp_init", "smtp_connect", "smtp_sni", "smtp_auth", "smtp_mail_from", "smtp_rcpt_to", "smtp_data",
    "api_mail", "message_analyze", "message_rewrite", "message_headers", "message_store", "message_queue",
    "queue_route", "message_stored", "message_refused", "smtp_reset", "smtp_end", "sender_fetch", "sender_headers",
    "sender_connecting", "sender_connect", "sender_tls_error", "sender_connected", "sender_connection",
    "sender_delivered", "sender_response_error", "queue_retry", "queue_deferred", "queue_delayed",
    "queue_bounce", "queue_release", "event", "log_entry", "stop",
]  # fmt: skip


def test_all_hooks_in_order() -> None:
    """As mail meets them, between the beginning and the end of a process."""
    assert list(HOOKS) == ORDER


@pytest.mark.parametrize("name", ORDER)
def test_each_is_documented(name: str) -> None:
    """A docstring says when it runs, and it takes at least one argument."""
    assert HOOKS[name].arguments
    assert len(getattr(spec, name).__doc__) > 40


@pytest.mark.parametrize("name", ORDER)
def test_processes_and_verdicts(name: str) -> None:
    """The prefix tells the process; only a message can be dropped, only one that is queued, or about to be, held."""
    hook = HOOKS[name]
    prefix = name.partition("_")[0]
    place = {
        "smtp": "receiver", "api": "receiver", "message": "receiver", "log": "any", "start": "any", "stop": "any",
        "event": "events",
    }.get(prefix, prefix)  # fmt: skip
    assert hook.process == place
    assert Hold not in hook.verdicts or place in ("sender", "queue")
    assert Drop not in hook.verdicts or prefix in ("message", "queue", "log")
    assert hook.failing == "pass" or Defer in hook.verdicts, "a failure means: try again later"
    assert hook.streams == (name in ("message_analyze", "message_rewrite", "message_store"))


def test_passwords_do_not_show() -> None:
    """An Auth that ends up in a log line or an error keeps its password to itself."""
    assert "secret" not in repr(Auth("anna", "secret"))
