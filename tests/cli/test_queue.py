"""`zonemta queue` and `zonemta fsck` against a real queue, served on its socket as the queue process does."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.cli.terminal.output import moment
from zonemta_py.config import Config
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import accept_whole
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.queue.recovery.start import open_queue
from zonemta_py.wire.frames import Operation, pack
from zonemta_py.wire.server import serve

HEADER = b"From: ann@example.com\r\nSubject: Hello [red]you[/red]\r\n"
BODY = HEADER + b"\r\nHi\r\n"


class Running:
    """A queue in a thread; leaving it is like the end of its process, except that the store is closed."""

    def __init__(self, folder: Path, crash: bool = False) -> None:
        self.crash = crash
        self.config = Config.model_validate({"server": {"folder": folder}})
        self.ready, self.ids = threading.Event(), list[str]()
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        try:
            asyncio.run(self.run())
        finally:
            self.ready.set()

    async def run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        queue = await open_queue(self.config)
        await serve(queue, self.config.folder)
        for sender, addresses in (("ann@example.com", ["bob@x.org", "carl@y.org"]), ("", ["dora@y.org"])):
            recipients = [Recipient(address) for address in addresses]
            envelope = Envelope(
                sender, recipients, len(BODY), received_ms=1_700_000_000_000, headers={"subject": "Hello"}
            )
            self.ids.append((await queue.accept(envelope, BODY)).id)
        if self.crash:
            await self.lose_a_sender(queue)
        self.ready.set()
        await self.end.wait()
        queue.close()

    async def lose_a_sender(self, queue: LocalQueue) -> None:
        """A sender leases a delivery, which makes every record so far stable, and hangs up."""
        reader, writer = await asyncio.open_unix_connection(self.config.folder / "socket")
        writer.write(pack((int(Operation.LEASE), 1, 1)))
        await reader.read(1)
        writer.close()
        while not await queue.ask("in-doubt"):  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0.01)

    def __enter__(self) -> list[str]:
        self.thread.start()
        assert self.ready.wait(60)
        assert self.thread.is_alive(), "the queue did not open"
        return self.ids

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join()


@pytest.fixture
def ask_after_a_crash(zonemta: Callable[..., object], tmp_path: Path) -> Iterator[Callable[..., object]]:
    with Running(tmp_path, crash=True):
        yield lambda *arguments: zonemta("queue", *arguments, "--folder", tmp_path)


@pytest.fixture
def ids(tmp_path: Path) -> Iterator[list[str]]:
    """Ids of two messages in the queue in tmp_path: two recipients of ann's, one of nobody's."""
    with Running(tmp_path) as ids:
        yield ids


@pytest.fixture
def ask(zonemta: Callable[..., object], ids: list[str], tmp_path: Path) -> Callable[..., object]:
    return lambda *arguments: zonemta("queue", *arguments, "--folder", tmp_path)


def rows(ran: object) -> list[str]:
    return [row["recipient"] for row in json.loads(ran.out)["rows"]]  # type: ignore[attr-defined]


def test_size_counts_by_zone_and_domain(ask: Callable[..., object]) -> None:
    """Exact numbers, for programs and for people."""
    sizes = json.loads(ask("size", "--json").out)
    assert sizes["total"]["queued"] == 3
    assert sizes["total"]["messages"] == 2
    assert {domain: row["queued"] for domain, row in sizes["domains"].items()} == {"x.org": 1, "y.org": 2}
    text = ask("size").out
    assert "Recipients by zone" in text
    assert text.index("y.org") < text.index("x.org")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["bob@x.org", "carl@y.org", "dora@y.org"]),
        (["--domain", "y.org"], ["carl@y.org", "dora@y.org"]),
        (["--sender", "ann@example.com"], ["bob@x.org", "carl@y.org"]),
        (["--recipient", "bob@x.org"], ["bob@x.org"]),
        (["--state", "deferred"], []),
        (["--zone", "default", "--limit", "1"], ["bob@x.org"]),
    ],
)
def test_list_filters(ask: Callable[..., object], options: list[str], expected: list[str]) -> None:
    """By domain, sender, recipient, state and zone, up to a limit."""
    assert sorted(rows(ask("list", "--json", *options))) == expected


def test_list_goes_on_where_it_ended(ask: Callable[..., object]) -> None:
    """The cursor at the end of a page leads to the next; pages are disjoint and complete."""
    first = json.loads(ask("list", "--json", "--limit", "2").out)
    second = json.loads(ask("list", "--json", "--after", first["next"]).out)
    assert second["next"] is None
    found = [row["recipient"] for page in (first, second) for row in page["rows"]]
    assert sorted(found) == ["bob@x.org", "carl@y.org", "dora@y.org"]
    assert f"--after '{first['next']}'" in ask("list", "--limit", "2").out


def test_list_for_people(ask: Callable[..., object], ids: list[str]) -> None:
    """A row per recipient; the null sender is <>."""
    text = ask("list").out
    assert ids[0] in text
    assert "<>" in text
    assert "bob@x.org" in text


def test_show_is_the_whole_message_but_its_body(ask: Callable[..., object], ids: list[str]) -> None:
    """Envelope, recipients, header section; what looks like markup is shown as it is."""
    shown = json.loads(ask("show", ids[0], "--json").out)
    assert shown["envelope"]["sender"] == "ann@example.com"
    assert sorted(row["recipient"] for row in shown["recipients"]) == ["bob@x.org", "carl@y.org"]
    assert shown["header"].startswith("From: ann@example.com\r\n")
    text = ask("show", ids[0]).out
    assert "Subject: Hello [red]you[/red]" in text
    assert "Hi" not in text
    assert text.endswith(f"Its story, from acceptance on: zonemta trace {ids[0]}\n")


def test_content_is_the_message_byte_for_byte(served: Callable[..., object], tmp_path: Path) -> None:
    """As postcat has it, of many chunks too, and not through a terminal's encoding."""
    body = b"Subject: x\r\n\r\n" + bytes(range(14, 256)) * 2_000 + b"\r\n"

    async def put(queue: LocalQueue) -> str:
        now_ms = time.time_ns() // 1_000_000
        envelope = Envelope("ann@example.com", [Recipient("bob@x.org")], len(body), received_ms=now_ms)
        return (await accept_whole(queue, envelope, body)).id

    id = served().do(put)  # type: ignore[attr-defined]
    command = [sys.executable, "-m", "zonemta_py", "queue", "show", "--content", "--folder", str(tmp_path)]
    ran = subprocess.run([*command, id], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (body, b"")
    ran = subprocess.run([*command, "0" * 16], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count(b"\n")) == (Exit.DATA, b"", 1)


def test_show_of_a_message_that_is_not_there(ask: Callable[..., object]) -> None:
    """One sentence, and where to look."""
    ran = ask("show", "0123")
    assert ran.code == Exit.DATA
    assert "there is no message '0123'" in ran.err
    assert "`zonemta queue list`" in ran.err


def test_nothing_is_in_doubt(ask: Callable[..., object]) -> None:
    """After a start without a crash the list is empty."""
    assert json.loads(ask("in-doubt", "--json").out) == []
    assert "In doubt: 0" in ask("in-doubt").out


def test_fsck_of_a_good_queue(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """Counts, no problems, exit status 0."""
    with Running(tmp_path):
        pass
    ran = zonemta("fsck", "--json", "--folder", tmp_path)
    report = json.loads(ran.out)
    assert (ran.code, report["problems"]) == (Exit.OK, [])
    assert report["counts"]["queued"] == 3
    assert "messages" in zonemta("fsck", "--folder", tmp_path).out


def test_fsck_finds_and_repairs(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """A recipient lost from the store is found (exit status 1), queued again by --repair, and then all is well."""
    with Running(tmp_path, crash=True):
        pass
    store = Store(tmp_path / "store")
    (key,) = (key for key in store.keys(b"delivery-zone ", b"delivery-zone!") if b"dora@y.org" in key)
    store.write([(key, None)], sync=True)
    store.close()
    found = zonemta("fsck", "--folder", tmp_path)
    assert found.code == Exit.PROBLEMS
    assert "dora@y.org is not queued" in found.out
    assert zonemta("fsck", "--repair", "--folder", tmp_path).code == Exit.OK
    assert json.loads(zonemta("fsck", "--json", "--folder", tmp_path).out)["problems"] == []


def test_fsck_of_a_queue_without_its_store(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """A journal is enough of a queue to be saved; a mere look changes nothing."""
    with Running(tmp_path, crash=True):
        pass
    shutil.rmtree(tmp_path / "store")
    ran = zonemta("fsck", "--folder", tmp_path)
    assert (ran.code, "--repair" in ran.out) == (Exit.PROBLEMS, True)
    assert not (tmp_path / "store").exists()
    repaired = zonemta("fsck", "--repair", "--folder", tmp_path)
    assert repaired.code == Exit.PROBLEMS
    assert "a message is lost from the store" in repaired.out
    assert zonemta("fsck", "--folder", tmp_path).code == Exit.OK


def test_fsck_of_a_store_that_cannot_be_opened(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """Files that are not LevelDB's any more are one sentence, not a traceback."""
    with Running(tmp_path):
        pass
    (tmp_path / "store" / "CURRENT").write_text("nonsense\n")
    ran = zonemta("fsck", "--folder", tmp_path)
    assert ran.code == Exit.DISK
    assert ran.err.splitlines()[-1].startswith("zonemta: ")


def test_what_is_in_doubt_is_listed(ask_after_a_crash: Callable[..., object]) -> None:
    """A sender that dies while it awaits a final reply leaves its recipients on this list, with what is done."""
    (row,) = json.loads(ask_after_a_crash("in-doubt", "--json").out)
    assert (row["recipient"], row["sender"], row["zone"]) == ("bob@x.org", "ann@example.com", "default")
    assert row["action"]
    assert json.loads(ask_after_a_crash("in-doubt", "--json").out) == [row]  # each once, page after page
    text = ask_after_a_crash("in-doubt").out
    assert "In doubt: 1" in text
    assert "bob@x.org" in text
    said = ask_after_a_crash("in-doubt", "--acknowledge", "--id", "0" * 16).out
    assert said == "0 recipients in doubt acknowledged; the journal still has them\n"
    assert json.loads(ask_after_a_crash("in-doubt", "--acknowledge", "--json").out) == {"acknowledged": 1}
    assert json.loads(ask_after_a_crash("in-doubt", "--json").out) == []


def test_show_for_people_has_no_bytes_in_it(served: Callable[..., object], told: Callable[..., object]) -> None:
    """Digests are hexadecimal, moments are local time with their offset, an empty sender is <>."""

    async def put(queue: LocalQueue) -> str:
        envelope = Envelope(
            "", [Recipient("bob@x.org")], len(BODY), received_ms=1_700_000_000_000, user="ann", smtputf8=True,
            hashes={"relaxed": b"\xe6\x00'"}, hold_until_ms=1_700_000_060_000,
        )  # fmt: skip
        return (await queue.accept(envelope, BODY)).id

    text = told("queue", "show", served().do(put)).out  # type: ignore[attr-defined]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert {"sender <>", "user ann", "smtputf8 yes", "hashes: relaxed e60027"} <= {*lines}
    assert f"received {moment(1_700_000_000_000)}" in lines
    assert f"hold until {moment(1_700_000_060_000)}" in lines
    assert "b'" not in text
    assert "{" not in text


def test_who_sends(served: Callable[..., object], told: Callable[..., object]) -> None:
    """The login of a spam run is at the top, by what it has in the queue; by sender, subject and class, too, with any
    filter; and by what is counted anyway."""

    async def put(queue: LocalQueue) -> None:
        for user, tenant, subject, many in (("ann", "a", "Hello", 2), ("eve", "b", "WIN", 30), ("", "", "Hello", 1)):
            recipients = [Recipient(f"{user}{number}@x.org") for number in range(many)]
            envelope = Envelope(
                f"{user}@src.org", recipients, len(BODY), user=user, tenant=tenant, headers={"subject": subject}
            )
            await queue.accept(envelope, BODY)

    def counted(*words: str) -> list[tuple[str, int]]:
        ran = told("queue", "size", *words, "--json")
        assert ran.code == Exit.OK, ran  # type: ignore[attr-defined]
        return [(row["name"], row["queued"]) for row in json.loads(ran.out)["rows"]]  # type: ignore[attr-defined]

    served().do(put)  # type: ignore[attr-defined]
    assert counted("--by", "user") == [("eve", 30), ("ann", 2), ("", 1)]
    assert counted("--by", "user", "--limit", "1", "--younger", "1h") == [("eve", 30)]
    assert counted("--by", "sender", "--user", "ann") == [("ann@src.org", 2)]
    assert counted("--by", "subject") == [("WIN", 30), ("Hello", 3)]
    assert counted("--by", "tenant", "--subject", "win") == [("b", 30)]
    assert counted("--by", "domain", "--tenant", "a") == [("x.org", 2)]
    lines = (told("queue", "size", *by).out.splitlines()[1] for by in ((), ("--by", "tenant"), ("--by", "user")))  # type: ignore[attr-defined]
    assert len({tuple(line.split()[1:]) for line in lines}) == 1, "one name for each quantity, in one order"
    told("queue", "hold", "--user", "eve", "--yes")
    (row,) = json.loads(told("queue", "size", "--by", "class", "--state", "held", "--json").out)["rows"]  # type: ignore[attr-defined]
    assert (row["held"], row["queued"]) == (30, 0)
    out = told("queue", "size", "--by", "user").out  # type: ignore[attr-defined]
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["eve", "ann", "(no"]
    ran = told("queue", "size", "--user", "eve")
    assert (ran.code, "name --by" in ran.err) == (Exit.USAGE, True)  # type: ignore[attr-defined]
