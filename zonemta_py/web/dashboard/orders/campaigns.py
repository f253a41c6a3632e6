"""Orders about campaigns, the suppression list, and held messages."""

from __future__ import annotations

from zonemta_py.queue import questions
from zonemta_py.queue.suppression.entry import ERASED, KINDS, SCOPES
from zonemta_py.web.dashboard.desk import HOME, Desk, Done
from zonemta_py.web.dashboard.orders.order import DeskOrder, FormField, Given, OrderWords
from zonemta_py.web.dashboard.words import Wrong, count

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


_KINDS = ("manual", *(kind for kind in KINDS if kind not in ("manual", ERASED)))


async def _suppress_words(desk: Desk, given: Given) -> OrderWords:
    return OrderWords(
        "Suppress an address", "It gets no more mail of that scope; mail waiting for it is removed.",
        "Remove the entry again: later mail is sent. What was removed from the queue does not come back.", "Suppress",
        (FormField("address", "Address", "or @example.com, @*.example.com, noreply@*, sha256:…", needed=True),
         FormField("kind", "Kind", options=_KINDS),
         FormField("reason", "Why"), FormField("scope", "Scope", f"{SCOPES}; empty: the usual one of its kind")),
    )  # fmt: skip


async def _suppress(desk: Desk, form: Given, by: str) -> Done:
    address, scope, kind = form.get("address", "").strip(), form.get("scope", "").strip(), form.get("kind") or "manual"
    row = [address, kind, form.get("reason", "").strip(), "", by, "", 0, scope]
    found = await desk.ask(questions.suppress, rows=[row])
    if not found.get("added"):
        return Done(f"{address} was already on the list.", "Nothing has been changed.", there=f"{HOME}/suppressions")
    said = f"{address} gets no more mail."
    undo = {"address": address} | ({"scope": scope} if scope else {})
    return Done(said, "Undo removes it from the list; mail removed from the queue stays removed.", "unsuppress",
                undo, there=f"{HOME}/suppressions")  # fmt: skip


async def _unsuppress_words(desk: Desk, given: Given) -> OrderWords:
    scope = f" of the scope {given['scope']}" if given.get("scope") else ""
    return OrderWords(f"Remove {given.get('address', '')} from the list",
                 f"Its entry{scope} is removed, and it gets mail again: only with that person's consent.",
                 "Suppress it again.", "Remove from the list")  # fmt: skip


async def _unsuppress(desk: Desk, form: Given, by: str) -> Done:
    address, scope = form.get("address", ""), form.get("scope") or None
    row = await desk.ask(questions.suppression, address=address)
    rows = [row, *row["others"]] if row else []
    found = [one for one in rows if scope in (None, one["scope"])]
    removed = await desk.ask(questions.unsuppress, addresses=[address], by=by, scope=scope)
    if not removed or not found:
        return Done(f"{address} was not on the list.", "")
    again = {"address": address, "kind": found[0]["kind"], "reason": found[0]["reason"], "scope": found[0]["scope"]}
    return Done(f"{address} gets mail again.", "Undo puts the entry back.", "suppress", again)


async def _guard_release_words(desk: Desk, given: Given) -> OrderWords:
    return OrderWords(f"Count the refusals by {given.get('name', '')}", "The addresses do not exist: the refusals count"
                 " from now on, and they get no more mail.", "Remove addresses from the list again, one by one.",
                 "Count them")  # fmt: skip


async def _guard_drop_words(desk: Desk, given: Given) -> OrderWords:
    return OrderWords(f"Discard the refusals by {given.get('name', '')}",
                 "The addresses exist, the provider was faulty: the refusals held back are discarded.",
                 "It cannot be undone; later refusals count.",
                 "Discard them")  # fmt: skip


async def _guard_release(desk: Desk, form: Given, by: str) -> Done:
    people = await desk.ask(questions.guard_release, name=form.get("name", ""))
    return Done(f"Released, for {people:,} addresses.", "They will be on the list in a moment.",
                there=f"{HOME}/suppressions")  # fmt: skip


async def _guard_drop(desk: Desk, form: Given, by: str) -> Done:
    people = await desk.ask(questions.guard_release, name=form.get("name", ""), drop=True)
    return Done(f"Discarded, for {people:,} addresses.", "They get mail as before.", there=f"{HOME}/suppressions")


async def _release_words(desk: Desk, given: Given) -> OrderWords:
    return OrderWords(
        f"Release message {given.get('id', '')}", "Its held recipients are released for delivery.",
        "Undo holds those again that have not been tried since.", "Release",
    )  # fmt: skip


async def _release(desk: Desk, form: Given, by: str) -> Done:
    """A task, so that it is in the list of them, and can be undone."""
    ident = form.get("id", "")
    where = {"id": ident, "state": "held"}
    if not (await desk.ask(questions.list_, limit=1, **where))["rows"]:
        raise Wrong(f"message {ident!r} has no held recipient")
    row = await desk.ask(questions.task, verb="release", where=where, by=by)
    how = "Undo holds those again that have not been tried since."
    return Done(f"The held recipients of {ident} are sent now.", how, "task-undo", {"id": row["id"]}, "Undo it")


async def _acknowledge_words(desk: Desk, given: Given) -> OrderWords:
    return OrderWords(
        "Acknowledge recipients in doubt", "All recipients are removed from the list: you know that they may get their "
        "message twice. Their mail is not affected.", "It cannot be undone; the journal still has them.",
        "Acknowledge",
    )  # fmt: skip


async def _acknowledge(desk: Desk, form: Given, by: str) -> Done:
    gone = await desk.ask(questions.in_doubt_acknowledge)
    return Done(f"{gone:,} acknowledged.", "The journal still has them.", there=f"{HOME}/doubt")


ORDERS = (
    *map(_order, _SAYS),
    DeskOrder("acknowledge", _acknowledge_words, _acknowledge, grave=True),
    DeskOrder("suppress", _suppress_words, _suppress), DeskOrder("unsuppress", _unsuppress_words, _unsuppress),
    DeskOrder("release", _release_words, _release),
    DeskOrder("guard-release", _guard_release_words, _guard_release),
    DeskOrder("guard-drop", _guard_drop_words, _guard_drop, grave=True),
)  # fmt: skip
