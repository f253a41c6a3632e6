"""`zonemta suppression explain`, `guards`, `release` and `drop` against a real queue; what `status` says of them."""

import json
from collections.abc import Callable
from typing import Any

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.suppression.policy import Statement

Told = Callable[..., Any]


def hear(running: Any, *people: str, said: str = "550 5.1.1 no such user", **more: Any) -> None:
    """As if a provider had said so."""

    async def heard(queue: LocalQueue) -> None:
        core = queue.core
        for number, address in enumerate(people):
            what, ms = more.get("what", "user-unknown"), core.clock.steady_ms()
            statement = Statement(
                address, what, f"{number:016x}", ms, more.get("agreed", True), pair=("", "p.test"), said=said
            )
            core.disk.lines.submit(queue.policy.heard(statement), lambda _: None, sync=False, keep=True)
        for _ in range(4):
            await core.disk.lines.stable()
            await core.disk.journal.stable()

    running.do(heard)


def test_why_somebody_is_on_the_list_or_not(served: Told, told: Told) -> None:
    running = served()
    ran = told("suppression", "explain", "ann@x.test")
    assert ran.out == (
        "ann@x.test is not on the suppression list\nThere is no evidence against sending to this address\n"
    )
    hear(running, "ann@x.test")
    hear(running, "bob@x.test", agreed=False, said="550 who?")
    out = told("suppression", "explain", "Ann@X.test").out
    assert "ann@x.test is on the suppression list (hard-bounce) since " in out
    assert ", by the queue itself: the address does not exist: 550 5.1.1 no such user\n" in out
    assert "The address does not exist: 1 refusal within 30 days; that is enough" in out
    out = told("suppression", "explain", "bob@x.test").out
    assert "bob@x.test is not on the suppression list\n" in out
    assert "enough would be 1 where code, text and stage agree, or 3 of other messages on other days" in out
    assert "550 who?" in out
    found = json.loads(told("suppression", "explain", "bob@x.test", "--json").out)
    assert [one["said"] for one in found["heard"]] == ["550 who?"]
    assert found["standing"][0]["enough"] is False


def test_what_a_guard_holds_back(served: Told, told: Told) -> None:
    """It is shown wherever an operator looks, and let count or forgotten by one command."""
    running = served()
    people = [f"p{number}@x.test" for number in range(20)]
    out = told("suppression", "guards").out
    assert "Nothing is held back" in out
    assert "within 60 s, and 10% or more of all it answered for" in out
    hear(running, *people)
    rows = json.loads(told("suppression", "guards", "--json").out)
    assert [(row["name"], row["people"]) for row in rows] == [("p.test", 20)]
    out = told("suppression", "guards").out
    assert "zonemta suppression release p.test" in out
    assert "They are not lost" in out
    assert "undo: zonemta suppression release p.test" in told("standing").out
    assert (
        "held back: `zonemta suppression release p.test` counts them" in told("suppression", "explain", people[0]).out
    )
    assert json.loads(told("suppression", "list", "--json").out)["rows"] == []
    assert told("suppression", "release", "p.test").out == "p.test: released, for 20 people\n"
    running.do(lambda queue: queue.core.disk.journal.stable())
    assert "held back" not in told("suppression", "explain", people[0]).out
    ran = told("suppression", "drop", "p.test")
    assert (ran.code, ran.err) == (
        Exit.DATA,
        "zonemta: nothing is held back at 'p.test'; `zonemta suppression guards` shows where\n",
    )
