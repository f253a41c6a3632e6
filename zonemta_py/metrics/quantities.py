"""The quantities that anybody can be shown: name, unit, definition and where each is counted, in one table.

A command, page, metric, report, event or alert that shows one of them shows it under this name and means this. The text
of METRICS is made of it where a metric is one of these, docs/METRICS.md has the table (`python -m zonemta_py.reference
--quantities`), and a test of a running MTA compares all places that show one with each other.

Of recipients these hold at any moment:

    accepted = waiting + deleted + delivered + bounced + removed
    waiting  = queued + leased + deferred + held
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Quantity(NamedTuple):
    """means: one sentence. source: the module that counts it. metric: what Prometheus calls it; "" if it has none."""

    name: str
    unit: str
    means: str
    source: str
    metric: str = ""


_STATE = 'zonemta_queue_recipients{state="%s"}'
_SIZES, _TELL = "queue/core/sizes.py", "queue/lifecycle/observe.py"

_ROWS = (
    # what becomes of recipients, since a beginning: a campaign's, a day's, the start of the queue's process
    Quantity("accepted", "recipients", "Recipients of stored messages, without those left out because they are on the "
             "suppression list; the MTA's own notices are messages, too.", _TELL, "zonemta_recipients_accepted_total"),
    Quantity("suppressed", "recipients", "Recipients left out at acceptance because they are on the suppression list; "
             "they are not among the accepted ones.", _TELL, "zonemta_recipients_suppressed_total"),
    Quantity("delivered", "recipients", "Accepted recipients whose server has taken the message, or which were taken "
             "from a named queue.", _TELL, 'zonemta_answers_total{verdict="delivered"}'),
    Quantity("bounced", "recipients", "Accepted recipients that were given up: refused for good, or expired.",
             _TELL, 'zonemta_answers_total{verdict="bounced"}'),
    Quantity("removed", "recipients", "Accepted recipients that left the queue without delivery or bounce: deleted, "
             "dropped, canceled, suppressed while they waited, or lost by damage.", _TELL,
             "zonemta_recipients_removed_total"),
    # what is in the queue now
    Quantity("waiting", "recipients", "Recipients that are still to be sent: queued, leased, deferred or held.",
             _SIZES),
    Quantity("queued", "recipients", "Recipients that are sent as soon as it is their turn, and that no sender has.",
             _SIZES, _STATE % "queued"),
    Quantity("leased", "recipients", "Recipients that a sender or a client of a named queue has now; they count as "
             "leased only.", "queue/lifecycle/leasing.py", _STATE % "leased"),
    Quantity("deferred", "recipients", "Recipients that wait for the time of their next attempt, or of the first one.",
             _SIZES, _STATE % "deferred"),
    Quantity("held", "recipients", "Recipients that wait for an operator to release or drop them.", _SIZES,
             _STATE % "held"),
    Quantity("deleted", "recipients", "Recipients that a task has deleted and an undo can put back; after that they "
             "are removed.", _SIZES, _STATE % "deleted"),
    Quantity("kept bounces", "recipients", "Recipients that have bounced and are kept for a time, so that they can be "
             "queued again; the state is called bounced.", _SIZES, _STATE % "bounced"),
    Quantity("messages", "messages", "Messages of which at least one recipient is in the queue.",
             "queue/core/counters.py", "zonemta_queue_messages"),
    Quantity("in doubt", "recipients", "Recipients on the list of those whose answer was lost with a process, so that "
             "they may get the message twice.", "queue/admin/doubts.py", "zonemta_in_doubt"),
    # attempts
    Quantity("attempts", "attempts", "Tries of one recipient that ended delivered, deferred or bounced; one that is "
             "tried three times is three.", _TELL, "zonemta_answers_total"),
    Quantity("attempts deferred", "attempts", "Attempts that ended with a temporary failure.", _TELL,
             'zonemta_answers_total{verdict="deferred"}'),
    Quantity("attempts blocked", "attempts", "Attempts, deferred or bounced, that were refused because of the "
             "sender's reputation or the content.", "mail/rules/classes.py"),
    Quantity("sent today", "recipients", "Recipients that a source was allowed to send to a provider since its day of "
             "warm-up began, if their server was reached.", "zones/warmup.py"),
    # what keeps mail from going
    Quantity("suspended", "orders", "Zones, destinations, domains, tenants, campaigns and sources that an operator, or "
             "a campaign's threshold, has suspended.", "schedule/policy/state.py", "zonemta_suspended"),
    Quantity("resting", "destinations, sources", "Automatic pauses: of a destination that cannot be reached "
             "(resting), of a source that is refused there (rest) or cannot be used (source), or by a rule for "
             "replies.",
             "schedule/admin_orders.py", "zonemta_resting"),
    Quantity("learned", "limits", "Limits that were learned from replies and are in force: rates, connections, "
             "recipients a message, no pipelining, no TLS.", "schedule/policy/state.py", "zonemta_learned"),
    # the disk
    Quantity("free", "bytes", "Free space on the disk of the queue.", "disk/space.py", "zonemta_disk_free_bytes"),
    Quantity("reserve", "bytes", "Free space below which mail is refused.", "config/server.py",
             "zonemta_disk_reserve_bytes"),
)  # fmt: skip

QUANTITIES: Mapping[str, Quantity] = {one.name: one for one in _ROWS}
STATES = ("queued", "leased", "deferred", "held", "deleted", "bounced")
"""Of recipients in the queue, in the order in which they are shown."""
WAITING = ("queued", "leased", "deferred", "held")
"""The states that add up to what waits."""
LABELS: Mapping[str, str] = {"bounced": "kept bounces"}
"""How a state is called where that is not its name."""


def means(name: str) -> str:
    """The definition. Raises KeyError."""
    return QUANTITIES[name].means


def label(state: str) -> str:
    """How people read the name of a state."""
    return LABELS.get(state, state)


def waiting(counts: Mapping[str, Any]) -> int:
    """Of counts by state. Raises KeyError if one is missing."""
    return sum(counts[name] for name in WAITING)


_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """In powers of a thousand, as disks and networks are measured: "512 bytes", "67.1 MB", "80 GB", with at most three
    digits that matter."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.3g} {unit}"
