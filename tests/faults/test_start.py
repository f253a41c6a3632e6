"""The real MTA's start: what it says, who hears clients, who may read the mail, and what SIGHUP does to it."""

import asyncio
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from survival.client import Client, Connection
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import Mta, sink

from zonemta_py.config import Config
from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

FOLDERS = ("store", "journal", "archive", "quarantine", "bodies", "receipts")


@pytest.fixture
def mta(tmp_path: Path) -> Mta:
    return Mta(tmp_path / "queue", 9, home=tmp_path)


def said(mta: Mta, words: str) -> None:
    end = time.monotonic() + 60
    while words not in mta.log_tail(100):
        assert time.monotonic() < end, mta.log_tail(100)
        time.sleep(0.02)


def listening(pid: int) -> set[int]:
    """Inodes of the listening TCP sockets that the process has open."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    known = {int(row[9]) for row in rows if row[3] == "0A"}
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    return known & {int(link[8:-1]) for link in links if link.startswith("socket:[")}


def test_a_start_says_what_a_newcomer_asks(mta: Mta) -> None:
    """Which file, which folder, which port, where mail goes, when it is ready; SIGHUP has the file read again; each
    child has its own listening sockets only, and nobody else may read mail, wherever it was made before."""
    mta.folder.mkdir(mode=0o755)
    for name in FOLDERS[:2]:
        (mta.folder / name).mkdir()
        (mta.folder / name).chmod(0o755)
    mta.start()
    try:
        asyncio.run(mta.accepting())
        said(mta, "zonemta: ready; recipients: 0 queued, 0 deferred, 0 held")
        log = mta.log.read_text()
        for words in (
            str(mta.config_file),
            f"queue in {mta.folder}",
            f"127.0.0.1 port {mta.port}",
            "zone 'default' sends to 127.0.0.1 port 9",
            f"{mta.folder / 'store'}: was readable by others",
        ):
            assert words in log
        while list(mta.children().values()).count("sender") < 2:
            time.sleep(0.02)
        children = mta.children()
        by_role = {
            role: [listening(pid) for pid, name in children.items() if name == role] for role in children.values()
        }
        assert by_role["queue"] == [set()]
        assert by_role["sender"] == [set(), set()]
        assert [len(own) for own in by_role["receiver"]] == [1, 1]
        assert by_role["receiver"][0] != by_role["receiver"][1]
        found = [path for name in FOLDERS for path in [mta.folder / name, *(mta.folder / name).rglob("*")]]
        assert {path for path in found if path.exists() and path.is_dir() and path.stat().st_mode & 0o077} == set()
        assert {path for path in (mta.folder / "journal").iterdir() if path.stat().st_mode & 0o077} == set()
        assert mta._process is not None
        for pid in children:
            os.kill(pid, signal.SIGHUP)
        assert mta.ask("size")["total"]["messages"] == 0
        assert mta.children() == children, "it concerns the supervisor alone"
        os.kill(mta._process.pid, signal.SIGHUP)
        said(mta, "by SIGHUP; changed: nothing")
        assert mta.ask("size")["total"]["messages"] == 0
    finally:
        mta.end()


def test_a_log_that_takes_no_more_ends_nothing(mta: Mta) -> None:
    """Its disk is full from the start on; a process that dies is started again, and SIGHUP ends nothing either."""
    true, mta.log = mta.log, Path("/dev/full")
    mta.start()
    mta.log = true
    try:
        asyncio.run(mta.taking())
        assert mta.kill("queue")
        assert mta._process is not None
        os.kill(mta._process.pid, signal.SIGHUP)
        asyncio.run(mta.taking())
        assert mta.kill("receiver")
        asyncio.run(_give(mta))
        assert mta.ask("size")["total"]["messages"] == 1
        assert mta.alive
    finally:
        mta.end()


def test_a_copy_of_a_queue_sends_nothing_before_it_is_adopted(tmp_path: Path) -> None:
    """It takes mail and says why none goes; a folder that was moved, and one that was adopted, are no copies."""
    first = Mta(tmp_path / "first", 9, home=tmp_path / "a")
    first.start()
    asyncio.run(first.taking())
    first.end()
    shutil.copytree(first.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("socket"))
    first.folder.rename(tmp_path / "moved")
    moved, copy = Mta(tmp_path / "moved", 9, home=tmp_path / "b"), Mta(tmp_path / "copy", 9, home=tmp_path / "c")
    try:
        for each in (moved, copy):
            each.start()
        for each in (moved, copy):
            asyncio.run(_give(each))
        end = time.monotonic() + 60
        while not moved.ask("list", state="deferred")["rows"]:  # it was tried, for nobody listens at port 9
            assert time.monotonic() < end
        assert moved.ask("copied") == ""
        assert "zonemta queue adopt" in copy.ask("copied")
        assert [row["state"] for row in copy.ask("list")["rows"]] == ["queued"]
        with pytest.raises(ValueError, match="not a copy"):
            moved.ask("adopt")
        copy.ask("adopt")
        while not copy.ask("list", state="deferred")["rows"]:
            assert time.monotonic() < end + 60
        copy.end()
        copy.start()
        assert copy.ask("copied") == ""
    finally:
        moved.end()
        copy.end()


async def test_a_backup_of_a_running_queue_is_a_queue(tmp_path: Path) -> None:
    """Made while mail comes in and goes out: sound, and all that was acknowledged before is in it."""
    ledger = Ledger()
    async with sink(ledger, dot_latency_s=0.02, rules=()) as running:
        mta = Mta(tmp_path / "queue", running.port, home=tmp_path / "a")
        mta.start()
        restored = Mta(tmp_path / "backup", running.port, home=tmp_path / "b")
        try:
            await mta.taking()
            client = Client(mta.port, ledger)
            letters = asyncio.create_task(client.hand_in(range(400), sessions=5))
            while client.replies[250] < 150:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            before = ledger.acknowledged
            words = ["backup", str(restored.folder), "--config", str(mta.config_file)]
            command = [sys.executable, "-m", "zonemta_py", *words]
            done = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            assert await done.wait() == 0
            await letters
            await mta.drained()
            mta.end()
            assert not (mta.folder / "backup.making").exists()
            restored.start()
            await restored.taking()
            assert "zonemta queue adopt" in restored.ask("copied")
            waiting = restored.ask("size")["total"]
            restored.ask("adopt")
            await restored.drained()
            restored.end()
            assert await restored.problems() == []
            records = [one for name in ("archive", "journal") for one in segments.read(restored.folder / name)]
            known = {unpack(one.body)[0] for one in records if one.type == Type.ENVELOPE}
            assert len(known) >= before >= 150
            assert waiting["messages"] <= len(known)
        finally:
            mta.end()
            restored.end()


async def test_sigterm_ends_what_is_under_way_and_begins_nothing(tmp_path: Path) -> None:
    """A delivery gets its answer, a message its 250, an idle client 421, a newcomer nothing; nobody is in doubt."""
    ledger = Ledger()
    async with sink(ledger, dot_latency_s=1.0, rules=()) as running:
        mta = Mta(tmp_path / "queue", running.port, home=tmp_path)
        mta.config_file.write_text(mta.config_file.read_text().replace("[server]", "[server]\nstop_s = 30"))
        mta.start()
        try:
            await mta.taking()
            await _give(mta)
            while (await asyncio.to_thread(mta.ask, "size"))["total"]["leased"] < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection("127.0.0.1", mta.port)
            idle, _ = await asyncio.open_connection("127.0.0.1", mta.port)
            await idle.readline()
            writer.write(b"EHLO x\r\nMAIL FROM:<a@src.test>\r\nRCPT TO:<b@x.test>\r\nDATA\r\nSubject: x\r\n")
            while not (await reader.readline()).startswith(b"354"):
                pass
            assert mta._process is not None
            mta._process.terminate()
            assert (await asyncio.wait_for(idle.readline(), 60)).startswith(b"421")
            writer.write(b"\r\nHi\r\n.\r\n")
            assert (await asyncio.wait_for(reader.readline(), 60)).startswith(b"250")
            assert await asyncio.to_thread(mta._process.wait, 60) == -signal.SIGTERM
            assert "restarting it" not in mta.log.read_text()
            with pytest.raises(OSError, match="Connect call failed"):
                await asyncio.open_connection("127.0.0.1", mta.port)
            mta.start()
            assert await asyncio.to_thread(mta.in_doubt) == []
            await mta.drained()
            assert running.counters.messages == 2
        finally:
            mta.end()


async def _give(mta: Mta) -> None:
    await mta.accepting()
    connection = await Connection.open(mta.port)
    await connection.transaction(Letter("1.0", "ann@src.test", ["bob@x.test"], b"Subject: x\r\n\r\nHi\r\n"))
    connection.close()


def test_receivers_may_open_as_many_files_as_their_clients_need(mta: Mta) -> None:
    """Started under a low soft limit, as shells have it, they raise it as far as they may."""
    low, hard = 256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    mta.program, mta.python = [f"--nofile={low}:", mta.python, *mta.program], "prlimit"  # it becomes the MTA
    mta.start()
    try:
        asyncio.run(mta.accepting())
        wanted = min(Config().limits.connections // 2 + 1, hard)
        assert wanted > low
        end = time.monotonic() + 60
        for pid in [pid for pid, role in mta.children().items() if role == "receiver"]:
            while _open_files(pid) < wanted:  # one greets clients while the other is on its way
                assert time.monotonic() < end
                time.sleep(0.02)
    finally:
        mta.end()


def _open_files(pid: int) -> int:
    """The soft limit of a process."""
    row = next(one for one in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in one)
    return int(row.split()[3])
