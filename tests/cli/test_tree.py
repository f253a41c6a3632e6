"""Every command in every form, read from the tree of commands: without an MTA, with an empty queue, with mail in it.

It ends with a status of sysexits.h, says at most one sentence of error and shows no traceback; JSON parses, CSV has a
header and one width, and no two rows of a table are alike where there is a column that tells them apart.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import shlex
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Served
from zonemta_py.cli import app
from zonemta_py.cli.terminal import layout
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk import identity
from zonemta_py.disk.ring.ring import Ring
from zonemta_py.mail.addresses import srs, verp
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED, Feedback, Outcome, Result
from zonemta_py.queue.queue import LocalQueue

COMMANDS = {
    name: command
    for name, command in app.every(app.tree())
    if not hasattr(command, "commands") or command.invoke_without_command
}
SECRET = "0123456789abcdef"

ELSEWHERE = {
    "run": "the server: tests/cli/test_run.py",
    "sink": "a server: tests/cli/test_sink.py",
    "plugin run": "a server: tests/cli/test_plugin_trial.py",
    "top": "a screen: tests/cli/test_top.py",
    "sendmail": "another program's arguments: tests/cli/test_sendmail.py",
    "postqueue": "another program's arguments: tests/cli/test_sendmail.py",
    "postsuper": "another program's arguments: tests/cli/test_sendmail.py",
    "journal follow": "ends by Ctrl-C: tests/cli/test_journal.py",
    "send": "waits for a server: tests/cli/test_send.py",
    "campaign test": "waits for a server: tests/cli/test_campaign_send.py",
    "campaign report": "starts Spark: tests/pipeline/report",
    "lake engagement": "loads Spark: tests/pipeline/findings",
    "rules check": "compares all rules, in each form for seconds: tests/cli/test_rules.py",
    "tls check": "asks other servers: tests/cli/test_tls.py",
}
"""Why a command is not run here."""

WORDS: dict[str, str] = {
    "mailq": "",
    "status": "",
    "trace": "{id}",
    "qshape": "",
    "completion": "bash",
    "suspend": "domain there.test --for 1h",
    "resume": "domain there.test",
    "reroute add": "there.test --host relay.test:2525 --for 1h",
    "reroute list": "",
    "reroute remove": "there.test",
    "stop": "domain other.test",
    "lift": "domain other.test",
    "standing": "",
    "explain": "there.test",
    "lanes": "",
    "accounts": "",
    "forget": "gone@there.test",
    "backup": "{new}",
    "fsck": "",
    "reload": "--folder {folder}",
    "drain": "",
    "init": "{new} --domain example.com --address 192.0.2.10 --yes",
    "doctor": "--no-dns",
    "domain list": "",
    "domain show": "gone.example",
    "domain add": "new.example --tenant acme --type ed25519",
    "domain check": "gone.example",
    "domain rotate": "gone.example",
    "domain remove": "gone.example",
    "log": "--since 1h --count-by user",
    "summary mail": "--since 1h --by user,sender",
    "summary replies": "--since 1h --verdict bounced,deferred",
    "summary limits": "--since 1h",
    "summary make": "",
    "address": "{srs}",
    "route": "--from ann@example.com --to bob@there.test",
    "whatif": "{config} --archive {none}",
    "queue size": "",
    "queue list": "",
    "queue show": "{id}",
    "queue adopt": "",
    "queue in-doubt": "",
    "queue delete": "--recipient delete@there.test --yes",
    "queue hold": "--recipient hold@there.test --yes",
    "queue release": "--recipient hold@there.test --yes",
    "queue flush": "--recipient flush@there.test --yes",
    "queue requeue": "--recipient gone@there.test --yes",
    "queue purge": "queue/jobs --yes",
    "queue move": "--recipient move@there.test --to bulk --yes",
    "queue set": "--recipient set@there.test --set-priority 5 --yes",
    "queue drop": "{id}",
    "plugin list": "",
    "plugin order": "queue_route",
    "plugin check": "custom_routing",
    "plugin new": "{selector}",
    "cluster": "",
    "cluster config": "",
    "cluster move": "3 mx2",
    "cluster balance": "--dry-run",
    "cluster verify": "",
    "warmup": "--history",
    "warmup set": "127.0.0.3 there.test 2",
    "suppression explain": "x@there.test",
    "suppression guards": "",
    "suppression release": "there.test",
    "suppression drop": "there.test",
    "suppression add": "x@there.test",
    "suppression remove": "x@there.test",
    "suppression show": "listed@there.test",
    "suppression list": "",
    "suppression import": "{people}",
    "suppression export": "",
    "journal dump": "",
    "journal positions": "",
    "journal rotate": "",
    "feedback list": "",
    "feedback show": "{feedback}",
    "feedback reports": "--days 3",
    "feedback import": "{table}",
    "feedback forget": "{feedback}",
    "feedback leave": "{feedback}",
    "task list": "",
    "task show": "{task}",
    "task cancel": "{task}",
    "task undo": "{task}",
    "task follow": "{task}",
    "campaign send": "{people} --template {template} --name tree --sender ann@example.com --yes --folder {none}",
    "campaign suspend": "spring",
    "campaign pause": "spring",
    "campaign resume": "spring",
    "campaign schedule": "spring --window 09:00-17:00",
    "campaign winner": "spring",
    "campaign cancel": "spring --yes",
    "campaign status": "spring",
    "campaign list": "",
    "campaign text": "spring --template {template}",
    "campaign check": "{template} --list {people}",
    "campaign preview": "{template} --list {people}",
    "events tail": "--no-follow",
    "events sinks": "",
    "events dead": "file",
    "events replay": "--sink file --since 1h",
    "events forget-sink": "gone",
    "events schema": "",
    "config history": "",
    "config diff": "--folder {folder}",
    "config back": "1",
    "config forget": "--before 1",
    "config notice": "",
    "config check": "{config}",
    "config show": "{config}",
    "config password": "",
    "config secret": "",
    "dkim check": "",
    "dkim new": "example.com {selector}",
    "dkim rotate": "example.com",
    "rules explain": "'550 5.1.1 No such user'",
    "rules list": "",
    "verp decode": "{verp}",
    "srs decode": "{srs}",
    "tls report": "",
    "api-key new": "shop",
    "api-key list": "",
    "ring show": "{ring}",
    "ring check": "{ring}",
    "lake update": "--lake {none}",
    "lake show": "deliveries --lake {none} --columns at,id",
    "lake tables": "--lake {none}",
    "lake ingest": "--archive {none} --lake {new}",
    "lake suppress": "--lake {none}",
    "lake blocks": "--lake {none}",
    "lake rates": "--lake {none}",
    "lake unknown": "--lake {none}",
    "lake propose": "new-rules.toml --lake {none}",
    "report day": "2026-11-22 --lake {none}",
    "report campaign": "spring --lake {none}",
    "report ip": "192.0.2.1 --lake {none}",
    "report provider": "google --lake {none}",
    "report zone": "default --lake {none}",
}
"""What is typed after each command; a new one needs its line here."""
ASKING = [name for name in WORDS if any("--folder" in one.opts for one in COMMANDS[name].params)]
"""Of a queue; what the others say does not depend on one."""
SEVERAL = {name for name, one in COMMANDS.items() if not any("--csv" in option.opts for option in one.params)}
"""Commands that print several tables."""
ALLOWED = {*Exit} - {Exit.USAGE, Exit.INTERRUPTED}

STATUSES = {
    "fsck": {Exit.DISK},  # it is in use
    "reload": {Exit.DATA},  # of a queue alone
    "drain": {Exit.DATA},
    "cluster": {Exit.DATA},  # of an MTA that is alone
    "cluster config": {Exit.DATA},
    "cluster move": {Exit.DATA},
    "cluster balance": {Exit.DATA},
    "cluster verify": {Exit.CONFIG},
    "config diff": {Exit.DATA},
    "config history": {Exit.NO_INPUT},
    "config back": {Exit.DATA},
    "config forget": {Exit.NO_INPUT},
    "domain show": {Exit.DATA},  # there is none
    "domain check": {Exit.DATA},
    "domain rotate": {Exit.DATA},
    "domain remove": {Exit.DATA},
    "queue adopt": {Exit.DATA},  # it is no copy
    "queue purge": {Exit.DATA},  # there is none
    "suppression release": {Exit.DATA},
    "suppression drop": {Exit.DATA},
    "feedback leave": {Exit.DATA},  # it is no wish
    "campaign send": {Exit.CONFIG},  # it goes by HTTP
    "campaign text": {Exit.CONFIG},  # it goes by HTTP
    "campaign winner": {Exit.DATA},
    "campaign schedule": {Exit.DATA},
    "events forget-sink": {Exit.NO_INPUT},
    "lake suppress": {Exit.NO_INPUT},
    "task cancel": {Exit.DATA},  # it has ended
    "task undo": {Exit.DATA},  # it has changed nothing
}
"""Where something else is right than 0, with a queue that has mail."""
ONCE = {
    "resume", "lift", "reroute remove", "forget", "suppression remove", "feedback forget", "campaign cancel",
    "campaign suspend", "campaign resume", "campaign pause", "queue drop",
}  # fmt: skip
"""What is done the first time cannot be done again."""

CONFIG = """
[server]
folder = "{folder}"
hostname = "mta.example.com"
sender_domains = true
[dns]
servers = ["127.0.0.1"]
port = 9
timeout_s = 1
[return_path]
secret = "{secret}"
srs = "ours.example"
[[zones]]
name = "default"
pool = "cold"
[[zones]]
name = "bulk"
[[pools]]
name = "cold"
sources = [{{ address = "127.0.0.3", warmup = "gentle" }}]
[[warmups]]
name = "gentle"
caps = [4, 10, 20]
[[accounts]]
name = "shop"
messages = ["5/h", "1000/day"]
[[throttles]]
name = "gentle"
per = ["tenant"]
messages = "1/hour"
[[event_sinks]]
name = "file"
kind = "file"
path = "{folder}/events.jsonl"
"""


class Terminal(io.StringIO):
    """What is printed at a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def forms(name: str) -> list[str]:
    """Of its output; "" is what a person gets."""
    flags = {word for one in COMMANDS[name].params if getattr(one, "is_flag", False) for word in one.opts}
    return ["", *sorted(flags & {"--json", "--csv", "--plain"})]


