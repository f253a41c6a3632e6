"""A fault of ours is told as one, to whoever asks: with a line in the log, and never as a mistake of theirs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.web.conftest import HttpDoor
from zonemta_py.cli.run.ask_queue import ask_queue
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.plugin.host import Host
from zonemta_py.queue import questions
from zonemta_py.queue.admin import answers
from zonemta_py.queue.questions.question import AnsweredBy, Question
from zonemta_py.web.dashboard.pages import zones


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    made = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {"http": {"dashboard": True}})
    yield made
    made.stop()


@pytest.fixture(params=[partial({}.__getitem__, "x"), partial(int, "x"), partial(len, 1)], ids=("key", "value", "type"))
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue fails to answer about accounts and standing."""

    async def fails(_: object, **__: Any) -> Any:
        request.param()

    def fail(question: Question[..., Any]) -> None:
        monkeypatch.setitem(answers.OF_QUEUE, question, AnsweredBy(question, fails))

    fail(questions.accounts)
    fail(questions.standing)


@pytest.mark.usefixtures("failing")
def test_an_operation_answers_500(door: HttpDoor, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = door.client.get("/v1/accounts")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:zonemta:problem:bug")
    assert answer.json()["detail"] == "accounts: the queue failed to answer, by a fault of its own; its log says where"
    assert "the question accounts failed" in caplog.text
    assert caplog.records[-1].exc_info, "with where it went wrong"


@pytest.mark.usefixtures("failing")
def test_a_command_ends_with_1(door: HttpDoor) -> None:
    with pytest.raises(CommandError, match=r"^accounts: the queue failed to answer") as error:
        ask_queue(door.folder, questions.accounts)
    assert error.value.code == Exit.PROBLEMS


@pytest.mark.usefixtures("failing")
def test_a_page_says_that_the_server_failed(door: HttpDoor) -> None:
    answer = logged_in(door).get("/dashboard/zones")
    assert answer.status_code == 500
    assert "its log says" in answer.text


def test_a_fault_of_a_page_is_not_its_readers(door: HttpDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "place", int)
    answer = logged_in(door).get("/dashboard/destinations?after=x")
    assert answer.status_code == 500
    assert "invalid literal" not in answer.text


def logged_in(door: HttpDoor) -> httpx.Client:
    client = httpx.Client(base_url=f"http://127.0.0.1:{door.port}", timeout=60)
    client.post("/dashboard/login", data={"key": door.token})
    return client
