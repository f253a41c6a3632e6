"""Pull zones beside a small model, through random lives: pushes, pulls, acknowledgements, time, stops, crashes.

The model has a list of messages in the order in which they came, and knows of each who has it or when it may be taken.
Whatever is pulled must be what the model would give, in its order. Only four recipients of a flow queue are kept in
memory here, so that shelves are read, left and read again all the time. MODEL_EXAMPLES=500 looks at more lives.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
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

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Delivery
from zonemta_py.schedule import pull_zone

EXAMPLES, STEPS = int(os.environ.get("MODEL_EXAMPLES", "15")), 40
PATIENCE_S = 60
QUEUES = {"jobs": "queue/jobs", "box": "box"}
EVER = 1 << 62


@dataclass
class Known:
    """A message. free_at: when it may be taken; worker: who has it, "" nobody; until: when that ends."""

    name: str
    data: bytes
    priority: int
    free_at: float
    worker: str = ""
    until: float = EVER
    out: Delivery | None = None


class Life(RuleBasedStateMachine):
    make: Callable[[], Any]

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.home = self.make()
        self.known: list[Known] = []
        self.stopped: set[str] = set()
        self.number = 0
        self._run(self.home.open())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(asyncio.wait_for(work, PATIENCE_S))

    @property
    def now(self) -> float:
        return float(self.home.clock.now_s)

    def _next(self, name: str) -> list[Known]:
        if name in self.stopped:
            return []
        free = [one for one in self.known if one.name == name and not one.worker and one.free_at <= self.now]
        return sorted(free, key=lambda one: -one.priority)  # the list is in order, and the sort is stable

    def _out(self, pick: int) -> Known:
        out = [one for one in self.known if one.worker]
        return out[pick % len(out)]

    def _back(self, one: Known, delay_s: float = 0) -> None:
        one.worker, one.until, one.out, one.free_at = "", EVER, None, self.now + delay_s

    # -- what may happen

    @rule(
        name=st.sampled_from(sorted(QUEUES)), count=st.integers(1, 7), priority=st.sampled_from((0, 0, 0, 3, -1)),
        delay_s=st.sampled_from((0, 0, 0, 50)),
    )  # fmt: skip
    def push(self, name: str, count: int, priority: int, delay_s: float) -> None:
        for _ in range(count):
            self.number += 1
            data = b"%d" % self.number
            envelope = Envelope("", [Recipient(f"{name}@queue")], len(data), protocol="PULL", sending_zone=name)
            envelope.priority = priority
            if delay_s:
                envelope.hold_until_ms, envelope.hold_for = self.home.clock.ms() + int(delay_s * 1000), True
            self._run(self.home.put_envelope(envelope, data))
            self.known.append(Known(name, data, priority, self.now + delay_s))

    @rule(
        name=st.sampled_from(sorted(QUEUES)), most=st.integers(1, 9), reserve_s=st.sampled_from((0, 0, 60)),
        worker=st.sampled_from("ab"),
    )  # fmt: skip
    def pull(self, name: str, most: int, reserve_s: float, worker: str) -> None:
        self._run(self.home.rest())
        found = self._run(self.home.queue.pull(name, most, reserve_s, 0, worker=worker))
        expected = self._next(name)[:most]
        assert [one.body for one in found] == [one.data for one in expected]
        for one, delivery in zip(expected, found, strict=True):
            one.out, one.worker = delivery, "reserved" if reserve_s else worker
            one.until = self.now + reserve_s if reserve_s else EVER

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def peek(self, name: str) -> None:
        self._run(self.home.rest())
        found = self._run(self.home.queue.peek(name, 3))
        assert [one.body for one in found][:1] == [one.data for one in self._next(name)][:1]

    @precondition(lambda self: any(one.worker for one in self.known))
    @rule(pick=st.integers(0, 99), how=st.sampled_from(("ack", "ack", "nack", "delay", "abandon", "extend")))
    def tell(self, pick: int, how: str) -> None:
        one = self._out(pick)
        assert one.out is not None
        number, message_id, queue = one.out.lease, one.out.id, self.home.queue
        if how == "extend":
            assert self._run(queue.extend(number, message_id, 60))
            one.worker, one.until = "reserved", self.now + 60
        elif how == "ack":
            assert self._run(queue.ack(number, message_id))
            self.known.remove(one)
        elif how == "abandon":
            assert self._run(queue.abandon(number, message_id))
            self._back(one)
        else:
            assert self._run(queue.nack(number, message_id, 50 if how == "delay" else 0))
            self._back(one, 50 if how == "delay" else 0)
        if how != "extend":
            assert not self._run(queue.ack(number, message_id))

    @rule(worker=st.sampled_from("ab"))
    def connection_lost(self, worker: str) -> None:
        self._run(self._lose(worker))
        for one in self.known:
            if one.worker == worker:
                self._back(one)

    async def _lose(self, worker: str) -> None:
        self.home.queue.lost(worker)
        await self.home.rest()

    @rule(seconds=st.sampled_from((1, 30, 70)))
    def time_passes(self, seconds: int) -> None:
        self._run(self.home.move(seconds))
        self._run(self.home.rest())
        for one in self.known:
            if one.until <= self.now:
                self._back(one)

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def stop_or_lift(self, name: str) -> None:
        zone = QUEUES[name]
        if zone in self.home.queue.core.schedule.zones:
            order = "lift" if name in self.stopped else "stop"
            self._run(self.home.queue.ask(order, kind="zone", name=zone))
            self.stopped ^= {name}

    @rule()
    def position_and_sweep(self) -> None:
        self._run(self.home.queue.position())
        self._run(self.home.queue.sweep())

    @rule(power=st.booleans(), seed=st.integers(0, 1 << 32))
    def crash(self, power: bool, seed: int) -> None:
        self._run(self.home.crash(power=power, die=random.Random(seed)))
        for one in self.known:
            if one.worker:
                self._back(one)

    # -- what must hold

    @invariant()
    def the_counts_are_the_models(self) -> None:
        self._run(self.home.rest())
        rows = {row["queue"]: row for row in self._run(self.home.queue.ask("queues"))}
        for name in QUEUES:
            row = rows.get(name, {"ready": 0, "delayed": 0, "leased": 0})
            here = [one for one in self.known if one.name == name]
            out = sum(bool(one.worker) for one in here)
            assert (row["ready"] + row["delayed"], row["leased"]) == (len(here) - out, out)

    async def _end(self) -> None:
        await self.home.sound()
        self.home.abandon()

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self._run(self._end())
            self.runner.close()


def test_any_life_of_a_queue_is_the_models(house_class: Any, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen lives of forty steps, the same ones in every run."""
    monkeypatch.setattr(pull_zone, "KEPT", 4)
    monkeypatch.setattr(pull_zone, "LOW", 1)
    number = 0

    class OneLife(Life):
        def make(self) -> Any:
            nonlocal number
            number += 1
            zones = [{"name": "default", "default": True}, {"name": "box", "delivery": "pull"}]
            return house_class(memory / str(number), zones=zones, retry={"jitter": 0})

    run_state_machine_as_test(
        OneLife,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),
        ),
    )  # fmt: skip
