"""A question that is worded wrongly is refused with a sentence; whatever else it raises is a fault of ours."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.queue.admin import answers, arguments
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue

TABLES = (answers.QUESTIONS, answers.OF_CAMPAIGNS, answers.OF_PULLS, answers.OF_TASKS)
LAST = ("rotate", "backup", "reload", "drain", "adopt", "stable")
"""These do more than answer; their arguments are looked at alone."""
JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1.5, float("nan"), "", "x", "\0", "\ud800", "a@b.test", "0" * 16, b"\xff", [], ["x"],
    [[]], [None], [{}], {}, {"x": 1}, {"id": []}, [{"address": 1}], {"state": "x"},
)  # fmt: skip


@pytest.fixture(scope="module")
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def queue(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> LocalQueue:
    config = Config.model_validate(
        {"server": {"folder": tmp_path_factory.mktemp("q") / "queue"}, "queue": {"reserve_bytes": 0}}
    )
    return loop.run_until_complete(open_queue(config))


def asked(question: str, given: int) -> tuple[list[str], list[str]]:
    table = next(one for one in TABLES if question in one)
    names, needed, _, _ = arguments._taken(table[question], given)
    return names, needed


@pytest.mark.parametrize(
    ("question", "given"), [(one, 1 + (table is not TABLES[0])) for table in TABLES for one in table if one not in LAST]
)
def test_no_wording_of_a_question_is_a_fault(
    loop: asyncio.AbstractEventLoop, queue: LocalQueue, question: str, given: int
) -> None:
    names, needed = asked(question, given)

    async def all_of_them() -> None:
        for name in [*names, "more"]:
            for junk in JUNK:
                wording = dict.fromkeys(needed, "x") | {name: junk}
                with suppress(ValueError, QueueRefusal):
                    await queue.ask(question, **wording)

    loop.run_until_complete(all_of_them())
