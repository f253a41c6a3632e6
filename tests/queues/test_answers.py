"""The answers of several queues as one: every question has its way, and three queues answer as one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queue import declared
from tests.queues.conftest import envelope
from zonemta_py.mail.reply import Reply
from zonemta_py.metrics.table import METRICS
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import Refused
from zonemta_py.queues.answers import TABLE
from zonemta_py.queues.joined.sizes import GAUGES

Make = Callable[..., Any]
WAYS = {"sum", "pages", "the one", "any one", "order", "first", "each"}


def test_every_question_has_its_way() -> None:
    assert TABLE.keys() == declared.ALL.keys()
    assert {way.how for way in TABLE.values()} == WAYS
    assert all(str(way.question) == name for name, way in TABLE.items())


def test_every_gauge_has_its_way() -> None:
    assert GAUGES.keys() == {one.name for one in METRICS.values() if one.kind == "gauge"}


async def test_a_message_is_asked_about_where_it_is(three_and_one: Make) -> None:
    three, _ = await three_and_one()
    ids = [await three.put_envelope(envelope(f"bob@d{number}.test")) for number in range(9)]
    assert {int(id, 16) % 1024 for id in ids} == {0, 1, 2}
    for id in ids:
        assert (await three.ask("show", id=id))["id"] == id
        assert [row["id"] for row in (await three.ask("explain", what=id))["rows"]] == [id]
    with pytest.raises(Refused, match=r"there is no message '0000000000000000'"):
        await three.ask("show", id="0" * 16)


async def test_half_a_sum_is_none(three_and_one: Make) -> None:
    """A queue that cannot answer is named; if none can, and all for the same reason, that is said once."""
    three, _ = await three_and_one()
    asks = three.merged._queues.asks
    away = QueueRefusal(Reply(451, "4.3.0", "it is away"))

    async def gone(*_: Any, **__: Any) -> Any:
        raise away

    asks[1] = gone
    with pytest.raises(QueueRefusal, match=r"^451 4.3.0 queue 1: it is away$"):
        await three.ask("size")
    assert await three.ask("suppressions") == {"rows": [], "next": None}
    for number in (0, 2):
        asks[number] = gone
    with pytest.raises(QueueRefusal, match=r"^451 4.3.0 it is away$"):
        await three.ask("size")


async def test_what_is_wrong_with_a_question_is_said_once(three_and_one: Make) -> None:
    three, _ = await three_and_one()
    with pytest.raises(Refused, match=r"^nothing is counted by 'colour'; use"):
        await three.ask("sizes", by="colour")
    with pytest.raises(Refused, match=r"no queue knows the question 'why'"):
        await three.ask("why")
    with pytest.raises(Refused, match=r"about the files of one queue"):
        await three.ask("stable")
