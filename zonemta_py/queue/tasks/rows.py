"""Tasks as rows and sentences, for whoever asks."""

from __future__ import annotations

import time
from typing import Any

from zonemta_py.queue.core import tasks as table
from zonemta_py.queue.core.tasks import Task
from zonemta_py.queue.tasks.where import Where, duration

Row = dict[str, Any]
_SHOWN = {table.UNDOING: table.RUNNING, table.ENDING: table.DONE}
_VERBS = {"flush": "send now", "requeue": "queue again", "purge": "purge"}


def row(task: Task, ident: str, apart_ms: int, state: str = "", undoable: bool = False) -> Row:
    """As `tasks` shows it. apart_ms: how far steady time is ahead of the clock. undoable: now."""
    shown = state or ("canceled" if task.stopped and task.state == table.ENDING else _SHOWN.get(task.state, task.state))
    over = shown in ("done", "undone") or (shown == "undoable" and not task.stopped)
    count = task.count if task.count is not None or not over else task.done
    change = task.change
    if "at_ms" in change:
        change = change | {"at_ms": change["at_ms"] - apart_ms}
    return {
        "id": ident, "verb": task.verb, "where": task.where, "words": words(task.verb, task.where, change),
        "set": change, "by": task.by, "cause": task.cause, "state": shown, "count": count, "done": task.done,
        "undone": task.undone, "zones": task.zones, "examples": task.examples, "created_ms": task.created_ms,
        "ended_ms": task.ended_ms, "undo_until_ms": task.until_ms - apart_ms if task.until_ms and undoable else 0,
        "undoable": undoable, "suppressed": task.suppressed,
        "remarks": remarks(task.verb, task.where, task.suppressed),
    }  # fmt: skip


def words(verb: str, where: dict[str, Any], change: dict[str, Any]) -> str:
    """The order as a sentence."""
    said = _VERBS.get(verb, verb)
    if verb == "move":
        said = f"move to zone {change['zone']}"
    elif verb == "set":
        said = "set " + ", ".join(_set(name, value) for name, value in change.items())
    try:
        return f"{said}: {Where.of(where).words()}"
    except ValueError:  # of another version
        return f"{said}: {where}"


def _set(name: str, value: Any) -> str:
    if name == "life_h":
        return f"life {duration(round(value * 3600, 3))}"
    if name == "at_ms":
        return time.strftime("time %Y-%m-%d %H:%M:%S+00:00", time.gmtime(value / 1000))
    if name == "sender":
        return f"return path {value}"
    if name == "header":
        return ", ".join(f"{field}: {text}" if text is not None else f"no {field}" for field, text in value.items())
    return f"{name} {value}" if value != "" else f"{name} as usual"


def remarks(verb: str, where: dict[str, Any], suppressed: int) -> list[str]:
    """What is to be known before it is ordered, and after. suppressed: so many were left as they were."""
    if verb == "set" and suppressed:
        many = "1 more recipient stays" if suppressed == 1 else f"{suppressed:,} more recipients stay"
        return [
            f"{many} as before: what a client pulls is not sent, campaign mail is its campaign's and made from its"
            " template, and the null sender has no return path"
        ]
    if verb != "requeue" or "bounced" not in where.get("state", ()):
        return []
    told = "the sender may already have a bounce, and gets another one if it bounces again"
    if not suppressed:
        return [told]
    many = "1 more is" if suppressed == 1 else f"{suppressed:,} more are"
    return [told, f"{many} on the suppression list, and left as before; `zonemta suppression remove` comes first"]
