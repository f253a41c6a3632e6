"""`zonemta log` and `zonemta journal follow`: what the journal says of mail, also while it is written."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Served
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DELIVERED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue


async def put(queue: LocalQueue, *addresses: str) -> str:
    recipients = [Recipient(address) for address in addresses]
    return (await queue.accept(Envelope("ann@src.test", recipients, size=9), b"Subject: x\r\n\r\nx\r\n")).id


OK, NOBODY = Reply(250, "2.0.0", "ok"), Reply(550, "5.1.1", "no <eve@b.test>")


async def answer(queue: LocalQueue, verdict: int = DELIVERED, reply: Reply = OK) -> None:
    (delivery,) = await queue.lease(1)
    outcome = Outcome(verdict, reply, "dot", list(range(len(delivery.recipients))))
    await queue.settle(Result(delivery.lease, [outcome], remote="mx.test[192.0.2.9]:25", took_ms=5))
    await queue.core.disk.lines.stable()


@pytest.fixture
def mail(served: Callable[..., Served]) -> Served:
    """A queue in which one message was delivered and one has bounced."""
    one = served(zones=[{"name": "default", "default": True, "host": "mx.test"}])
    one.do(lambda queue: put(queue, "bob@a.test"))
    one.do(answer)
    one.do(lambda queue: put(queue, "eve@b.test"))
    one.do(lambda queue: answer(queue, BOUNCED, NOBODY))
    return one


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_the_journal_gives_the_lines_of_the_log(mail: Served, told: Callable[..., Ran]) -> None:
    """Acceptance and answer, with what the records say of each."""
    found = rows(told("log", "--json"))
    assert [(row["message"], row.get("verdict")) for row in found[:4]] == [
        ("accepted", None), ("answered", "delivered"), ("accepted", None), ("answered", "bounced"),
    ]  # fmt: skip
    wanted = {
        "logger": "mail", "level": "info", "zone": "default", "recipient": "eve@b.test", "sender": "ann@src.test",
        "code": 550, "enhanced": "5.1.1", "class": "user-unknown", "stage": "dot", "took_ms": 5,
        "remote": "mx.test[192.0.2.9]:25", "text": "no <eve@b.test>", "id": found[2]["id"],
    }  # fmt: skip
    assert wanted.items() <= found[3].items()
    assert " INFO mail: answered id=" in told("log").out


def test_what_has_just_been_accepted_is_there(mail: Served, told: Callable[..., Ran]) -> None:
    """Whoever hands mail in and asks at once is not told that there is nothing."""
    for number in range(3):
        id = mail.do(lambda queue, number=number: put(queue, f"r{number}@c.test"))
        assert [row["to"] for row in rows(told("log", "--json", "--message", id))] == [f"r{number}@c.test"]


def test_lines_are_chosen(mail: Served, told: Callable[..., Ran]) -> None:
    """By message, part of an address, verdict, class of the reply, time."""
    everything = rows(told("log", "--json"))
    one = everything[0]["id"]
    assert {row["id"] for row in rows(told("log", "--json", "--message", one))} == {one}
    assert {row["id"] for row in rows(told("log", "--json", "--address", "BOB@"))} == {one}
    assert [row["verdict"] for row in rows(told("log", "--json", "--verdict", "bounced"))] == ["bounced"]
    assert [row["class"] for row in rows(told("log", "--json", "--class", "user-unknown"))] == ["user-unknown"]
    assert "no class 'gone'; use one of user-unknown, " in told("log", "--class", "gone").err
    for since, back in (([], "in the last 100 records; --since 1d looks"), (["--since", "1h"], "since 20")):
        nothing = told("log", "--json", "--zone", "other", *since)
        assert (nothing.code, nothing.out, nothing.err.startswith(f"zonemta: nothing of that {back}")) == (0, "", True)
    assert "'bounce' is not one of 'delivered'" in told("log", "--verdict", "bounce").err
    later = rows(told("log", "--json", "--since", "1h"))  # maybe with the notice of the bounce
    assert later[: len(everything)] == everything


def test_personal_data_is_hidden_as_in_the_log(
    mail: Served, zonemta: Callable[..., Ran], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As the configuration says."""
    config = tmp_path_factory.mktemp("config") / "c.toml"
    config.write_text(f'[server]\nfolder = "{tmp_path}"\n[log]\npersonal = "cut"\nformat = "json"\n')
    found = rows(zonemta("log", "--config", config))
    assert found[1]["recipient"] == "…@a.test"
    assert found[3]["text"] == "no <…@b.test>"


