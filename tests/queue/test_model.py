"""The queue beside a small model of the promise, through random lives: mail, leases, results, orders, crashes, damage.

The model knows who waits, who is leased, held, deleted by a task or kept after a bounce, and nothing of keys, records
or threads. After every step the queue must list exactly those; after a crash whoever was leased waits again and is in
doubt, and no other has changed. After a flipped bit whoever is missing is named in quarantine. MODEL_EXAMPLES=500 with
--hypothesis-profile=search looks at other and more lives.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Delivery

EXAMPLES, STEPS = int(os.environ.get("MODEL_EXAMPLES", "12")), 30
ZONES = ("default", "bulk")
PATIENCE_S = 60
STATES = {
    "queued": "waiting", "deferred": "waiting", "leased": "leased", "held": "held", "deleted": "deleted",
    "bounced": "bounced",
}  # fmt: skip
MEANT = {
    "delete": ("waiting", "held"), "hold": ("waiting",), "release": ("held",), "set": ("waiting", "held"),
    "requeue": ("bounced",),
}  # fmt: skip
"""To whom a task does something."""
BECOMES = {"delete": "deleted", "hold": "held", "release": "waiting", "requeue": "waiting"}
OVER = ("deleted", "bounced")
"""What `list` shows only if it is asked for."""
REMEMBERED = 4
Who = tuple[str, str]


class Life(RuleBasedStateMachine):
    """people: (message id, address) → its state. senders: (message id, address) → who hears of failures, "" nobody."""

    make: Callable[[], Any]

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.home = self.make()
        self.people: dict[Who, str] = {}
        self.senders: dict[Who, str] = {}
        self.zones: dict[Who, str] = {}
        self.out: list[Delivery] = []
        self.stopped: set[str] = set()
        self.suppressed: set[str] = set()
        self.number = 0
        self.tried: dict[Who, int] = {}
        self.done: dict[Who, list[tuple[str, str, int]]] = {}
        self.tasks: list[str] = []
        self.struck = False
        self._run(self.home.open())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(asyncio.wait_for(work, PATIENCE_S))

    def _ask(self, question: str, **arguments: Any) -> Any:
        return self._run(self.home.queue.ask(question, **arguments))

    def _listed(self) -> dict[Who, dict[str, Any]]:
        self._run(self.home.rest())
        asked = ({}, *({"state": state} for state in OVER))
        rows = [row for more in asked for row in self._run(self.home.listed(**more))]
        return {(row["id"], row["recipient"]): row for row in rows}

    def _comes(self, who: Who, sender: str, zone: str) -> None:
        self.people[who], self.senders[who], self.zones[who] = "waiting", sender, zone

    # -- what may happen

    @rule(zone=st.sampled_from(ZONES), count=st.integers(1, 4), told=st.booleans())
    def accept(self, zone: str, count: int, told: bool) -> None:
        self.number += 1
        sender = f"w{self.number}@src.test" if told else ""
        addresses = [f"r{self.number}-{one}@{'b' if zone == 'bulk' else 'x'}.test" for one in range(count)]
        message_id = self._run(self.home.put(*addresses, sender=sender))
        for address in addresses:
            self._comes((message_id, address), sender, zone)

    @rule(most=st.integers(1, 3))
    def lease(self, most: int) -> None:
        """Only who waits, in a zone that is not stopped, and is not suppressed."""
        for delivery in self._run(self.home.leases(most)):
            for recipient in delivery.recipients:
                who = (delivery.id, recipient.address)
                assert self.people[who] == "waiting"
                assert delivery.zone not in self.stopped
                assert not (recipient.address in self.suppressed and self.senders[who])
                self.people[who] = "leased"
            self.out.append(delivery)
        here = self._listed()
        for who in [who for who in self.people if who[1] in self.suppressed and self.senders[who] and who not in here]:
            del self.people[who]  # it was left out when its turn came

    @precondition(lambda self: self.out)
    @rule(pick=st.integers(0, 99), verdict=st.sampled_from((DELIVERED, DELIVERED, DEFERRED, BOUNCED, HELD)))
    def settle(self, pick: int, verdict: int) -> None:
        delivery = self.out.pop(pick % len(self.out))
        self._run(self.home.settle(delivery, verdict))
        told = {self.senders[delivery.id, recipient.address] for recipient in delivery.recipients} - {""}
        for recipient in delivery.recipients:
            who = (delivery.id, recipient.address)
            if verdict == DELIVERED:
                del self.people[who]
            else:
                self.people[who] = {HELD: "held", BOUNCED: "bounced"}.get(verdict, "waiting")
                self.tried[who] = self.tried.get(who, 0) + 1
        if verdict == BOUNCED and told:
            self._notified(told)

    def _notified(self, told: set[str]) -> None:
        """Exactly one notification more, to each of them."""
        fresh = [who for who in self._listed() if who not in self.people]
        assert sorted(address for _, address in fresh) == sorted(told)
        for who in fresh:
            self._comes(who, "", "default")

    @precondition(lambda self: "held" in self.people.values())
    @rule(pick=st.integers(0, 99), order=st.sampled_from(("release", "drop")))
    def order(self, pick: int, order: str) -> None:
        held = sorted({message_id for (message_id, _), state in self.people.items() if state == "held"})
        message_id = held[pick % len(held)]
        self._ask(order, id=message_id)
        for who in [who for who, state in self.people.items() if who[0] == message_id and state == "held"]:
            if order == "release":
                self.people[who] = "waiting"
            else:
                del self.people[who]

    @precondition(lambda self: self.people and not self.out)
    @rule(verb=st.sampled_from(sorted(MEANT)), zone=st.sampled_from(ZONES), final=st.booleans())
    def task(self, verb: str, zone: str, final: bool) -> None:
        """Done to everybody in the domain of that zone; what is deleted for good is gone."""
        domain, final = "b.test" if zone == "bulk" else "x.test", final and verb == "delete"
        more = {"undo_s": 0} if final else {"set": {"priority": 3}} if verb == "set" else {}
        state = {"state": "bounced"} if verb == "requeue" else {}
        row = self._ended(self._ask("task", verb=verb, where={"domain": domain, **state}, **more))
        theirs = [who for who, state in self.people.items() if who[1].endswith(domain) and state in MEANT[verb]]
        if verb == "requeue":  # who is on the suppression list is left as before
            theirs = [who for who in theirs if not (who[1] in self.suppressed and self.senders[who])]
        assert row["done"] == len(theirs)
        for who in theirs:
            if final:
                del self.people[who]
                continue
            done = self.done.setdefault(who, [])
            done.append((row["id"], self.people[who], self.tried.get(who, 0)))
            del done[:-REMEMBERED]
            self.people[who] = BECOMES.get(verb, self.people[who])
        if not final:
            self.tasks.append(row["id"])

    @precondition(lambda self: self.tasks and not self.out)
    @rule()
    def undo(self) -> None:
        """Of the latest task: whoever has not been tried since is as before it."""
        ident = self.tasks.pop()
        if not self._ask("task-row", id=ident)["undoable"]:
            return  # it did nothing
        self._ended(self._ask("task-undo", id=ident))
        for who in self.people:
            done = self.done.get(who)
            if done and done[-1][0] == ident and done[-1][2] == self.tried.get(who, 0):
                self.people[who] = done.pop()[1]

    def _ended(self, row: dict[str, Any]) -> dict[str, Any]:
        while row["state"] == "running":
            self._run(asyncio.sleep(0.005))
            row = self._ask("task-row", id=row["id"])
        return row

    @rule(zone=st.sampled_from(ZONES))
    def stop_or_lift(self, zone: str) -> None:
        self._ask("lift" if zone in self.stopped else "stop", kind="zone", name=zone)
        self.stopped ^= {zone}

    @precondition(lambda self: self.number)
    @rule(pick=st.integers(0, 99))
    def suppress(self, pick: int) -> None:
        address = f"r{1 + pick % self.number}-0@x.test"
        self._ask("suppress", rows=[[address, "manual"]])
        self.suppressed.add(address)

    @rule(seconds=st.sampled_from((1, 60, 600)))
    def time_passes(self, seconds: int) -> None:
        self._run(self.home.move(seconds))

    @rule()
    def position(self) -> None:
        self._run(self.home.queue.position())

    @rule()
    def rotate(self) -> None:
        self._ask("rotate")

    @rule(power=st.booleans(), seed=st.integers(0, 1 << 32))
    def crash(self, power: bool, seed: int) -> None:
        self._run(self.home.crash(power=power, die=random.Random(seed)))
        self._begun_again()

    def _begun_again(self) -> None:
        leased = {who for who, state in self.people.items() if state == "leased"}
        doubtful = {(row["id"], row["recipient"]) for row in self._ask("in-doubt")}
        assert leased <= doubtful
        self.people.update(dict.fromkeys(leased, "waiting"))
        self.out.clear()

    @precondition(lambda self: self.people)
    @rule(seed=st.integers(0, 1 << 32))
    def damage(self, seed: int) -> None:
        """One bit of one file, while the machine is off. What is there afterwards is where the model goes on."""
        die, self.struck = random.Random(seed), True
        self._run(self._crash_with(partial(self._strike, die)))
        here = self._listed()
        known = "".join(path.read_text(errors="replace") for path in self._quarantined())
        for who in self.people.keys() - here.keys():
            assert who[0] in known or who[1] in known, f"{who} is gone, and nothing names it"
        policy = {row["name"] for row in self._ask("standing") if row["kind"] == "zone"}
        assert self.stopped <= policy or "order" in known
        self.stopped &= policy
        self.suppressed = {address for address in self.suppressed if self._ask("suppression", address=address)}
        self.people = {who: STATES[row["state"]] for who, row in here.items()}
        self.tasks.clear()  # what their notes remember may be lost
        self.done = {who: [("?", "", -1)] for who in here}
        for who, row in here.items():
            self.senders[who], self.zones[who] = row["sender"], row["zone"]
        self.out.clear()

    async def _crash_with(self, blow: Callable[[Path], None]) -> None:
        image = self.home.image

        def struck(*arguments: Any) -> Path:
            copy: Path = image(*arguments)
            blow(copy)
            return copy

        self.home.image = struck
        try:
            await self.home.crash()
        finally:
            self.home.image = image

    def _strike(self, die: random.Random, folder: Path) -> None:
        """A start repairs the journal by itself; what LevelDB reads only later is left to `fsck --repair` here."""
        path = _flip(folder, die)
        if path.parent.name == "store" or die.random() < 0.5:
            self.home.check(repair=True, folder=folder)

    def _quarantined(self) -> list[Path]:
        return [path for path in self.home.folder.glob("quarantine/**/*") if path.is_file()]

    # -- what must hold

    @invariant()
    def the_queue_lists_whom_the_model_knows(self) -> None:
        assert {who: STATES[row["state"]] for who, row in self._listed().items()} == self.people

    @invariant()
    def sizes_are_exact(self) -> None:
        total = self._run(self.home.sizes())
        states = list(self.people.values())
        assert total["held"] == states.count("held")
        assert total["deleted"] == states.count("deleted")
        assert total["bounced"] == states.count("bounced")
        assert total["queued"] + total["deferred"] == states.count("waiting")
        assert total["leased"] == states.count("leased")
        assert total["messages"] == len({message_id for message_id, _ in self.people})

    async def _end(self) -> None:
        """A closed segment that nothing reads again may be damaged still: a repair finds it, and once is enough."""
        if self.struck:
            await self.home.rest()
            self.home.abandon()
            self.home.check(repair=True)
            await self.home.open()
        await self.home.sound()
        self.home.abandon()

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self._run(self._end())
            self.runner.close()


def _flip(folder: Path, die: random.Random) -> Path:
    files = [path for part in ("journal", "store", "receipts") for path in sorted(folder.glob(f"{part}/*"))]
    files = [path for path in files if path.is_file() and path.stat().st_size and not path.name.startswith("LOG")]
    path = die.choice(files)
    data = bytearray(path.read_bytes())
    data[die.randrange(len(data))] ^= 1 << die.randrange(8)
    path.write_bytes(data)
    return path


def test_any_life_keeps_the_promise(house_class: Any, memory: Path) -> None:
    """Twelve lives of thirty steps, the same ones in every run."""
    number = 0

    class OneLife(Life):
        def make(self) -> Any:
            nonlocal number
            number += 1
            zones = [{"name": "default", "default": True}, {"name": "bulk", "recipient_domains": ["b.test"]}]
            return house_class(
                memory / str(number),
                zones=zones,
                retry={"jitter": 0, "life_h": 10_000},
                queue={"undo_s": 1e6, "keep_bounced_s": 1e6},
            )

    run_state_machine_as_test(
        OneLife,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),  # a life is short enough to be read as it is
        ),
    )
