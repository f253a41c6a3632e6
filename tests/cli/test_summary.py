"""`zonemta summary`: what was sent, what bounced and why, who sent it, and which limit held it, from the archive."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Served
from zonemta_py.cli.events import summary
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DELIVERED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

OK, NOBODY = Reply(250, "2.0.0", "ok"), Reply(550, "5.1.1", "no <eve@b.test> here")


async def put(queue: LocalQueue, user: str, *addresses: str) -> None:
    envelope = Envelope("ann@src.test", [Recipient(address) for address in addresses], size=9, user=user)
    await queue.accept(envelope, b"Subject: x\r\n\r\nx\r\n")


async def answer(queue: LocalQueue, verdict: int = DELIVERED, reply: Reply = OK) -> None:
    (delivery,) = await queue.lease(1)
    outcome = Outcome(verdict, reply, "rcpt", list(range(len(delivery.recipients))))
    await queue.settle(Result(delivery.lease, [outcome], remote="mx.test[192.0.2.9]:25", took_ms=5))
    await queue.core.disk.lines.stable()


@pytest.fixture
def mail(served: Callable[..., Served]) -> Served:
    """One recipient's mail was delivered, and one's has bounced; the segment is open."""
    one = served(zones=[{"name": "default", "default": True, "host": "mx.test"}])
    one.do(lambda queue: put(queue, "shop", "bob@a.test"))
    one.do(answer)
    one.do(lambda queue: put(queue, "news", "eve@b.test"))
    one.do(lambda queue: answer(queue, BOUNCED, NOBODY))
    return one


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(ran.out)["rows"]
    return found


def test_mail_of_the_last_day_is_counted_up_to_now(mail: Served, told: Callable[..., Ran]) -> None:
    """The running MTA closes its segment; afterwards the same is said without it."""
    found = rows(told("summary", "mail", "--by", "user,sender", "--json"))
    names = ("messages_accepted", "delivered", "bounced")
    sent = {(row["user"], row["sender"]): [row[name] for name in names] for row in found}
    assert sent == {("shop", "src.test"): [1, 1, 0], ("news", "src.test"): [1, 0, 1], ("", ""): [1, 0, 0]}, (
        "a notice too"
    )
    (one,) = rows(told("summary", "mail", "--json"))
    assert (one["attempts"], one["delivered"], one["bounced"], one["attempts_deferred"]) == (2, 1, 1, 0)
    mail.close()
    assert rows(told("summary", "mail", "--by", "user,sender", "--since", "2d", "--until", "0:00", "--json")) == []


def test_what_bounced_and_why(mail: Served, told: Callable[..., Ran]) -> None:
    (one,) = rows(told("summary", "replies", "--json"))
    assert (one["verdict"], one["class"], one["attempts"]) == ("bounced", "user-unknown", 1)
    assert one["example"] == "550 5.1.1 no <eve@b.test> here"
    table = told("summary", "replies").out
    assert "user-unknown" in table
    assert "no <eve@b.test> here" in table


def test_people_are_hidden_where_the_log_hides_them(
    mail: Served, told: Callable[..., Ran], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("conf") / "zonemta.toml"
    file.write_text(f'[server]\nfolder = "{tmp_path}"\n[log]\npersonal = "cut"\n')
    (one,) = rows(told("summary", "replies", "--config", file, "--json"))
    assert one["example"] == "550 5.1.1 no <…@b.test> here"
    found = rows(told("summary", "mail", "--by", "user", "--config", file, "--json"))
    assert {row["user"]: row["messages_accepted"] for row in found} == {"…": 2, "": 1}


def test_limits_say_for_how_long_they_held_mail(mail: Served, told: Callable[..., Ran]) -> None:
    async def wait(queue: LocalQueue) -> None:
        for seconds in (90, 30):
            queue.core.schedule.admission.waits.held("slow", seconds)
            queue.maintenance.note_waits()
        await queue.core.disk.journal.stable()

    mail.do(wait)
    (row,) = rows(told("summary", "limits", "--json"))
    assert row == {"limit": "slow", "held_s": 120, "reached": 2}
    assert "2 min" in told("summary", "limits").out


@pytest.mark.parametrize(
    "wrong",
    [
        ("mail", "--by", "user,source"), ("mail", "--by", "colour"), ("mail", "--day", "someday"),
        ("mail", "--day", "today", "--since", "2h"), ("mail", "--since", "1h", "--until", "2h"),
        ("replies", "--verdict", "delivered"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(mail: Served, told: Callable[..., Ran], wrong: tuple[str, ...]) -> None:
    ran = told("summary", *wrong)
    assert ran.code == Exit.USAGE
    assert ran.out == ""
    assert ran.err.count("\n") == 1


def test_a_folder_without_an_archive(zonemta: Callable[..., Ran], tmp_path: Path) -> None:
    ran = zonemta("summary", "mail", "--folder", tmp_path)
    assert ran.code == Exit.NO_INPUT
    assert "there is no archive yet" in ran.err


def test_bars_fit_a_terminal_of_80_columns(
    mail: Served, told: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "_drawn", lambda: True)
    assert "█" in told("summary", "mail", "--by", "hour").out