def words(name: str, places: dict[str, object]) -> list[str]:
    """Its command line, with the configuration where it takes one."""
    options = {word for one in COMMANDS[name].params for word in one.opts}
    line = [*name.split(), *shlex.split(WORDS[name].format(**places))]
    if "--config" in options and "--folder" not in line:
        return [*line, "--config", str(places["config"])]
    if "--folder" in options and "--folder" not in line:
        return [*line, "--folder", str(places["folder"])]
    return line


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree is made once, not for each command."""
    monkeypatch.setattr(app, "tree", cache(app.tree))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, object]:
    """Files that commands read, and names of those that are not there yet."""
    folder = tmp_path / "queue"
    folder.mkdir()
    found: dict[str, object] = {
        "folder": folder,
        "none": tmp_path / "none",
        "id": "0199aabbccddeeff",
        "task": 1,
        "feedback": 1,
    }
    for name, text in (
        ("zonemta.toml", CONFIG.format(folder=folder, secret=SECRET)),
        ("letter.eml", "From: ann@example.com\nSubject: Hi\n\nHi\n"),
        ("letter.toml", 'subject = "Hi"\nfrom = "ann@example.com"\ntext = """\nHi\n"""\n'),
        ("people.csv", "address\nbob@there.test\n"),
        ("table.csv", "date,domain,spam rate\n2026-11-29,example.com,0.1%\n"),
    ):
        (tmp_path / name).write_text(text)
    Ring.create(tmp_path / "a.ring", 4).abandon()
    yesterday = int(time.time()) // 86_400 - 1
    return found | {
        "config": tmp_path / "zonemta.toml", "letter": tmp_path / "letter.eml", "template": tmp_path / "letter.toml",
        "people": tmp_path / "people.csv", "table": tmp_path / "table.csv", "ring": tmp_path / "a.ring",
        "verp": verp.encode("0199aabbccddeeff", "ann@d.example", "b.example", SECRET, yesterday),
        "srs": srs.rewrite("ann@there.example", "ours.example", SECRET, yesterday),
    }  # fmt: skip


def test_every_command_is_tried() -> None:
    """A new one has a line in the table, or a reason; nothing stands there that is gone."""
    assert {*WORDS, *ELSEWHERE} == {*COMMANDS}
    assert not WORDS.keys() & ELSEWHERE.keys()


def wrong(name: str, ran: Any, form: str, good: set[Exit]) -> Iterator[str]:
    """What is not as it should be."""
    if ran.code not in good:
        yield f"status {ran.code}"
    if "Traceback" in ran.out + ran.err:
        yield "a traceback"
    complaints = [line for line in ran.err.splitlines() if line.startswith(("zonemta: ", '{"error"'))]
    if ran.code not in (Exit.OK, Exit.PROBLEMS) and len(complaints) != 1:
        yield f"{len(complaints)} sentences"
    if form == "--json":
        yield from wrong_json(ran)
    if form == "--csv" and ran.out:
        rows = list(csv.reader(io.StringIO(ran.out)))
        if not all(rows[0]) or {len(row) for row in rows} != {len(rows[0])}:
            yield "CSV of several shapes"
    if form == "--plain" and name not in SEVERAL and len({line.count("\t") for line in ran.out.splitlines()}) > 1:
        yield "records of several shapes"


def wrong_json(ran: Any) -> Iterator[str]:
    try:
        json.loads(ran.out or "0")
    except ValueError:
        try:
            for line in ran.out.splitlines():
                json.loads(line)
        except ValueError:
            yield "no JSON"
    if ran.code not in (Exit.OK, Exit.PROBLEMS):
        try:
            said = json.loads(ran.err.splitlines()[-1])
        except (ValueError, IndexError):
            yield "its error is no JSON"
        else:
            if (said["exit"], bool(said["error"])) != (ran.code, True):
                yield "its error says something else"


def run_all(
    zonemta: Callable[..., Any],
    places: dict[str, object],
    good: Callable[[str, bool], set[Exit]],
    names: Iterable[str],
    only: Iterable[str] = ("", "--json", "--csv", "--plain"),
) -> None:
    """Those commands in these forms. good: the statuses that are right for a command, the first time or later."""
    found, numbers = list[str](), itertools.count()
    for name in names:
        for form in [one for one in forms(name) if one in only]:
            fresh = {"new": f"{places['none']}-{next(numbers)}", "selector": f"s{next(numbers)}"}
            ran = zonemta(*words(name, places | fresh), *([form] if form else []), stdin=b"secret\n")
            found += [f"{name} {form}: {one}: {ran}" for one in wrong(name, ran, form, good(name, form == ""))]
    assert not found, "\n".join(found)


@pytest.mark.usefixtures("quick")
def test_without_an_mta(zonemta: Callable[..., Any], places: dict[str, object]) -> None:
    """Each does what it can, or says in one sentence why it cannot; none says that its command line is wrong."""
    others = [name for name in WORDS if name not in ASKING]
    run_all(zonemta, places, lambda name, first: ALLOWED, ASKING, ("", "--json"))
    run_all(
        zonemta, places, lambda name, first: ALLOWED, [name for name in others if "--json" in forms(name)], ("--json",)
    )
    run_all(
        zonemta, places, lambda name, first: ALLOWED, [name for name in others if "--json" not in forms(name)], ("",)
    )


@pytest.mark.usefixtures("quick")
def test_with_an_empty_queue(zonemta: Callable[..., Any], places: dict[str, object]) -> None:
    """Nothing is there, and no command trips over that."""
    with running(places):
        run_all(zonemta, places, lambda name, first: ALLOWED, ASKING, ("", "--csv"))


@pytest.mark.usefixtures("quick")
def test_with_mail(zonemta: Callable[..., Any], places: dict[str, object]) -> None:
    """Each does what it is for."""

    def good(name: str, first: bool) -> set[Exit]:
        return STATUSES.get(name, {Exit.OK}) | ({Exit.DATA} if name in ONCE and not first else set())

    with running(places) as served:
        places |= served.do(fill)
        run_all(zonemta, places, good, ASKING)


@pytest.mark.usefixtures("quick")
def test_rows_at_a_terminal(
    zonemta: Callable[..., Any], places: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 80 columns no table has two rows that look alike, and lines are no wider."""
    shown, fitted = list[tuple[str, list[Sequence[str]]]](), layout.fitted

    def seen(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, rule: str) -> list[str]:
        lines = fitted(columns, rows, width, rule)
        shown.append((name, [*rows]))
        assert width == 80
        return lines

    with running(places) as served:
        places |= served.do(fill)
        monkeypatch.setattr(layout, "fitted", seen)
        for name in ASKING:
            if "--csv" not in forms(name):
                continue
            monkeypatch.setattr(sys, "stdout", Terminal())
            with monkeypatch.context() as patched:
                patched.setenv("COLUMNS", "80")
                ran = zonemta(*words(name, places))
            assert ran.code != Exit.USAGE, ran
    alike = [name for name, rows in shown if len({tuple(row) for row in rows}) < len(rows)]
    assert len(shown) > 15
    assert not alike


