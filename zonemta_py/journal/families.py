"""The families of the store's keys, and from which records of the journal each is made again if the store loses it.

The one place that says it: `queue/fsck` and recovery do it, FORMAT.md has the same table, and
`tests/queue/test_families.py` takes each family away from a queue and looks. A family without a row fails that test.
"""

from __future__ import annotations

from typing import NamedTuple

from zonemta_py.journal.records import Type


class Family(NamedTuple):
    """name: the first word of its keys. sources: the records, none: nothing in the journal has it. how: how it comes
    back, or why it does not. lost: what is lost with it, as it is said after a repair of the store; "": nothing."""

    name: str
    sources: tuple[Type, ...]
    how: str
    lost: str = ""


_RECIPIENT = (Type.ENVELOPE, Type.DELIVERY, Type.MOVED, Type.REMOVED, Type.TASK, Type.FINISH, Type.TAKEN)
_QUEUED = "queued again if the message is whole; one of a merged message is named and ended"
_COUNTED = "counted again from the recipients' keys"

FAMILIES = (
    Family(
        "message", (Type.ENVELOPE, Type.FINISH, Type.TAKEN),
        "bodies are in no record: each message is named, and ended",
    ),
    Family("delivery-zone", _RECIPIENT, _QUEUED),
    Family("deferred", _RECIPIENT, _QUEUED),
    Family("parked", _RECIPIENT, _QUEUED),
    Family("held", _RECIPIENT, "held again, for the operator who releases or drops it"),
    Family("deleted", _RECIPIENT, "deleted again, by the same task"),
    Family("bounced", _RECIPIENT, "kept again, until the same time"),
    Family("in-doubt", (Type.IN_DOUBT, Type.TAKEN), "listed again, as long as the archive goes back"),
    Family("at", (), "made again from the recipients' keys"),
    Family("task", (Type.TASK, Type.TAKEN), "as the records say; one whose end may be lost does nothing more"),
    Family("size", (), _COUNTED),
    Family("size-flow", (), _COUNTED),
    Family("tracked", (), "written with the next batch"),
    Family("quota", (), "counting begins anew", "how much of the quotas is used"),
    Family("plugin", (), "values are gone, counters begin anew", "what plugins keep"),
    Family("plugin-done", (), "what a plugin asks again counts twice"),
    Family("domain", (), "from the file that other processes read", "sender domains with their keys"),
    Family(
        "campaign",
        (Type.STANDING, Type.ENVELOPE, Type.DELIVERY, Type.REMOVED, Type.TASK, Type.FEEDBACK, Type.FINISH, Type.TAKEN),
        "settings, ends and figures come back; a template is in no record: its campaign is suspended until it gets one",
        "templates of campaigns, and what was changed of their hours",
    ),
    Family("request", (Type.ENVELOPE, Type.REMOVED, Type.TAKEN), "until they end"),
    Family("request-end", (Type.ENVELOPE, Type.REMOVED, Type.TAKEN), "with the request's key"),
    Family("standing", (Type.POSITION, Type.STANDING), "a second copy of what the journal has"),
    Family("suppressed", (Type.SUPPRESS, Type.UNSUPPRESS), "from the journal and the whole archive"),
    Family("suppressed-in", (Type.SUPPRESS, Type.UNSUPPRESS), "from the journal and the whole archive"),
    Family("sent", (), "a return path says itself which message it is about", "which campaign and list mail was of"),
    Family("sent-as", (), "reports that only have a Message-ID find no message", "Message-IDs"),
    Family("sent-to", (), "only addresses too long for a return path are in it", "recipients of long addresses"),
    Family("sent-about", (), "what comes back later says no metadata", "metadata for what comes back later"),
    Family("feedback", (Type.FEEDBACK, Type.TAKEN), "what came back is known again, for return_path.verp_days"),
    Family("feedback-of", (Type.FEEDBACK, Type.TAKEN), "with it"),
    Family("evidence", (), "replies count anew", "what speaks against writing to people"),
    Family("guard", (), "counting begins anew", "what the guards against mistaken suppressions have counted"),
    Family("guard-day", (), "counting begins anew"),
    Family("lesson", (), "the other queues do not learn it", "what the other queues were to learn"),
    Family("spooled", (), "what the node has yet to hand to the queue is accepted once more"),
    Family("taken", (), "only of a move between queues that is under way: what was moved is recorded by then"),
    Family("moving", (), "what was about to go to another queue stays; what had gone is there twice, or named as lost"),
    Family("state", (), "counted again; how far the journal was applied is found by applying it again"),
    Family("log", (), "the log begins anew with all that is here"),
    Family("ordered", (), "orders that are kept are carried out again"),
    Family("probe", (), "written and deleted at once, to try a disk"),
)  # fmt: skip


def table() -> str:
    """As FORMAT.md has it."""
    rows = [f"| `{one.name}` | {', '.join(s.name for s in one.sources) or '−'} | {one.how} |" for one in FAMILIES]
    return "\n".join(["| family | records | if it is lost |", "|---|---|---|", *rows])


def lost() -> str:
    """What is in the store only, for a sentence."""
    words = [one.lost for one in FAMILIES if one.lost]
    return "; ".join(words)
