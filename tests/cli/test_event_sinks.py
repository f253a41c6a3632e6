"""`zonemta events sinks|replay|dead` of a queue that need not run, and what people get wrong."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk import identity
from zonemta_py.events.dead_letters import DeadLetter, DeadLetters
from zonemta_py.events.sinks.base import Ready
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

BODY = b'{"specversion":"1.0","id":"q-7-0","type":"zonemta.bounced","subject":"m1","data":{}}'
LETTER = DeadLetter(1_795_000_000_000, "it answered 422", Ready(7, 0, "q-7-0", "bounced", "m1", 1, BODY))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A queue's folder, with a sink that is a file."""
    path = tmp_path / "zonemta.toml"
    path.write_text(
        f'[server]\nfolder = "{tmp_path}"\n'
        f'[[event_sinks]]\nname = "f"\nkind = "file"\npath = "{tmp_path}/events.jsonl"\n'
        'types = ["accepted", "queued"]\n'
    )
    return path


async def take(queue: LocalQueue) -> None:
    for number in range(3):
        envelope = Envelope("ann@src.test", [Recipient(f"{number}@x.test")], 4)
        await queue.accept(envelope, b"Hi\r\n")
    await queue.core.disk.journal.stable()


def test_replay(served: Callable[..., Any], zonemta: Callable[..., Any], tmp_path: Path, config: Path) -> None:
    """What its filter lets through, of the span, as often as one asks, with the same ids; fewer types if one likes."""
    running = served()
    identity.copied(tmp_path, "")
    running.do(take)
    for _ in range(2):
        ran = zonemta("events", "replay", "--sink", "f", "--since", "1h", "--config", config)
        assert (ran.code, ran.out, ran.err) == (Exit.OK, "6 events sent\n", "")
    running.close()
    ran = zonemta("events", "replay", "--sink", "f", "--since", "1h", "--type", "queued", "--config", config)
    assert ran.out == "3 events sent\n"
    ran = zonemta("events", "replay", "--sink", "f", "--since", "2h", "--until", "1h", "--config", config)
    assert ran.out == "0 events sent\n"
    for filters, count in (
        (("--recipient", "1@x.test"), 1), (("--domain", "X.test"), 3), (("--zone", "default"), 6), (("--zone", "b"), 0),
        (("--campaign", "spring"), 0), (("--tenant", "shop"), 0), (("--message", "0"), 0),
        (("--type", "delivered"), 0),
    ):  # fmt: skip
        ran = zonemta("events", "replay", "--sink", "f", "--since", "1h", *filters, "--config", config)
        assert (ran.code, ran.out) == (Exit.OK, f"{count} events sent\n"), "its own filter counts as well"
    ids = [json.loads(line)["id"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert ids[:6] == ids[6:12]
    assert len(set(ids)) == 6
    assert set(ids[12:15]) < set(ids)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("replay", "--sink", "g", "--since", "1h"), "there is no event sink 'g'; there are f"),
        (("replay", "--sink", "f", "--since", "1h", "--type", "x"), "there is no type of event 'x'"),
        (("replay", "--sink", "f", "--since", "1h", "--until", "2h"), "--until is before --since"),
        (("replay", "--sink", "f", "--since", "1h"), "contains no journal; name the MTA's folder"),
        (("dead", "g"), "there is no event sink 'g'"),
    ],
)
def test_mistakes(zonemta: Callable[..., Any], config: Path, arguments: tuple[str, ...], sentence: str) -> None:
    ran = zonemta("events", *arguments, "--config", config)
    assert ran.code in (Exit.USAGE, Exit.NO_INPUT)
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_sinks_and_dead_letters(zonemta: Callable[..., Any], tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "events" / "f"
    ran = zonemta("events", "sinks", "--config", config)
    assert "not started yet" in ran.out
    DeadLetters(folder).add([LETTER])
    (folder / "state.json").write_text(json.dumps({"state": "ok", "pid": 1 << 30, "sent": 1234, "reason": ""}))
    ran = zonemta("events", "sinks", "--config", config)
    assert "not running" in ran.out
    assert "1,234" in ran.out
    ran = zonemta("events", "dead", "f", "--config", config)
    for shown in ("bounced", "m1", "q-7-0", "it answered 422"):
        assert shown in ran.out
    (row,) = json.loads(zonemta("events", "dead", "f", "--config", config, "--json").out)
    assert (row["event"]["id"], row["ms"]) == ("q-7-0", LETTER.ms)
    assert "not in this configuration" in zonemta("events", "sinks", "--folder", tmp_path).out
    ran = zonemta("events", "forget-sink", "f", "--folder", tmp_path)
    assert (ran.code, "name the configuration with --config" in ran.err) == (Exit.USAGE, True)
    shutil.rmtree(folder)
    assert "none: see" in zonemta("events", "sinks", "--folder", tmp_path).out


def test_what_is_left_of_a_sink(zonemta: Callable[..., Any], tmp_path: Path, config: Path) -> None:
    """It is shown, and removed by a command, but not while it is configured or a process serves it."""
    left = tmp_path / "events" / "old"
    DeadLetters(left).add([LETTER])
    state = left / "state.json"
    state.write_text(json.dumps({"name": "old", "kind": "nats", "state": "down", "pid": os.getpid(), "sent": 7}))
    forget = ("events", "forget-sink", "old", "--config", config)
    ran = zonemta(*forget)
    assert (ran.code, f"process {os.getpid()} still serves" in ran.err) == (Exit.TEMPORARY, True)
    state.write_text(json.dumps({"name": "old", "kind": "nats", "state": "down", "pid": 1 << 30, "sent": 7}))
    _, row = json.loads(zonemta("events", "sinks", "--config", config, "--json").out)
    assert (row["name"], row["kind"], row["state"], row["dead_kept"]) == ("old", "nats", "not configured", 1)
    assert "zonemta events forget-sink old" in row["trouble"]
    ran = zonemta(*forget)
    assert (ran.code, "with 1 dead letters" in ran.out, left.exists()) == (Exit.OK, True, False)
    ran = zonemta(*forget)
    assert (ran.code, "nothing is left of an event sink 'old'; nor of any" in ran.err) == (Exit.NO_INPUT, True)
    ran = zonemta("events", "forget-sink", "f", "--config", config)
    assert (ran.code, "take it out of the configuration first" in ran.err) == (Exit.USAGE, True)
    ran = zonemta("events", "forget-sink", "../journal", "--config", config)
    assert ran.code == Exit.NO_INPUT


def test_a_folder_that_the_mta_cannot_use(zonemta: Callable[..., Any], tmp_path: Path, config: Path) -> None:
    """Then there is no state either that could say so."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "f").write_text("")
    (row,) = json.loads(zonemta("events", "sinks", "--config", config, "--json").out)
    assert "cannot be written by the MTA; give the folder to the MTA's user" in row["trouble"]


def test_forget_looks_into_what_sinks_keep(zonemta: Callable[..., Any], tmp_path: Path, config: Path) -> None:
    """Of sinks that are configured no longer, too; and it says what it cannot reach."""
    with config.open("a") as text:
        text.write('[[event_sinks]]\nname = "crm"\nkind = "webhook"\nurl = "https://crm.example.com/"\n')
    letter = LETTER._replace(ready=LETTER.ready._replace(body=BODY.replace(b"{}", b'{"recipient":"ann@x.test"}')))
    for name in ("f", "old"):
        DeadLetters(tmp_path / "events" / name).add([letter])
    (tmp_path / "events.jsonl").write_bytes(letter.ready.body + b"\n")
    forget = ("forget", "ann@x.test", "--files-only", "--plans", str(tmp_path), "--config", config)
    ran = zonemta(*forget)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "event sinks: 1 lines of 1 files and 2 dead letters rewritten\n" in ran.out
    assert "what the event sinks crm were sent, or have in memory, is not changed" in ran.out
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"ann@x.test" in path.read_bytes()]
    assert "rewritten" not in zonemta(*forget).out