@contextmanager
def running(places: dict[str, object]) -> Iterator[Served]:
    served = Served(tomllib.loads(Path(str(places["config"])).read_text()))
    try:
        identity.copied(Path(str(places["folder"])), "")
        yield served
    finally:
        served.close()


async def fill(queue: LocalQueue) -> dict[str, object]:
    """Mail that waits, mail that was tried, a task, an answer that came back, somebody on the suppression list."""
    body = b"Subject: Hello\r\n\r\nHi\r\n"
    for number, name in enumerate(("bob", "delete", "hold", "flush", "move", "set")):
        envelope = Envelope(
            "ann@example.com", [Recipient(f"{name}@there.test")], len(body), user="shop", tenant="acme",
            campaign="spring" if number % 2 else "", received_ms=int(time.time() * 1000),
        )  # fmt: skip
        id = (await queue.accept(envelope, body)).id
    (delivery,) = await queue.lease(1, "sender-1")
    outcome = Outcome(DEFERRED, Reply(451, "4.2.0", "mailbox busy, and it says so at some length"), "dot", [0])
    await queue.settle(Result(delivery.lease, [outcome]))
    await queue.feedback([Feedback("other", raw=b"Subject: hm\r\n\r\nWhat?\r\n", via="smtp", text="hm")])
    await queue.ask("suppress", rows=[["listed@there.test", "manual", "", "", "", "", 0, "all"]])
    await queue.core.disk.lines.stable()
    task = await queue.ask("task", verb="hold", where={"recipient": "gone@there.test"}, set={}, by="ann")
    return {"id": id, "task": task["id"], "feedback": (await queue.ask("feedback"))["rows"][0]["seq"]}
