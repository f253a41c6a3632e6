"""`zonemta backup`, to the same disk and to another one: what is called a backup is whole, or is not there."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Served
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk import identity
from zonemta_py.disk.attachments import Attachments
from zonemta_py.disk.space import Space
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

BODY = b"Subject: Hello\r\n\r\n" + random.Random(1).randbytes(20_000).hex().encode() + b"\r\n"
FILE_MOST = 10_000


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has no second file system that can be written")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def put(queue: Any) -> None:
    async def run(local: LocalQueue) -> None:
        envelope = Envelope("ann@example.com", [Recipient("bob@example.org")], len(BODY))
        envelope.received_ms = time.time_ns() // 1_000_000
        await local.accept(envelope, BODY)

    queue.do(run)


def command(folder: Path, target: Path, most: int = resource.RLIM_INFINITY) -> tuple[int, str]:
    """In a process of its own, which may write files of so many bytes at most: as on a disk that is full."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # noqa: E731
    words = [sys.executable, "-m", "zonemta_py", "backup", str(target), "--folder", str(folder)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=limit)
    return ran.returncode, ran.stderr


def test_adopting_it_asks_while_the_original_runs(
    served: Callable[..., Any], zonemta: Callable[..., Any], tmp_path: Path
) -> None:
    """Both would send the same mail. Who says --yes, and who has ended the original, is not asked."""
    original, copies = served(), [tmp_path / "copy", tmp_path / "second"]
    identity.copied(tmp_path, "")

    async def start(queue: LocalQueue) -> None:
        queue.core.copied = identity.copied(queue.core.config.folder, "")

    for copy in copies:
        assert zonemta("backup", copy, "--folder", tmp_path).code == Exit.OK
    for copy, ended in zip(copies, (False, True), strict=True):
        running = Served({"server": {"folder": copy}})
        try:
            running.do(start)
            if ended:
                original.close()
            else:
                refused = zonemta("queue", "adopt", "--folder", copy)
                assert (refused.code, refused.err.count("\n")) == (Exit.USAGE, 1)
                assert f"the original in {tmp_path} still runs" in refused.err
                assert "--yes" in refused.err
            ran = zonemta("queue", "adopt", "--folder", copy, *([] if ended else ["--yes"]))
            assert (ran.code, "lives here now" in ran.out) == (Exit.OK, True)
        finally:
            running.close()


def test_uploads_are_in_it(served: Callable[..., Any], tmp_path: Path) -> None:
    """As at that moment, whatever becomes of them afterwards."""
    served()
    shelf = Attachments(tmp_path, Space(tmp_path, 0), 1000, 1_000_000, 0)
    new = shelf.begin()
    new.write(b"terms")
    kept, _ = new.finish("shop", "terms.pdf", "application/pdf", 0)
    new.abort()
    assert command(tmp_path, tmp_path / "copy") == (0, "")
    shelf.remove("shop", "terms.pdf")
    copy = Attachments(tmp_path / "copy", Space(tmp_path, 0), 1000, 1_000_000, 0)
    assert copy.find("shop", ["terms.pdf"], 0) == {"terms.pdf": kept}
    assert copy.read("shop", kept) == b"terms"


def test_to_another_disk(served: Callable[..., Any], tmp_path: Path, elsewhere: Path) -> None:
    """All of it, its owner included; a second one is another one."""
    put(served())
    (tmp_path / "archive").mkdir(exist_ok=True)
    (closed := tmp_path / "archive" / "0000000000000001.journal").write_bytes(b"")
    if os.geteuid() == 0:
        shutil.chown(closed, 65534)
    assert command(tmp_path, elsewhere / "monday" / "queue") == (Exit.OK, "")
    copy = elsewhere / "monday" / "queue"
    assert {path.name for path in copy.iterdir()} >= {"store", "journal", "receipts"}
    assert copy.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        assert [path.stat().st_uid for path in (copy / "archive").iterdir()] == [65534]
    assert not (tmp_path / "backup.making").exists()
    code, said = command(tmp_path, copy)
    assert (code, said) == (Exit.CANT_CREATE, f"zonemta: {copy}: already exists; name a new folder\n")


def test_a_disk_that_is_full_has_no_backup(served: Callable[..., Any], tmp_path: Path, elsewhere: Path) -> None:
    """One sentence, and nothing that looks like one; the next goes on as if nothing had been."""
    put(served())
    code, said = command(tmp_path, elsewhere / "copy", FILE_MOST)
    assert (code, said) == (Exit.DISK, f"zonemta: {elsewhere}/copy: file too large; see the system log\n")
    assert list(elsewhere.iterdir()) == []
    (elsewhere / "copy.making").mkdir()  # of one that was killed
    assert command(tmp_path, elsewhere / "copy")[0] == Exit.OK
    assert [path.name for path in elsewhere.iterdir()] == ["copy"]


def test_one_at_a_time(served: Callable[..., Any], tmp_path: Path) -> None:
    """Each begins in the same folder: a second one would take away what the first copies."""
    put(served())
    target = tmp_path.with_name("copy")
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, said = command(tmp_path, target)
    finally:
        os.close(held)
    assert (code, "another backup of it is being made; try again" in said) == (Exit.TEMPORARY, True)
    assert command(tmp_path, target)[0] == Exit.OK
