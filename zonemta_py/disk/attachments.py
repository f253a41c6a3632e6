"""Files that are uploaded once, and to which mail refers, as `attachments/` of the queue's folder has them:

    <tenant>            an index: "zonemta attachments 1 " CRC32C in hex, newline, msgpack [tenant, [fields of Kept…]]
    <tenant>-<sha256>   a content, as it was uploaded; written once
    .<random>.new       an upload under way, locked (flock) by its process; <tenant>.new: an index being written

<tenant> is made of the SHA-256 of the tenant's name. Names that people give are in an index only, never in a path.

Promise: after `Upload.finish` a file and its name are on stable storage: first the content, then the index, which is
replaced as a whole. Who is killed before that leaves the index as it was, and remains that `tidy` removes. What is read
is what was uploaded: its digest is compared. Processes may share the folder: changes take turns by a lock (flock) of
the folder, and readers need none. Nothing in the store refers to these files: mail has copies.

Failures: AttachmentRefused; OSError from the disk as it comes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import msgpack

from zonemta_py.disk.files import replace_file, sync
from zonemta_py.disk.space import Space

FOLDER = "attachments"
BY_DIGEST = "sha256:"
"""Before the digest, where it stands for a name."""
NAMES_MAX = 1_000
"""Of one tenant: their index is written anew for each upload."""
_HEAD = b"zonemta attachments 1 %08x\n"
_INDEX = re.compile("[0-9a-f]{32}")
_CONTENT = re.compile("([0-9a-f]{32})-([0-9a-f]{64})")
_INDEX_COMING = re.compile(r"[0-9a-f]{32}\.new")
_COMING = re.compile(r"\.[0-9a-f]{16}\.new")


class AttachmentRefused(Exception):
    """One sentence: what is wrong, and what to do."""


class NoRoom(AttachmentRefused):
    """The disk is nearly full; later there may be room."""


class Kept(NamedTuple):
    """A file that is there. type: its media type. sha256: in hex."""

    name: str
    type: str
    size: int
    sha256: str
    uploaded_ms: int


class Attachments:
    """folder: the queue's. tenant_bytes: what the files of a tenant may have together. life_ms: how long a file lives
    after it was uploaded. file_bytes: how much more than its reserve the disk keeps free for mail."""

    def __init__(self, folder: Path, space: Space, tenant_bytes: int, life_ms: int, file_bytes: int) -> None:
        self.folder, self._space = folder / FOLDER, space
        self._most, self._life_ms, self._spare = tenant_bytes, life_ms, file_bytes

    def listed(self, tenant: str, now_ms: int) -> list[Kept]:
        """By name. Raises AttachmentRefused, OSError."""
        return sorted(self._alive(tenant, now_ms).values())

    def find(self, tenant: str, wanted: Collection[str], now_ms: int) -> dict[str, Kept]:
        """Those that are there. wanted: names, or BY_DIGEST and the digest. Raises AttachmentRefused, OSError."""
        alive = self._alive(tenant, now_ms)
        known = {BY_DIGEST + one.sha256: one for one in sorted(alive.values(), key=lambda one: one.uploaded_ms)} | alive
        found = {name: known[name] for name in wanted if name in known}
        return {name: one for name, one in found.items() if self._content(tenant, one.sha256).is_file()}

    def read(self, tenant: str, kept: Kept) -> bytes:
        """The file's bytes. Raises AttachmentRefused if it is gone meanwhile or damaged, OSError."""
        try:
            content = self._content(tenant, kept.sha256).read_bytes()
        except FileNotFoundError:
            raise AttachmentRefused(f"the attachment {kept.name!r} has just been removed; upload it again") from None
        if hashlib.sha256(content).hexdigest() != kept.sha256:
            raise AttachmentRefused(f"the attachment {kept.name!r} is damaged on disk; upload it again")
        return content

    def expires_ms(self, kept: Kept) -> int:
        """When its life is over: UNIX time."""
        return kept.uploaded_ms + self._life_ms

    def begin(self) -> Upload:
        """A new file. Raises OSError."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, exist_ok=True)
            sync(self.folder.parent)
        path = self.folder / f".{secrets.token_hex(8)}.new"
        with self._turn():  # so that `tidy` does not find it before it is locked
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
        return Upload(self, path, handle)

    def check_room(self, size: int) -> None:
        """Whether so many more bytes may be written. Raises NoRoom."""
        if self._space.room(time.monotonic()) < size + self._spare:
            raise NoRoom("the queue's disk is nearly full; free space on it, or remove attachments, then try again")
        self._space.fill(size)

    def enter(self, tenant: str, kept: Kept, path: Path) -> bool:
        """Makes what was uploaded to `path`, and is on stable storage, the file of that name; whether the name is new.
        Raises AttachmentRefused, OSError."""
        with self._turn():
            before = self._index(tenant)
            names = {name: one for name, one in before.items() if self._lives(one, kept.uploaded_ms)}
            new = kept.name not in names
            names[kept.name] = kept
            self._check_quota(names.values())
            path.replace(self._content(tenant, kept.sha256))
            sync(self.folder)
            self._write(tenant, names, before)
        return new

    def remove(self, tenant: str, name: str) -> bool:
        """Whether it was there. Raises AttachmentRefused, OSError."""
        if not self.folder.is_dir():
            return False
        with self._turn():
            before = self._index(tenant)
            names = {other: one for other, one in before.items() if other != name}
            if len(names) < len(before):
                self._write(tenant, names, before)
        return len(names) < len(before)

    def tidy(self, now_ms: int) -> None:
        """Removes files whose life is over, and what was left by who was killed. Raises OSError."""
        if not self.folder.is_dir():
            return
        with self._turn():
            for path in list(self.folder.iterdir()):
                if _COMING.fullmatch(path.name):
                    _remove_unlocked(path)
                elif _INDEX_COMING.fullmatch(path.name):
                    path.unlink(missing_ok=True)
                elif _INDEX.fullmatch(path.name):
                    self._end_lives(path, now_ms)
            self._remove_unknown()

    # -- inside

    def _end_lives(self, path: Path, now_ms: int) -> None:
        with contextlib.suppress(AttachmentRefused):  # damaged: for somebody to look at
            tenant, before = _parsed(path)
            names = {name: one for name, one in before.items() if self._lives(one, now_ms)}
            if len(names) < len(before):
                self._write(tenant, names, before)

    def _remove_unknown(self) -> None:
        """Contents that no index knows; none of a tenant whose index is damaged."""
        known: dict[str, set[str] | None] = {}
        for path in list(self.folder.iterdir()):
            if (found := _CONTENT.fullmatch(path.name)) is None:
                continue
            if found[1] not in known:
                try:
                    _, names = _parsed(self.folder / found[1])
                    known[found[1]] = {one.sha256 for one in names.values()}
                except AttachmentRefused:
                    known[found[1]] = None
            of_tenant = known[found[1]]
            if of_tenant is not None and found[2] not in of_tenant:
                path.unlink(missing_ok=True)

    def _alive(self, tenant: str, now_ms: int) -> dict[str, Kept]:
        return {name: one for name, one in self._index(tenant).items() if self._lives(one, now_ms)}

    def _lives(self, one: Kept, now_ms: int) -> bool:
        return now_ms < self.expires_ms(one)

    def _check_quota(self, names: Iterable[Kept]) -> None:
        """Raises AttachmentRefused."""
        sizes = {one.sha256: one.size for one in names}
        if len(list(names)) > NAMES_MAX:
            raise AttachmentRefused(f"there would be more than {NAMES_MAX:,} attachments; remove some first")
        if sum(sizes.values()) > self._most:
            what = f"the attachments would have {sum(sizes.values()):,} bytes together"
            raise AttachmentRefused(
                f"{what}; {self._most:,} at most: remove some first, or raise http.attachments_bytes"
            )

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Nobody else changes anything meanwhile, in this process or another."""
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _index(self, tenant: str) -> dict[str, Kept]:
        return _parsed(self.folder / _of(tenant))[1]

    def _content(self, tenant: str, sha256: str) -> Path:
        return self.folder / f"{_of(tenant)}-{sha256}"

    def _write(self, tenant: str, names: dict[str, Kept], before: dict[str, Kept]) -> None:
        """The index, then removes contents that it no longer names."""
        path = self.folder / _of(tenant)
        if names:
            packed = bytes(msgpack.packb([tenant, [list(one) for one in names.values()]]))
            replace_file(path, _HEAD % google_crc32c.value(packed) + packed, 0o600)
        else:
            path.unlink(missing_ok=True)
            sync(self.folder)
        for sha256 in {one.sha256 for one in before.values()} - {one.sha256 for one in names.values()}:
            self._content(tenant, sha256).unlink(missing_ok=True)


