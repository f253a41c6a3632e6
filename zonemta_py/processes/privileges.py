"""Which user the MTA is: root binds the ports, and is root no more before the network or a plugin is read.

`server.user` names the user, who owns the MTA's folder and may read every file that the configuration names: keys and
certificates are read again when they change, so reading them before the drop would not be enough. The supervisor gives
up root for good: it holds the listening sockets, so no child needs a port bound anew.

Failures: what that user lacks is a ConfigError, one sentence with the remedy.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pydantic

from zonemta_py.config import Config, ConfigError

_DEEP = ("store", "journal")
"""Folders whose files are looked at too: commands given by root may have left some there."""


class Identity(NamedTuple):
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    groups: list[int]


def identity(config: Config) -> Identity | None:
    """Who is to be become, or None: nobody else than who runs this. Raises ConfigError."""
    if not config.server.user:
        return None
    who = _known(config.server.user, config.server.group)
    if os.geteuid() in (0, who.uid):
        return who if os.geteuid() != who.uid else None
    raise ConfigError(
        f"server.user: {me()!r} cannot become {who.name!r}; start it as root or as {who.name!r}, or remove the key"
    )


def me() -> str:
    """The name of who runs this."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def drop(config: Config) -> None:
    """Becomes server.user, for good, where it is set and this is root. Raises ConfigError."""
    who = identity(config)
    if who is None:
        return
    os.setgroups(who.groups)
    os.setresgid(who.gid, who.gid, who.gid)
    os.setresuid(who.uid, who.uid, who.uid)
    for sentence in _unreadable(config, who):
        raise ConfigError(sentence)


def unreadable(config: Config, who: Identity) -> list[str]:
    """What that user may not read, each in one sentence. Only where no other thread runs (`seen_by`)."""
    with seen_by(config):
        return list(_unreadable(config, who))


@contextmanager
def seen_by(config: Config) -> Iterator[None]:
    """Root looks at files as server.user does, in the block; all threads do, so there should be no other one."""
    try:
        who = identity(config) if os.geteuid() == 0 else None
    except ConfigError:
        who = None
    if who is None:
        yield
        return
    before, gid = os.getgroups(), os.getegid()
    os.setgroups(who.groups)
    os.setegid(who.gid)
    os.seteuid(who.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(before)


def _unreadable(config: Config, who: Identity) -> Iterator[str]:
    for what, path in _needed(config):
        if not _readable(path):
            yield (
                f"{what}{path}: user {who.name!r} (server.user) may not read it; let that user read the file and enter"
                " the folders above it, or put it elsewhere"
            )


def stranger(folder: Path, who: Identity) -> str:
    """One sentence if something in the MTA's folder belongs to somebody else; else ""."""
    for path in _inside(folder):
        owner = path.lstat().st_uid
        if owner != who.uid:
            return (
                f"{path}: belongs to {_name(owner)!r}, but the MTA is to be {who.name!r} (server.user);"
                f" `chown -R {who.name} {folder}`"
            )
    return ""


def interface_fault(name: str) -> str:
    """Why this user could not send from a network interface; "" if it could."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode() + b"\0")
        except PermissionError:
            return f"{me()!r} lacks the capability CAP_NET_RAW, without which this kernel does not bind to interfaces"
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return ""


def _known(user: str, group: str) -> Identity:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(
            f"server.user: this machine has no user {user!r}; `useradd --system {user}` creates it"
        ) from None
    if not group:
        return Identity(user, entry.pw_uid, entry.pw_gid, os.getgrouplist(user, entry.pw_gid))
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(
            f"server.group: this machine has no group {group!r}; `groupadd --system {group}` creates it"
        ) from None
    return Identity(user, entry.pw_uid, gid, [gid])


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _inside(folder: Path) -> Iterator[Path]:
    from zonemta_py.journal.folders import FOLDER as QUEUES

    yield folder
    for path in folder.iterdir():
        yield path
        if path.name in _DEEP and path.is_dir():
            yield from path.iterdir()
        elif path.name == QUEUES and path.is_dir():
            for queue in path.iterdir():
                yield from _inside(queue) if queue.is_dir() else [queue]


def _needed(config: Config) -> Iterator[tuple[str, Path]]:
    """Python, this program, and every file that the configuration names; with what they are, where that is not clear.

    What is imported later, and in children that are started again, is read by that user.
    """
    for module in (os.__file__, pydantic.__file__, __file__):
        yield "", Path(module)
    for where, path in _named("", config):
        if where != "server.folder":
            yield f"{where}: ", path


def _named(where: str, value: object) -> Iterator[tuple[str, Path]]:
    if isinstance(value, Path):
        yield where, value.expanduser()
    elif isinstance(value, pydantic.BaseModel):
        for key, one in value:
            yield from _named(f"{where}.{key}".removeprefix("."), one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _named(f"{where}[{getattr(one, 'name', number)}]", one)


def _readable(path: Path) -> bool:
    """Also for what is not there, which others say better."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return os.access(path, os.R_OK, effective_ids=True)
