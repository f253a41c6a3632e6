"""A plugin that does wrong things at its hooks, amid the mail of others: one copy of each acknowledged message,
everybody else's arrives, and the plugin is named. All of them: scripts/trials/plugin_misbehaviour."""

from __future__ import annotations

from pathlib import Path

from survival.plugin_misbehaviour import Group, broken

CASES = (
    ("raise", "smtp_rcpt_to"), ("return", "message_queue"), ("keyboard", "sender_connection"),
    ("sys_exit", "queue_bounce"), ("garbage_lines", "smtp_mail_from"), ("garbage_object", "sender_headers"),
    ("garbage_none", "message_store"), ("garbage_object", "message_analyze"), ("garbage_list", "smtp_rcpt_to"),
    ("sleep", "sender_response_error"), ("swallow", "queue_route"), ("swallow", "message_analyze"),
    ("swallow_once", "sender_fetch"), ("loop", "smtp_data"), ("loop", "sender_connect"), ("cancel", "queue_retry"),
    ("return", "task"), ("sys_exit", "event"), ("raise", "event"), ("raise", "sender_tls_error"),
    ("cancel", "sender_tls_error"),
)  # fmt: skip


async def test_what_a_plugin_does_wrong_hinders_nobody_else(tmp_path: Path) -> None:
    group = Group(tmp_path / "wrong", CASES)
    await group.run(lambda case: None)
    assert broken([group]) == []
    assert len(group.others.acknowledged) > 1


async def test_what_holds_processes_up_is_named(tmp_path: Path) -> None:
    """Threads that stay, and what blocks where calls are not measured as others are: streams, tasks, `stop`."""
    cases = [("block", place) for place in ("message_rewrite", "event", "task", "stop")]
    group = Group(tmp_path / "blocking", [*cases, ("threads", "sender_headers")])
    await group.run(lambda case: None)
    assert broken([group]) == []


async def test_what_takes_memory_is_named(tmp_path: Path) -> None:
    """Each time."""
    group = Group(tmp_path / "memory", [("memory", "message_headers"), ("memory", "message_queue")])
    await group.run(lambda case: None)
    assert broken([group]) == []


async def test_what_ends_processes_hinders_nobody_else(tmp_path: Path) -> None:
    """At every start of a process, too, after a reload that has brought it."""
    group = Group(tmp_path / "deadly", (("exit", "sender_headers"), ("segfault", "queue_route"), ("exit", "start")))
    await group.run(lambda case: None)
    assert broken([group]) == []
