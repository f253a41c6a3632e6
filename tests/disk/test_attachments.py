"""Files uploaded once: whatever they are called and whoever is killed, a name means a whole content or nothing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.disk.attachments import BY_DIGEST, FOLDER, AttachmentRefused, Attachments, Kept, NoRoom
from zonemta_py.disk.space import Space

LIFE_MS = 1000


def open_folder(folder: Path, most: int = 10_000, spare: int = 0) -> Attachments:
    return Attachments(folder, Space(folder, 0), most, LIFE_MS, spare)


def upload(to: Attachments, name: str, content: bytes, tenant: str = "shop", now_ms: int = 0) -> Kept:
    new = to.begin()
    try:
        new.write(content)
        return new.finish(tenant, name, "text/plain", now_ms)[0]
    finally:
        new.abort()


def state(of: Attachments, tenant: str = "shop", now_ms: int = 0) -> dict[str, bytes]:
    return {one.name: of.read(tenant, one) for one in of.listed(tenant, now_ms)}


def files(folder: Path) -> int:
    return len(list((folder / FOLDER).iterdir()))


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/a", "a\x00b", "ü" * 200, "index", "." * 32, "0" * 32])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    """It is in the index alone; nothing is written outside the folder, and nobody else may read it."""
    (tmp_path / "queue").mkdir()
    kept = upload(shelf := open_folder(tmp_path / "queue"), name, b"x")
    assert shelf.find("shop", [name], 0) == {name: kept}
    assert [path.name for path in tmp_path.iterdir()] == ["queue"]
    assert [path.name for path in (tmp_path / "queue").iterdir()] == [FOLDER]
    assert (tmp_path / "queue" / FOLDER).stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "queue" / FOLDER).iterdir()} == {0o600}


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    """However many names it has; it goes with the last of them. Another tenant's is another one."""
    shelf = open_folder(tmp_path)
    one, two = upload(shelf, "a", b"same"), upload(shelf, "b", b"same")
    upload(shelf, "a", b"same", "other")
    assert one.sha256 == two.sha256 == hashlib.sha256(b"same").hexdigest()
    assert files(tmp_path) == 4
    assert shelf.remove("shop", "a")
    assert state(shelf) == {"b": b"same"}
    assert shelf.remove("shop", "b")
    assert not shelf.remove("shop", "b")
    assert (files(tmp_path), state(shelf, "other")) == (2, {"a": b"same"})


def test_a_name_gets_another_content(tmp_path: Path) -> None:
    """And the earlier one is gone, by its digest too."""
    shelf = open_folder(tmp_path)
    before = upload(shelf, "a", b"before")
    after = upload(shelf, "a", b"after")
    wanted = [BY_DIGEST + before.sha256, BY_DIGEST + after.sha256]
    assert [*shelf.find("shop", wanted, 0)] == wanted[1:]
    assert state(open_folder(tmp_path)) == {"a": b"after"}


class Killed(BaseException):
    """As by SIGKILL: nothing is cleaned up."""


