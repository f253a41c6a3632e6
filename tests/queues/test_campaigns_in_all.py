"""Campaigns whose mail is in three queues, as real processes: what is decided about one is decided by the figures of
all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from survival.rig import Mta

from tests.queues.processes import QUEUES, killed, running, until
from zonemta_py.disk.keys import queue_of
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queues import layout
from zonemta_py.queues.client import Queues
from zonemta_py.queues.placement import Placement
from zonemta_py.wire import SOCKET
from zonemta_py.wire.blocking_client import ask_at

TEMPLATE = prepare(
    TemplateSource("t", Text("Hello {{ name }}"), Text("news@src.test"), text=Text("Hi {{ name }}\n"))
).pack()


async def put(mta: Mta, name: str, **more: Any) -> None:
    await asyncio.to_thread(
        mta.ask, "campaign-put", name=name, sender="news@src.test", template=TEMPLATE, zone="default", **more
    )


async def batches(queues: Queues, campaign: str, people: list[str], each: int = 5) -> set[int]:
    """The queues that have taken them."""
    found = set[int]()
    for at in range(0, len(people), each):
        rows = [Recipient(address, values=[address]) for address in people[at : at + each]]
        key = f"{campaign}-{people[at]}"
        envelope = Envelope("", rows, columns=["name"], campaign=campaign, request=key)
        found.add(queue_of(await accepted(queues, envelope)))
    return found


async def accepted(queues: Queues, envelope: Envelope) -> str:
    """Tried again like any client does."""
    for _ in range(100):
        try:
            return (await queues.accept(envelope, b"")).id
        except QueueRefusal as refusal:
            if refusal.reply.code != 451:
                raise
        await asyncio.sleep(0.2)
    raise AssertionError("it was not taken")


def parts(mta: Mta, campaign: str) -> list[dict[str, Any]]:
    """What each queue says of it."""
    return [
        ask_at(layout.folder_of(mta.folder, number) / SOCKET, "campaign", name=campaign) for number in range(QUEUES)
    ]


async def row(mta: Mta, campaign: str) -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(mta.ask, "campaign", name=campaign)
    return found


def people(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}@site{number % 7}.test" for number in range(count)]


async def test_a_campaign_is_in_all_and_is_suspended_by_the_sum_of_its_figures(tmp_path: Path) -> None:
    """No queue alone has seen as many attempts as its bounds ask for."""
    async with running(tmp_path) as (mta, _, _client):
        queues = Queues(mta.folder, Placement(range(QUEUES)), "test")
        await put(mta, "spring", bounds={"least": 100, "bounced": 0.2})
        addresses = [one for pair in zip(people("u", 60), people("gone-", 60), strict=True) for one in pair]
        assert await batches(queues, "spring", addresses) == set(range(QUEUES))
        await until(lambda: mta.ask("campaign", name="spring")["state"] == "paused")
        found = await row(mta, "spring")
        assert "attempts bounced" in found["cause"]
        assert "the bound is 20.0%" in found["cause"]
        assert found["delivered"] + found["bounced"] == 120 == found["accepted"]
        each = parts(mta, "spring")
        assert [one["state"] for one in each] == ["paused"] * QUEUES
        assert max(one["delivered"] + one["bounced"] for one in each) < 100
        # What has failed before counts no more once it is resumed; a queue that was killed knows it.
        await asyncio.to_thread(mta.ask, "campaign-resume", name="spring")
        await killed(mta, "queue-2")
        await batches(queues, "spring", people("more", 30))
        await asyncio.to_thread(mta.ask, "campaign-complete", name="spring")
        await until(lambda: mta.ask("campaign", name="spring")["state"] == "ended")
        assert (await row(mta, "spring"))["delivered"] == 90


async def test_the_best_variant_is_chosen_by_the_sum_of_its_figures(tmp_path: Path) -> None:
    """In some queue the other one looks better."""
    async with running(tmp_path) as (mta, _, _client):
        queues = Queues(mta.folder, Placement(range(QUEUES)), "test")
        for name in ("a", "b"):
            await put(mta, name)
        choice = {"of": ["a", "b"], "metric": "bounced", "after_h": 2 / 3600}
        await put(mta, "rest", choice=choice)
        assert await batches(queues, "rest", people("r", 60)) == set(range(QUEUES))
        await batches(queues, "a", people("u", 40) + people("gone-", 20))
        await batches(queues, "b", people("v", 50) + people("gone-b", 10))
        await until(lambda: mta.ask("campaign", name="rest")["variants"]["winner"] != "")
        found = await row(mta, "rest")
        assert found["variants"]["winner"] == "b"
        assert {one["variants"]["winner"] for one in parts(mta, "rest")} == {"b"}
        await until(lambda: mta.ask("campaign", name="rest")["delivered"] == 60)
        shares = {one["name"]: (one["hits"], one["of"]) for one in found["variants"]["figures"]}
        assert shares["b"][0] / shares["b"][1] < shares["a"][0] / shares["a"][1]


async def test_its_time_is_over_in_all_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as (mta, _, _client):
        queues = Queues(mta.folder, Placement(range(QUEUES)), "test")
        until_ = (datetime.now(UTC) + timedelta(seconds=15)).isoformat(timespec="seconds")
        await put(mta, "short", hours={"until": until_})
        await asyncio.to_thread(mta.ask, "campaign-pause", name="short")
        assert await batches(queues, "short", people("u", 40)) == set(range(QUEUES))
        await until(lambda: mta.ask("campaign", name="short")["state"] == "canceled", 90)
        await until(lambda: mta.ask("campaign", name="short")["waiting"] == 0)
        found = await row(mta, "short")
        assert (found["removed"], found["delivered"], found["cause"]) == (40, 0, f"it was to go until {until_}")
