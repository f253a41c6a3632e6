"""Orders about campaigns."""

from __future__ import annotations

from zonemta_py.queue import questions
from zonemta_py.web.dashboard.desk import Desk, Done
from zonemta_py.web.dashboard.orders.order import DeskOrder, FormField, Given, OrderWords
from zonemta_py.web.dashboard.words import count

_CAUSE = FormField("cause", "Why", "shown with the campaign")
_SAYS = {
    "pause": ("Nothing more of it is sent for now; its mail waits.", "Resume it.", "Pause"),
    "resume": ("It continues at once, and its thresholds are counted from now on.", "Pause it again.", "Resume"),
    "cancel": ("Nothing more of it is sent, and all its waiting mail is deleted permanently.",
               "It cannot be undone. To continue later, pause it instead.", "Cancel it permanently"),
    "complete": ("All batches were submitted, so it ends when none of its mail waits.", "It cannot be undone; more "
                 "mail can still be sent under its name.", "It is complete"),
}  # fmt: skip
_REVERSE = {"pause": "resume", "resume": "pause"}


def _order(action: str) -> DeskOrder:
    async def words(desk: Desk, given: Given) -> OrderWords:
        row = await desk.ask(questions.campaign, name=given.get("name", ""))
        said, undo, button = _SAYS[action]
        if action == "cancel" and not row["registered"]:
            said += " Mail of that name that comes later is sent."
        waits = f"{count(row['waiting'])} of {count(row['accepted'])} recipients wait."
        return OrderWords(f"{action.capitalize()} campaign {row['name']}", f"{waits} {said}", undo, button, (_CAUSE,))

    async def do(desk: Desk, form: Given, by: str) -> Done:
        name, cause = form.get("name", ""), form.get("cause", "").strip()[:300]
        if action == "complete":
            row = await desk.ask(questions.campaign_complete, name=name)
        else:
            row = await desk.ask(questions.CAMPAIGN_ORDERS[action], name=name, cause=cause or f"by {by}")
        said = f"Campaign {name} is {row['state']}; {count(row['waiting'])} recipients wait."
        if back := _REVERSE.get(action):
            return Done(said, "Undo takes that back.", f"campaign-{back}", {"name": name}, back.capitalize())
        return Done(said, _SAYS[action][1])

    return DeskOrder(f"campaign-{action}", words, do, grave=action == "cancel")


ORDERS = tuple(map(_order, _SAYS))
