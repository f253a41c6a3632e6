"""Commands that people type out of habit, from other MTAs and tools, and their equivalents here.

A sentence is more helpful than a guess by spelling: `top` is not a typo of `stop`. Commands that exist are not here.
"""

from __future__ import annotations

from collections.abc import Sequence

_SIZE = "`zonemta status` shows its state, `zonemta queue size` the backlog, `zonemta lanes` and `zonemta standing` why"
_LIST = "`zonemta queue list` lists waiting mail, and searches by recipient, sender, subject and more"
_NOW = (
    "`zonemta queue flush` retries waiting mail now; `zonemta explain` shows why something is waiting,"
    " `zonemta resume` ends a suspension or a rest, `zonemta queue release` releases held mail"
)
_TAKEN_OUT = "`zonemta queue delete` deletes mail by id, address, domain and more, `zonemta campaign cancel` a campaign"
_END = "`zonemta drain` finishes deliveries and stops the MTA; SIGTERM (`kill PID`) is faster, and loses nothing"
_LOG = "`zonemta log` shows every acceptance and delivery result, `zonemta log --follow` new ones"

_PAUSE = (
    "`zonemta suspend KIND NAME` suspends a destination, source, zone, tenant or campaign, `zonemta resume` resumes it"
)
_SHOW = "`zonemta status` shows its state, `zonemta queue size --by domain` top domains, `zonemta lanes` each queue"
_ROUTE = "`zonemta route --from ADDRESS --to ADDRESS` shows where mail goes, `zonemta tls check DOMAIN` connects there"
_REPORT = "`zonemta report day yesterday` writes a report on all mail of a day"

_TAIL = "`zonemta events tail` shows events as they happen"

HABITS: dict[tuple[str, ...], str] = {
    ("stats",): _SIZE, ("info",): _SIZE, ("ps",): _SIZE,
    ("list",): _LIST, ("ls",): _LIST, ("size",): _SIZE,
    ("flush",): _NOW, ("retry",): _NOW, ("requeue",): _NOW,
    ("delete",): _TAKEN_OUT, ("remove",): _TAKEN_OUT, ("purge",): _TAKEN_OUT,
    ("logs",): _LOG, ("tail",): _TAIL, ("follow",): _TAIL,
    ("start",): "`zonemta run` runs the MTA in the foreground", ("serve",): "`zonemta run` runs the MTA",
    ("restart",): f"{_END}; then `zonemta run`",
    ("quit",): _END, ("shutdown",): _END,
    ("pause",): "`zonemta suspend KIND NAME` suspends mail, also of a campaign", ("disable",): _PAUSE,
    ("enable",): "`zonemta resume KIND NAME` ends a suspension", ("bounce",): _TAKEN_OUT, ("show",): _SHOW,
    ("topqueues",): _SHOW, ("queue-summary",): _SHOW, ("provider-summary",): _SHOW, ("schedule",): _NOW,
    ("rebind",): "`zonemta queue move --to ZONE` sends mail through another zone",
    ("inspect-message",): "`zonemta queue show ID` shows a message", ("resolve",): _ROUTE,
    ("postconf",): "`zonemta config show` prints the configuration", ("pflogsumm",): _REPORT,
    ("trace-smtp-client",): _LOG, ("trace-smtp-server",): _LOG, ("abort",): _END,
    ("unstop",): "`zonemta resume KIND NAME` ends a suspension", ("unsuspend",): "`zonemta resume KIND NAME` does that",
    ("hold",): "`zonemta queue hold` holds recipients, `zonemta suspend KIND NAME` suspends sending",
    ("check",): "`zonemta config check FILE` checks a configuration, `zonemta fsck` the queue's files",
    ("newaliases",): "there are no aliases to rebuild; `zonemta route` shows where mail goes",
    ("postcat",): "`zonemta queue show ID` shows a message, `zonemta queue show ID --content` prints it",
    ("queue", "ls"): _LIST, ("queue", "count"): "`zonemta queue size` counts waiting mail",
    ("queue", "status"): _SIZE, ("queue", "stats"): _SIZE, ("queue", "find"): _LIST, ("queue", "search"): _LIST,
    ("queue", "retry"): _NOW, ("queue", "rm"): _TAKEN_OUT, ("queue", "remove"): _TAKEN_OUT,
    ("queue", "clear"): _TAKEN_OUT, ("queue", "undo"): "`zonemta task undo ID` undoes a task",
    ("tasks",): "`zonemta task list` lists tasks", ("undo",): "`zonemta task undo ID` undoes a task",
    ("queue", "cat"): "`zonemta queue show ID` shows a message",
    ("queue", "view"): "`zonemta queue show ID` shows a message",
}  # fmt: skip


def meant(arguments: Sequence[str]) -> str:
    """The equivalent of an unknown command; "" if none is known."""
    for length in (1, 2):
        command = tuple(arguments[:length])
        if command in HABITS:
            return f"there is no `zonemta {' '.join(command)}`; {HABITS[command]}"
    return ""