class Upload:
    """A file that is being uploaded, by any thread, one at a time; in the end `finish`, and in any case `abort`."""

    def __init__(self, to: Attachments, path: Path, handle: int) -> None:
        self._to, self._path, self._handle = to, path, handle
        self._lock = threading.Lock()
        """`abort` may come while a thread still writes."""
        self._sum, self.size = hashlib.sha256(), 0

    def write(self, block: bytes) -> None:
        """Raises NoRoom, OSError."""
        self._to.check_room(len(block))
        rest = memoryview(block)
        with self._lock:
            while rest:
                rest = rest[os.write(self._handle, rest) :]  # after `abort`, -1 is a bad descriptor
        self._sum.update(block)
        self.size += len(block)

    def finish(self, tenant: str, name: str, kind: str, now_ms: int) -> tuple[Kept, bool]:
        """The file has that name from now on; whether the name is new. Raises AttachmentRefused, OSError."""
        with self._lock:
            os.fsync(self._handle)
        kept = Kept(name, kind, self.size, self._sum.hexdigest(), now_ms)
        return kept, self._to.enter(tenant, kept, self._path)

    def abort(self) -> None:
        """Removes what has got no name. Idempotent."""
        with self._lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
                self._path.unlink(missing_ok=True)


def _of(tenant: str) -> str:
    """What the tenant's files begin with: nothing that somebody has written."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:32]


def _parsed(path: Path) -> tuple[str, dict[str, Kept]]:
    """An index: the tenant, its files by name; nothing where there is none. Raises AttachmentRefused, OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return "", {}
    head, packed = data[: len(_HEAD % 0)], data[len(_HEAD % 0) :]
    if head != _HEAD % google_crc32c.value(packed):
        raise AttachmentRefused(f"the index {FOLDER}/{path.name} is damaged; move it away, then upload the files again")
    tenant, rows = msgpack.unpackb(packed)
    return tenant, {row[0]: Kept(*row) for row in rows}


def _remove_unlocked(path: Path) -> None:
    """An upload whose process is gone."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(handle)
