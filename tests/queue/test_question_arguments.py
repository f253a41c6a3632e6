"""A question that is worded wrongly is refused with a sentence; whatever else it raises is a fault of ours."""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import StoreFailed
from zonemta_py.queue import questions
from zonemta_py.queue.admin import answers
from zonemta_py.queue.api import QueueFault, QueueRefusal
from zonemta_py.queue.questions.question import AnsweredBy, Question
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue

TABLES: tuple[dict[str, AnsweredBy], ...] = (answers.OF_QUEUE, answers.OF_CAMPAIGNS, answers.OF_PULLS, answers.OF_TASKS)
ALL = [one for one in vars(questions).values() if isinstance(one, Question)]
LAST = ("rotate", "backup", "reload", "drain", "adopt", "stable")
"""These do more than answer; their arguments are looked at alone."""
JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1.5, float("nan"), "", "x", "\0", "\ud800", "a@b.test", "0" * 16, b"\xff", [], ["x"],
    [[]], [None], [{}], {}, {"x": 1}, {"id": []}, [{"address": 1}], {"state": "x"},
)  # fmt: skip
ERRORS = (
    TypeError("x"), KeyError("x"), OSError(5, "x"), ValueError("x"), "\ud800".encode, partial(int, "x"),
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


def test_each_question_is_answered_once() -> None:
    assert sorted(name for table in TABLES for name in table) == sorted({str(one) for one in ALL})


@pytest.mark.parametrize("one", [one for table in TABLES for one in table.values()], ids=lambda one: one.question)
def test_the_answer_has_the_defaults_that_its_question_says(one: AnsweredBy) -> None:
    takes = inspect.signature(one.function).parameters
    for argument in one.question.takes.parameters.values():
        if argument.kind == argument.KEYWORD_ONLY and argument.name in takes:
            assert takes[argument.name].default == argument.default, argument.name
        assert argument.kind in (argument.KEYWORD_ONLY, argument.VAR_KEYWORD), "it is asked with names"


@pytest.mark.parametrize("question", [one for one in ALL if one not in LAST])
def test_no_wording_of_a_question_is_a_fault(
    loop: asyncio.AbstractEventLoop, queue: LocalQueue, question: Question[..., Any]
) -> None:
    arguments = question.takes.parameters.values()
    names = [one.name for one in arguments if one.kind == one.KEYWORD_ONLY]
    needed = [one.name for one in arguments if one.kind == one.KEYWORD_ONLY and one.default is one.empty]

    async def all_of_them() -> None:
        for name in [*names, "more"]:
            for junk in JUNK:
                wording = dict.fromkeys(needed, "x") | {name: junk}
                try:
                    await queue.ask(question, **wording)
                except QueueFault as fault:
                    raise AssertionError(wording) from fault
                except (ValueError, QueueRefusal):
                    pass

    loop.run_until_complete(all_of_them())


@pytest.mark.parametrize("error", ERRORS)
def test_a_fault_of_ours_is_logged_and_is_none_of_whom_asks(
    loop: asyncio.AbstractEventLoop, queue: LocalQueue, error: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def fails(_: object) -> Any:
        if isinstance(error, Exception):
            raise error
        return error()

    monkeypatch.setitem(answers.OF_QUEUE, "accounts", AnsweredBy(questions.accounts, fails))
    with caplog.at_level(logging.ERROR), pytest.raises(QueueFault, match="accounts: the queue failed to answer"):
        loop.run_until_complete(queue.ask(questions.accounts))
    assert any(record.exc_info for record in caplog.records)
    assert "accounts" in caplog.text


def test_a_disk_that_does_not_give_it_is_no_mistake_of_whom_asks(
    loop: asyncio.AbstractEventLoop, queue: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: object) -> Any:
        raise StoreFailed("No space left on device: free some")

    monkeypatch.setitem(answers.OF_QUEUE, "accounts", AnsweredBy(questions.accounts, fails))
    with pytest.raises(QueueRefusal, match=r"^452 4\.3\.1 No space left on device: free some$") as refused:
        loop.run_until_complete(queue.ask(questions.accounts))
    assert not isinstance(refused.value, QueueFault)