def dying(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """From now on the process dies before its so-manieth step on the disk; the steps that were done."""
    done: list[str] = []

    def step(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def stepped(*arguments: object, **more: object) -> object:
            if len(done) == after:
                raise Killed
            done.append(name)
            return real(*arguments, **more)

        return stepped

    for module, name in ((os, "fsync"), (os, "write"), (os, "replace"), (os, "unlink"), (os, "open")):
        monkeypatch.setattr(module, name, step(name, getattr(module, name)))
    monkeypatch.setattr(Path, "unlink", step("unlink", Path.unlink))
    monkeypatch.setattr(Path, "replace", step("replace", Path.replace))
    return done


@pytest.mark.parametrize("what", ["upload", "replace", "remove", "tidy"])
def test_killed_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Each name means its content before or its content after, all of it; the next start leaves no remains."""
    ends: set[tuple[tuple[str, bytes], ...]] = set()
    for after in range(100):
        folder = tmp_path / f"{what}{after}"
        folder.mkdir()
        shelf = open_folder(folder)
        upload(shelf, "old", b"old", now_ms=-LIFE_MS)
        upload(shelf, "a", b"before")
        with monkeypatch.context() as patch:
            done = dying(patch, after)
            try:
                work = {
                    "upload": lambda shelf=shelf: upload(shelf, "b", b"after"),
                    "replace": lambda shelf=shelf: upload(shelf, "a", b"after"),
                    "remove": lambda shelf=shelf: shelf.remove("shop", "a"),
                    "tidy": lambda shelf=shelf: shelf.tidy(LIFE_MS),
                }
                work[what]()
            except Killed:
                pass
        again = open_folder(folder)
        found = state(again)
        ends.add(tuple(sorted(found.items())))
        again.tidy(0)
        assert state(again) == found
        assert files(folder) == (1 + len(found) if found else 0), sorted((folder / FOLDER).iterdir())
        if len(done) < after:
            break
    before: dict[str, bytes] = {"a": b"before"}
    ended: dict[str, bytes] = {
        "upload": before | {"b": b"after"}, "replace": {"a": b"after"}, "remove": {}, "tidy": {},
    }[what]  # fmt: skip
    assert ends == {tuple(sorted(before.items())), tuple(sorted(ended.items()))}


def test_after_an_upload_all_is_on_stable_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content, its name, the index, and its name, in this order: a name never means what is not there."""
    shelf, done, sync, rename = open_folder(tmp_path), list[str](), os.fsync, os.replace
    new = shelf.begin()
    new.write(b"x")

    def what(path: str | Path) -> str:
        name = Path(path).name.removesuffix(".new")
        return "content" if "-" in name or name.startswith(".") else name if name == FOLDER else "index"

    def fsync(handle: int) -> None:
        done.append("sync " + what(os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def replace(source: Path, target: Path) -> None:
        done.append("rename " + what(target))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    new.finish("shop", "a", "text/plain", 0)
    new.abort()
    content, index = ["sync content", "rename content"], ["sync index", "rename index"]
    assert done == [*content, f"sync {FOLDER}", *index, f"sync {FOLDER}"]


def test_limits(tmp_path: Path) -> None:
    """Of all contents together, each counted once; of names; of the disk. What is refused leaves nothing."""
    shelf = open_folder(tmp_path, most=10)
    upload(shelf, "a", b"123456")
    upload(shelf, "b", b"123456")
    with pytest.raises(AttachmentRefused, match="would have 12 bytes together; 10 at most: remove some"):
        upload(shelf, "c", b"654321")
    upload(shelf, "c", b"654321", "other")
    assert (state(shelf), files(tmp_path)) == ({"a": b"123456", "b": b"123456"}, 4)
    with pytest.raises(NoRoom, match="nearly full"):
        upload(open_folder(tmp_path, spare=1 << 60), "d", b"x")
    assert files(tmp_path) == 4


def test_too_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is written anew for each upload."""
    monkeypatch.setattr("zonemta_py.disk.attachments.NAMES_MAX", 2)
    shelf = open_folder(tmp_path)
    for name in "aba":
        upload(shelf, name, b"x")
    with pytest.raises(AttachmentRefused, match="more than 2 attachments; remove some"):
        upload(shelf, "c", b"x")


def test_a_life_ends(tmp_path: Path) -> None:
    """At once for those who ask; what is uploaded again lives anew."""
    shelf = open_folder(tmp_path)
    upload(shelf, "a", b"a")
    upload(shelf, "b", b"b")
    upload(shelf, "a", b"a", now_ms=500)
    assert [one.name for one in shelf.listed("shop", LIFE_MS)] == ["a"]
    assert shelf.find("shop", ["b"], LIFE_MS) == {}
    shelf.tidy(LIFE_MS)
    assert files(tmp_path) == 2
    shelf.tidy(500 + LIFE_MS)
    assert files(tmp_path) == 0


def test_what_is_damaged_is_neither_sent_nor_deleted(tmp_path: Path) -> None:
    """A content with another byte; an index, whose contents stay for whoever mends it."""
    shelf = open_folder(tmp_path)
    kept = upload(shelf, "a", b"12345")
    content = tmp_path / FOLDER / next(one for one in os.listdir(tmp_path / FOLDER) if "-" in one)
    content.write_bytes(b"12344")
    with pytest.raises(AttachmentRefused, match="'a' is damaged on disk; upload it again"):
        shelf.read("shop", kept)
    assert upload(shelf, "a", b"12345") == kept
    assert shelf.read("shop", kept) == b"12345", "mended"
    index = content.with_name(content.name.partition("-")[0])
    index.write_bytes(index.read_bytes()[:-1] + b"\x01")
    with pytest.raises(AttachmentRefused, match=r"the index attachments/[0-9a-f]{32} is damaged; move it away"):
        shelf.listed("shop", 0)
    shelf.tidy(LIFE_MS)
    assert files(tmp_path) == 2
    content.unlink()
    with pytest.raises(AttachmentRefused, match="has just been removed"):
        shelf.read("shop", kept)


LOCKER = "import fcntl, os, sys; h = os.open(sys.argv[1], 0); fcntl.flock(h, 2); print(flush=True); input()"


def test_others_may_work_on_it(tmp_path: Path) -> None:
    """A change waits for another process's turn; an upload under way is no remains; one whose process died is."""
    shelf = open_folder(tmp_path)
    upload(shelf, "a", b"a")
    coming = open_folder(tmp_path).begin()
    shelf.tidy(0)
    coming.write(b"b")
    coming.finish("shop", "b", "text/plain", 0)
    coming.abort()
    assert state(shelf) == {"a": b"a", "b": b"b"}
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(tmp_path / FOLDER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert locker.stdout is not None
    locker.stdout.readline()
    removing = threading.Thread(target=shelf.remove, args=("shop", "b"))
    removing.start()
    removing.join(0.05)
    assert removing.is_alive()
    assert state(shelf) == {"a": b"a", "b": b"b"}, "readers need no turn"
    locker.communicate(b"\n")
    removing.join(20)
    assert state(shelf) == {"a": b"a"}