@pytest.fixture
def following(mail: Served, tmp_path: Path) -> Iterator[Callable[..., Iterator[str]]]:
    """following("log", "--follow") → the lines that it prints."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Iterator[str]:
        command = [sys.executable, "-m", "zonemta_py", *arguments, "--folder", str(tmp_path)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert running[-1].stdout is not None
        return iter(running[-1].stdout)

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_what_happens_is_shown_as_it_happens(
    mail: Served, served: Callable[..., Served], following: Callable[..., Iterator[str]]
) -> None:
    """By both commands, after what was before; also when the journal's segment is closed, and the queue restarts."""
    log, records = (
        following("log", "--follow", "--json"),
        following("journal", "follow", "--json", "--type", "delivery"),
    )
    before = [json.loads(next(log))["message"] for _ in range(4)]
    assert before == ["accepted", "answered", "accepted", "answered"]
    assert [json.loads(next(records))["type"] for _ in range(2)] == ["delivery"] * 2
    notice = json.loads(next(log))  # the bounce's notification, which nobody takes
    assert notice["by"] == "LOCAL"
    mail.do(lambda queue: queue.ask("rotate"))
    message = mail.do(lambda queue: put(queue, "late@a.test"))
    assert json.loads(next(log))["id"] == message
    while True:
        mail.do(answer)
        row = json.loads(next(records))
        if row["body"]["id"] == message:
            break
    while True:
        line = json.loads(next(log))
        if line["id"] == message:
            break
    assert (line["recipient"], line["verdict"]) == ("late@a.test", "delivered")
    mail.close()
    again = served(zones=[{"name": "default", "default": True, "host": "mx.test"}])
    message = again.do(lambda queue: put(queue, "later@a.test"))
    while json.loads(next(log))["id"] != message:
        pass


@pytest.mark.parametrize("command", [("journal", "follow"), ("log", "--follow")])
def test_it_ends_with_its_reader(mail: Served, tmp_path: Path, command: tuple[str, ...]) -> None:
    """`| head`: soon, and without a word, though nothing more happens."""
    whole = [sys.executable, "-m", "zonemta_py", *command, "--folder", str(tmp_path)]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdout.readline()
            process.stdout.close()
            assert (process.wait(60), process.stderr.read()) == (0, b"")
        finally:
            process.kill()


def test_a_folder_without_a_journal_is_said_so(zonemta: Callable[..., Ran], tmp_path: Path) -> None:
    for command in (("log",), ("journal", "follow")):
        ran = zonemta(*command, "--folder", tmp_path)
        assert (ran.code, "contains no journal" in ran.err) == (66, True)


def test_who_has_sent(served: Callable[..., Served], told: Callable[..., Ran]) -> None:
    """Counted from the journal: by login and tenant, also of answers, by site and class; also lines of one alone."""
    one = served(zones=[{"name": "default", "default": True, "host": "mx.test"}])

    async def put_for(queue: LocalQueue) -> None:
        for user, tenant, many in (("ann", "a", 1), ("eve", "b", 20)):
            recipients = [Recipient(f"{user}{number}@{tenant}.test") for number in range(many)]
            envelope = Envelope("x@src.test", recipients, size=9, user=user, tenant=tenant)
            await queue.accept(envelope, b"Subject: x\r\n\r\nx\r\n")

    one.do(put_for)
    one.do(answer)
    one.do(lambda queue: answer(queue, BOUNCED, NOBODY))

    def counted(*words: str) -> list[dict[str, Any]]:
        ran = told("log", "--since", "1h", *words, "--json")
        assert (ran.code, ran.err) == (0, "")
        return list(json.loads(ran.out))

    eve, ann = [row for row in counted("--count-by", "user") if row["user"]]  # and a notice about the bounce
    assert (eve["user"], eve["messages"], eve["accepted"], eve["delivered"] + eve["bounced"]) == ("eve", 1, 20, 20)
    assert (ann["user"], ann["messages"], ann["accepted"], ann["delivered"] + ann["bounced"]) == ("ann", 1, 1, 1)
    assert [row["tenant"] for row in counted("--count-by", "tenant", "--user", "ann")] == ["a"]
    (row,) = counted("--count-by", "class", "--verdict", "bounced")
    assert (row["class"], row["bounced"]) == ("user-unknown", row["bounced"])
    assert {row["domain"] for row in counted("--count-by", "domain")} == {"a.test", "b.test"}
    assert [row["site"] for row in counted("--count-by", "site")] == ["mx.test:25"]
    lines = rows(told("log", "--since", "1h", "--tenant", "a", "--json"))
    assert [row["message"] for row in lines] == ["accepted", "answered"]
    assert "eve" in told("log", "--since", "1h", "--count-by", "user").out
    assert "add --count-by" in told("log", "--csv").err
    assert "leave one" in told("log", "--count-by", "user", "--follow").err
