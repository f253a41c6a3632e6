"""Orders about many recipients: counted first, asked about, followed, undone; with a real queue and real terminals."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.filters import chosen
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.admin import answers
from zonemta_py.queue.api import BOUNCED, Outcome, Result
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.tasks.sweep import WAIT, TaskSweep

ZONES = [{"name": "default", "default": True}, {"name": "bulk", "recipient_domains": ["z.org"]}]
BODY = b"Subject: Hello\r\n\r\nHi\r\n"
COMMAND = [sys.executable, "-m", "zonemta_py"]
Told = Callable[..., Any]


@pytest.fixture
def queue(served: Callable[..., Any]) -> Any:
    """30 recipients at x.org, of two senders; two at z.org, whose zone is bulk."""
    made = served(zones=ZONES)

    async def put(queue: LocalQueue) -> list[str]:
        ids = []
        for sender, addresses in (
            ("ann@example.com", [f"u{number}@x.org" for number in range(20)]),
            ("shop@example.com", [f"v{number}@x.org" for number in range(10)]),
            ("ann@example.com", ["a@z.org", "b@z.org"]),
        ):
            envelope = Envelope(sender, [Recipient(one) for one in addresses], len(BODY), headers={"subject": "Hello"})
            ids.append((await queue.accept(envelope, BODY)).id)
        return ids

    made.ids = made.do(put)
    return made


def states(told: Told) -> dict[str, int]:
    found: dict[str, int] = {}
    for options in ((), ("--state", "deleted")):  # which is asked for by name alone
        for row in json.loads(told("queue", "list", "--json", *options).out)["rows"]:
            found[row["state"]] = found.get(row["state"], 0) + 1
    return found


def test_a_dry_run_changes_nothing(queue: Any, told: Told) -> None:
    """The exact count, examples and zones, in every form."""
    ran = told("queue", "delete", "--sender", "ann@*", "--dry-run")
    assert ran.code == Exit.OK
    assert ran.out.startswith("delete: from ann@*: 22 recipients, of which 10:")
    assert "zone bulk: 2; zone default: 20" in ran.out
    assert ran.out.endswith("nothing was changed\n")
    row = json.loads(told("queue", "delete", "--sender", "ann@*", "--dry-run", "--json").out)
    assert (row["state"], row["count"]) == ("previewed", 22)
    plain = told("queue", "delete", "--zone", "bulk", "-n", "--plain")
    assert sorted(line.split("\t")[1] for line in plain.out.splitlines()) == ["a@z.org", "b@z.org"]
    nobody = told("queue", "delete", "--sender", "nobody@*", "--dry-run")
    assert nobody.out == "delete: from nobody@*: no recipients match; nothing was changed\n"
    assert states(told) == {"queued": 32}


def test_many_are_not_changed_without_a_word(queue: Any, told: Told) -> None:
    """Without a terminal and without --yes: refused, with how many they are. A few are changed at once."""
    ran = told("queue", "delete", "--domain", "x.org")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "delete: domain x.org: 30 recipients; add --yes" in ran.err
    assert states(told) == {"queued": 32}
    ran = told("queue", "delete", queue.ids[2])
    assert ran.code == Exit.OK
    assert ran.out.startswith("2 recipients are deleted\nundo: zonemta task undo ")
    assert states(told) == {"queued": 30, "deleted": 2}


def test_an_order_and_its_undoing(queue: Any, told: Told) -> None:
    """Its last line is a command that puts everything back."""
    ran = told("queue", "hold", "--domain", "x.org", "--yes", "--because", "wrong link")
    assert ran.code == Exit.OK
    assert ran.out.startswith("30 recipients are held\n")
    assert states(told) == {"queued": 2, "held": 30}
    (row,) = json.loads(told("task", "list", "--json").out)
    assert (row["verb"], row["cause"], row["done"]) == ("hold", "wrong link", 30)
    assert row["by"].startswith("user ")
    shown = told("task", "show", row["id"]).out
    assert "hold: domain x.org" in shown
    assert "wrong link" in shown
    assert "hold: domain x.org" in told("task", "list").out
    undo = next(line for line in ran.out.splitlines() if line.startswith("undo: zonemta ")).split()[2:5]
    again = told(*undo)
    assert again.out == f"30 of 30 recipients are as they were before task {row['id']}\n"
    assert "held" not in states(told)
    assert told(*undo).code == Exit.DATA


def test_each_verb(queue: Any, told: Told) -> None:
    """Move, set, release, flush, requeue and purge, each with a filter of its own."""
    assert "2 recipients are moved" in told("queue", "move", "--zone", "bulk", "--to", "default").out
    assert {row["zone"] for row in json.loads(told("queue", "list", "--json").out)["rows"]} == {"default"}
    assert "10 recipients are changed" in told("queue", "set", "--sender", "shop@*", "--set-priority", "3").out
    assert "10 recipients" in told("queue", "hold", "--priority", "3", "-n").out
    kept = told("queue", "hold", "--priority", "3").out
    assert "10 recipients are held" in kept
    held = json.loads(told("queue", "list", "--state", "held", "--json").out)["rows"][0]["id"]
    dropped = told("queue", "drop", held).out
    assert "10 recipients are deleted" in dropped
    assert "as they were before task" in told(*dropped.splitlines()[1].split()[2:5]).out
    assert "10 recipients are released" in told("queue", "release", "--state", "held").out
    assert "0 of 10 recipients are as they were" in told(*kept.splitlines()[1].split()[2:5]).out
    assert "are tried now" in told("queue", "flush", "--all", "--yes").out
    assert "are queued again" in told("queue", "requeue", queue.ids[1]).out
    assert "32 recipients are purged" in told("queue", "purge", "default", "--yes").out
    assert states(told) == {"deleted": 32}


def test_what_has_bounced_is_queued_again(served: Callable[..., Any], told: Told) -> None:
    """Listed by its state alone, counted first, and put back by an undo."""
    queue = served(queue={"keep_bounced_s": 600})

    async def bounce(queue: LocalQueue) -> None:
        envelope = Envelope("", [Recipient("u@x.org")], len(BODY), headers={"subject": "Hello"})
        await queue.accept(envelope, BODY)
        (delivery,) = await asyncio.wait_for(queue.lease(1), 60)
        reply = Reply(550, "5.7.1", "their filter")
        await queue.settle(Result(delivery.lease, [Outcome(BOUNCED, reply, "dot", [0])]))
        await queue.core.disk.lines.stable()

    queue.do(bounce)
    assert states(told) == {}
    (row,) = json.loads(told("queue", "list", "--state", "bounced", "--json").out)["rows"]
    assert (row["recipient"], row["last"]) == ("u@x.org", "550 5.7.1 their filter")
    counted = told("queue", "requeue", "--state", "bounced", "--dry-run")
    assert "1 recipient" in counted.out
    assert "the sender may already have a bounce" in counted.out + counted.err
    assert "it has bounced" in told("explain", "u@x.org").out
    assert "can only be queued again" in told("queue", "delete", "--state", "bounced").err
    assert "1 recipient is queued again" in told("queue", "requeue", "--state", "bounced").out
    assert states(told) == {"deferred": 1}
    rows = json.loads(told("task", "list", "--json").out)
    (task,) = [row for row in rows if row["state"] == "undoable"]
    assert told("task", "undo", task["id"]).code == Exit.OK
    assert states(told) == {}
    assert "bounced" in told("status").out


def test_ids_from_stdin(queue: Any, zonemta: Told, tmp_path: Path) -> None:
    """As other programs print them, a line each; without any, nothing is changed."""
    ran = zonemta("queue", "hold", "-", "--yes", "--folder", tmp_path, stdin=f"{queue.ids[2]}\n".encode())
    assert ran.out.startswith("2 recipients are held\n")
    ran = zonemta("queue", "hold", "-", "--yes", "--folder", tmp_path)
    assert (ran.code, "no ids on stdin" in ran.err) == (Exit.DATA, True)


def test_sizes_by_state(queue: Any, told: Told) -> None:
    """What is deleted and can be put back is counted, too."""
    told("queue", "delete", "--zone", "bulk")
    lines = [line.split() for line in told("queue", "size").out.splitlines()]
    assert ["zone", "queued", "leased", "deferred", "held", "deleted", "kept", "bounces"] in lines
    assert ["all", "30", "0", "0", "0", "2", "0"] in lines
    assert ["z.org", "0", "0", "0", "0", "2", "0"] in lines


def test_the_oldest_first(queue: Any, told: Told) -> None:
    """In all zones and states together, asked for or not; of named messages, too."""
    told("queue", "hold", queue.ids[1])
    rows = json.loads(told("queue", "list", "--order", "age", "--json").out)["rows"]
    assert [row["id"] for row in rows] == [*[queue.ids[0]] * 20, *[queue.ids[1]] * 10, *[queue.ids[2]] * 2]
    assert json.loads(told("queue", "list", "--json").out)["rows"] == rows
    named = [word for id in (queue.ids[2], queue.ids[0]) for word in ("--id", id)]
    rows = json.loads(told("queue", "list", "--order", "age", *named, "--json").out)["rows"]
    assert [row["id"] for row in rows] == [*[queue.ids[0]] * 20, *[queue.ids[2]] * 2]


def test_pages_go_on_while_orders_move_what_they_list(queue: Any, told: Told) -> None:
    """Held, released, moved and flushed between two pages: each once, in the order of their coming."""
    found, after = list[tuple[str, str]](), ""
    orders = iter([("hold", "--domain", "z.org"), ("hold", queue.ids[0]), ("release", "--domain", "x.org"),
                   ("move", queue.ids[1], "--to", "bulk"), ("flush", queue.ids[0])])  # fmt: skip
    while after is not None:
        page = json.loads(told("queue", "list", "--limit", "6", "--after", after, "--json").out)
        found += [(row["id"], row["recipient"]) for row in page["rows"]]
        after = page["next"]
        if order := next(orders, None):
            assert told("queue", order[0], *order[1:], "--yes").code == Exit.OK
    assert found == sorted(set(found))
    assert [id for id, _ in found] == [*[queue.ids[0]] * 20, *[queue.ids[1]] * 10, *[queue.ids[2]] * 2]
    refused = told("queue", "list", "--after", "3 x.org")
    assert (refused.code, "is not a cursor" in refused.err) == (Exit.DATA, True)


def test_what_was_meant_must_be_said(queue: Any, told: Told) -> None:
    """One sentence for each mistake, and nothing is changed."""
    for arguments, said in (
        (["delete"], "say which recipients: message ids, --recipient"),
        (["delete", "19f3c2d8a0001f3a", "spring", "--yes"], "'spring' is no message id, and nothing was changed"),
        (["list", "--limit", "x"], "Invalid value for '--limit': it must be a whole number; see"),
        (["set", "--all", "--set-priority", "99"], "it must be at most 9; see"),
        (["set", "--all"], "say what is to be set: --set-priority"),
        (["delete", "--state", "lost"], "--state"),
        (["delete", "--zone", "nosuch"], "there is no zone 'nosuch'; there are default, bulk"),
        (["delete", "--older", "soon"], "--older: 'soon' is not a length of time"),
        (["delete", "--header", "List-Id"], "is not a name and a text"),
        (["delete", "--where", "/nowhere/x.json"], "/nowhere/x.json: no such file"),
        (["move", "--all", "--to", "nosuch", "--yes"], "there is no zone 'nosuch'"),
        (["delete", "--class", "odd", "--yes"], "there is no class 'odd'"),
    ):
        ran = told("queue", *arguments)
        assert ran.code != Exit.OK
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert states(told) == {"queued": 32}


def test_a_filter_in_a_file(queue: Any, told: Told, tmp_path: Path) -> None:
    """As the API has it; options say more."""
    (tmp_path / "f.json").write_text('{"sender": ["shop@*"], "subject": "hello"}')
    ran = told("queue", "list", "--where", tmp_path / "f.json", "--recipient", "v1@*", "--json")
    assert [row["recipient"] for row in json.loads(ran.out)["rows"]] == ["v1@x.org"]
    (tmp_path / "f.json").write_text("[]")
    assert "a filter is an object" in told("queue", "list", "--where", tmp_path / "f.json").err
    (tmp_path / "f.json").write_text("{")
    assert "this is not JSON" in told("queue", "list", "--where", tmp_path / "f.json").err


def test_options_make_the_filter() -> None:
    """Spans are seconds, header fields pairs."""
    given = {"older": "2h", "header": ["List-Id: news: x"], "class_": ["rate"], "priority": [3], "user": None}
    assert chosen(given) == {"older_s": 7200.0, "header": [{"List-Id": "news: x"}], "class": ["rate"], "priority": [3]}
    with pytest.raises(CommandError):
        chosen({"header": [": x"]})


def terminal(arguments: list[str], typed: bytes, until: bytes) -> tuple[int, bytes]:
    """A command at a terminal of 80 columns: when it has written `until`, that is typed. Exit status, what it wrote."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"NO_COLOR": "1"}
    with subprocess.Popen([*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as ran:
        os.close(theirs)
        text = b""
        while True:
            try:
                block = os.read(ours, 65_536)
            except OSError:
                break
            if not block:
                break
            text += block
            if typed and until in text:
                os.write(ours, typed)
                typed = b""
        code = ran.wait(60)
    os.close(ours)
    return code, text


def test_a_question_at_a_terminal(queue: Any, told: Told, tmp_path: Path) -> None:
    """The exact count, and no is what anything else than y means; no colour where NO_COLOR is set."""
    order = ["queue", "delete", "--domain", "x.org", "--folder", str(tmp_path)]
    code, text = terminal(order, b"\n", b"[y/N]")
    assert (code, b"30 recipients. Do it?" in text, b"nothing was changed" in text) == (0, True, True)
    assert states(told) == {"queued": 32}
    code, text = terminal(order, b"y\n", b"[y/N]")
    assert code == 0
    assert b"30 recipients are deleted" in text
    assert b"\x1b[3" not in text
    assert states(told) == {"queued": 2, "deleted": 30}


def test_nobody_waits_in_the_background(queue: Any, told: Told) -> None:
    """The order is given, its number said; following it is another command, and so is canceling it."""
    ran = told("queue", "delete", "--all", "--yes", "--background", "--json")
    row = json.loads(ran.out)
    assert row["state"] in ("running", "undoable")
    assert "32 recipients are deleted" in told("task", "follow", row["id"]).out
    late = told("task", "cancel", row["id"])
    assert (late.code, "nothing left of it to cancel" in late.err) == (Exit.DATA, True)


def test_ctrl_c_leaves_the_task_running(
    queue: Any, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said so, with the exit status of an interrupt; the order is carried out."""
    may_go, windows = Event(), TaskSweep._windows

    def stand_still(sweep: TaskSweep) -> Iterator[int]:
        while not may_go.is_set():
            yield WAIT
        yield from windows(sweep)

    monkeypatch.setattr(TaskSweep, "_windows", stand_still)
    follows, row_of = Semaphore(0), answers.OF_TASKS["task-row"]
    counted = row_of._replace(function=lambda *a, **named: follows.release() or row_of.function(*a, **named))
    monkeypatch.setitem(answers.OF_TASKS, "task-row", counted)
    order = [*COMMAND, "queue", "delete", "--all", "--yes", "--folder", str(tmp_path)]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        for _ in range(2):  # before the second look all is imported: what Python is about there swallows a Ctrl-C
            assert follows.acquire(timeout=60)
        ran.send_signal(signal.SIGINT)
        _, err = ran.communicate(timeout=60)
        code = ran.returncode
    may_go.set()
    assert code == Exit.INTERRUPTED
    (row,) = json.loads(told("task", "list", "--json").out)
    assert f"task {row['id']} continues" in err.decode()
    assert told("task", "follow", row["id"]).code == Exit.OK
    assert states(told) == {"deleted": 32}
