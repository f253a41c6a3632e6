"""Orders about suspensions, rests, lessons and warm-up."""

from __future__ import annotations

import time
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.schedule.admin_orders import STOPPED
from zonemta_py.web.dashboard.desk import HOME, Desk, Done
from zonemta_py.web.dashboard.orders.order import DeskOrder, FormField, Given, OrderWords
from zonemta_py.web.dashboard.words import Wrong, count, lesson, seconds, span

_FOR = FormField("for", "For how long", "such as 30 min, 2 h, 1 d; empty: until it is resumed")
_CAUSE = FormField("cause", "Why", "shown wherever this mail is explained")


async def _suspend_words(desk: Desk, given: Given) -> OrderWords:
    kind, name = given.get("kind", ""), given.get("name", "")
    fields: tuple[FormField, ...] = (_FOR, _CAUSE)
    if not kind or not name:
        fields = (
            FormField("kind", "What", options=STOPPED, needed=True),
            FormField("name", "Its name", needed=True),
            *fields,
        )
    what = f"the {kind} {name}" if name else "the one named here"
    said = f"Nothing of {what} is sent for now; its mail waits in the queue. Deliveries in progress finish."
    return OrderWords(
        f"Suspend {what if name else 'something'}", said,
        "Resume it, here or on the page Suspensions: its mail is sent again at once.", "Suspend", fields,
    )  # fmt: skip


async def _suspend(desk: Desk, form: Given, by: str) -> Done:
    kind, name, for_s = form.get("kind", ""), form.get("name", "").strip(), seconds(form.get("for", ""))
    cause = form.get("cause", "").strip() or f"by {by}"
    held = await desk.ask(questions.stop, kind=kind, name=name, seconds=for_s, cause=cause[:300])
    until = f"for {span(for_s)}" if for_s else "until it is resumed"
    return Done(f"The {kind} {name} is suspended {until}: {count(held)} flow queues in memory wait.",
                "Its mail is sent again as soon as it is resumed.", "resume", {"kind": kind, "name": name}, "Resume it",
                f"{HOME}/suspensions")  # fmt: skip


async def _resume_words(desk: Desk, given: Given) -> OrderWords:
    kind, name = given.get("kind", ""), given.get("name", "")
    if kind in STOPPED:
        return OrderWords(f"Resume the {kind} {name}", "Its mail is sent again from now on, within its limits.",
                     "Suspend it again.", "Resume")  # fmt: skip
    if kind in ("resting", "rest"):
        return OrderWords(
            f"Try {name} now",
            "The rest ends: the next delivery is a trial.",
            "It cannot be undone; if that delivery fails too, the rest starts again automatically.",
            "Try now",
        )
    return OrderWords(
        f"Discard what was learned: {lesson(kind)} for {name}",
        "Deliveries go by the configuration again.",
        "It cannot be undone; if servers reply as before, it is learned again automatically.",
        "Discard",
    )


async def _resume(desk: Desk, form: Given, by: str) -> Done:
    kind, name = form.get("kind", ""), form.get("name", "")
    kinds = (kind, "domain") if kind == "destination" else (kind,)  # of one that shares its site, only the domain is
    row = await _standing(desk, kinds, name)
    if not await desk.ask(questions.lift, kind=kind, name=name) or row is None:
        return Done(f"There was nothing to do: {lesson(kind)} {name} is neither suspended nor resting.", "")
    if kind not in STOPPED:
        said = f"{name} is tried now." if kind in ("resting", "rest") else f"Discarded: {lesson(kind)} for {name}."
        return Done(said, "If it fails as before, the same will be learned again automatically.")
    left_s = row["until_ms"] / 1000 - time.time() if row["until_ms"] else 0
    again = {"kind": kind, "name": name, "cause": row["cause"], "for": f"{left_s:.0f} s" if left_s > 0 else ""}
    return Done(f"The {kind} {name} is resumed.", "It can be suspended again as it was.", "suspend", again,
                "Suspend it again")  # fmt: skip


async def _standing(desk: Desk, kinds: tuple[str, ...], name: str) -> dict[str, Any] | None:
    """Its row; the list comes in pages."""
    after = 0
    while rows := await desk.ask(questions.standing, after=after):
        found = next((row for row in rows if row["kind"] in kinds and row["name"] == name), None)
        if found is not None:
            return dict(found)
        after += len(rows)
    return None


async def _warm_words(desk: Desk, given: Given) -> OrderWords:
    source, provider = given.get("source", ""), given.get("provider", "")
    return OrderWords(
        f"Warm-up of {source} at {provider}",
        "It moves to that day of its schedule, with that day's limit.",
        "Set the day that it is on now.", "Set", (FormField("step", "Day", "1 is the first; empty: it is warm"),),
    )  # fmt: skip


async def _warm(desk: Desk, form: Given, by: str) -> Done:
    source, provider, step = form.get("source", ""), form.get("provider", ""), form.get("step", "").strip()
    if step and not step.isdecimal():
        raise Wrong(f"{step[:20]!r} is no day; give its number, 1 is the first")
    rows = await desk.ask(questions.warmup)
    before = next((row for row in rows if (row["source"], row["provider"]) == (source, provider)), None)
    row = await desk.ask(questions.warm, source=source, provider=provider, step=int(step) if step else None)
    said = "warm" if row["warm"] else f"on day {row['step'] + 1} of {row['steps']}"
    undo = "" if before is None or before["warm"] else str(before["step"] + 1)
    return Done(f"{source} at {provider} is {said}.", "Undo returns it to the previous day.", "warm",
                {"source": source, "provider": provider, "step": undo})  # fmt: skip


ORDERS = (
    DeskOrder("suspend", _suspend_words, _suspend), DeskOrder("resume", _resume_words, _resume),
    DeskOrder("warm", _warm_words, _warm),
)  # fmt: skip
