"""Orders about tasks: what is to be done to whatever a filter means, its preview first; reload."""

from __future__ import annotations

from typing import Any

from zonemta_py.queue import questions
from zonemta_py.web.dashboard import filters
from zonemta_py.web.dashboard.desk import HOME, Desk, Done
from zonemta_py.web.dashboard.orders.order import DeskOrder, FormField, Given, OrderWords
from zonemta_py.web.dashboard.words import Wrong, count, seconds

VERBS = ("hold", "release", "flush", "delete", "move", "set", "requeue")
_HINT = "flush: try now; move and set need the fields below; delete can be undone for a while"


async def _preview_words(desk: Desk, given: Given) -> OrderWords:
    filled = filters.chosen(given)
    filters.where(filled)
    said = ", ".join(f"{name} {text}" for name, text in filled.items())
    fields = (
        FormField("verb", "What to do", _HINT, VERBS), FormField("to_zone", "move: to zone"),
        FormField("to_priority", "set: priority", "-9 to 9"), FormField("cause", "Why", "kept with the task"),
        *(() if said else (FormField("everything", "Which", options=("", "everything in the queue"), needed=True),)),
    )  # fmt: skip
    return OrderWords(
        "Change many recipients", f"Selected: {said or 'everything in the queue'}. They are counted first, and examples"
        " are shown; nothing is changed.", "There is nothing to undo yet.", "Count them first", fields,
    )  # fmt: skip


def _change(form: Given) -> dict[str, Any] | None:
    """Raises Wrong."""
    if form.get("verb") == "move":
        return {"zone": form.get("to_zone", "").strip()}
    if form.get("verb") == "set":
        try:
            return {"priority": int(form.get("to_priority", ""))}
        except ValueError:
            raise Wrong("set needs a priority, -9 to 9") from None
    return None


async def _preview(desk: Desk, form: Given, by: str) -> Done:
    where: dict[str, Any] = filters.where(filters.chosen(form))
    if form.get("everything"):
        where["all"] = True
    row = await desk.ask(questions.task_preview, verb=form.get("verb", ""), where=where, set=_change(form), by=by,
                         cause=form.get("cause", "").strip()[:300])  # fmt: skip
    return Done(
        "Nothing has been changed yet.", "It is being counted; start it below.", there=f"{HOME}/tasks/{row['id']}"
    )


async def _start_words(desk: Desk, given: Given) -> OrderWords:
    row = await desk.ask(questions.task_row, id=given.get("id", ""))
    many = f"{count(row['count'])} recipients" if row["state"] == "previewed" else "still being counted"
    said = f"{row['words'].capitalize()} ({many}). At once, for mail in the queue now, never for later mail."
    undo = "Undo on its page reverts what was not sent in the meantime, until the time shown there."
    how_long = FormField("undo", "Can be undone for", "such as 10 min, 2 h; empty: as the configuration says")
    return OrderWords("Start the task", said, undo, "Start it", (how_long,))


async def _start(desk: Desk, form: Given, by: str) -> Done:
    row = await desk.ask(questions.task_start, id=form.get("id", ""), by=by, undo_s=seconds(form.get("undo", "")))
    how = "It can be undone until mail is sent or permanently removed."
    return Done(f"Ordered: {row['words']}.", how, "task-undo", {"id": row["id"]}, "Undo it", _place(row))


async def _cancel_words(desk: Desk, given: Given) -> OrderWords:
    row = await desk.ask(questions.task_row, id=given.get("id", ""))
    said = f"It stops: {row['words']}. What it has done to {count(row['done'])} recipients remains."
    return OrderWords(f"Cancel task {row['id']}", said, "What was done can be undone on its page.", "Cancel it")


async def _cancel(desk: Desk, form: Given, by: str) -> Done:
    row = await desk.ask(questions.task_cancel, id=form.get("id", ""), by=by)
    said = f"Task {row['id']} stops; {count(row['done'])} recipients were changed."
    return Done(said, "Undo reverts those.", "task-undo", {"id": row["id"]}, "Undo what was done", _place(row))


async def _undo_words(desk: Desk, given: Given) -> OrderWords:
    row = await desk.ask(questions.task_row, id=given.get("id", ""))
    return OrderWords(f"Undo task {row['id']}", f"It reverts what “{row['words']}” changed, except for mail sent"
                 " since.", "Order it again.", "Undo it")  # fmt: skip


async def _undo(desk: Desk, form: Given, by: str) -> Done:
    row = await desk.ask(questions.task_undo, id=form.get("id", ""), by=by)
    return Done(f"Task {row['id']} is being undone.", "Mail sent in the meantime stays sent.", there=_place(row))


def _place(row: questions.TaskRow) -> str:
    return f"{HOME}/tasks/{row['id']}"


async def _reload_words(desk: Desk, given: Given) -> OrderWords:
    found = await desk.ask(questions.reload, check=True)
    if found["refused"]:
        raise Wrong(" ".join(found["refused"]))
    names = ", ".join(key for key, _, _ in found["changes"][:12]) or "nothing"
    said = f"It changes: {names}. No connection is dropped, and nothing is put in doubt."
    undo = "“zonemta config back” applies the previous one again."
    return OrderWords("Reload the configuration", said, undo, "Reload")


async def _reload(desk: Desk, form: Given, by: str) -> Done:
    found = await desk.ask(questions.reload, check=False, by=f"key {by}")
    if found["refused"]:
        raise Wrong(" ".join(found["refused"]))
    return Done(f"Configuration {found['number'] or ''} is in use.", "“zonemta config back” undoes it.",
                there=f"{HOME}/configuration")  # fmt: skip


ORDERS = (
    DeskOrder("task-preview", _preview_words, _preview), DeskOrder("task-start", _start_words, _start),
    DeskOrder("task-cancel", _cancel_words, _cancel), DeskOrder("task-undo", _undo_words, _undo),
    DeskOrder("reload", _reload_words, _reload),
)  # fmt: skip
