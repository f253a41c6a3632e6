"""`zonemta backup DIR`: a consistent copy of a queue that is running.

The queue makes it in its own folder. On the same file system it is moved from there; to another one it is copied under
a name that says so, and has its own name when all of it is on that disk: whatever is called DIR is whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.config import Config
from zonemta_py.logs.causes import cause
from zonemta_py.metrics.quantities import size
from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueFault
from zonemta_py.queues import layout
from zonemta_py.wire import SOCKET
from zonemta_py.wire.blocking_client import QueueGone, ask_at

_COPYING = ".making"


def backup(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New folder for the copy; must not exist yet.")],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Back up the running queue to a new folder. Mail keeps flowing; most files are hard-linked, not copied.

    To restore: zonemta run --folder DIR (or a copy of DIR), then zonemta queue adopt.
    """
    chosen = configuration(config, folder)
    if directory.exists():
        raise CommandError(Exit.CANT_CREATE, f"{directory}: already exists; name a new folder")
    with alone(chosen.folder):
        made = copied(chosen)
        try:
            gather(chosen.folder, made)
            _bring(made, directory)
        except OSError as error:
            raise from_os(OSError(error.errno, error.strerror, str(directory))) from None
        finally:
            shutil.rmtree(made, ignore_errors=True)
    found = [path.stat() for path in directory.rglob("*") if path.is_file()]
    bytes_ = sum({(one.st_dev, one.st_ino): one.st_size for one in found}.values())  # segments are linked in it, too
    said = f"{directory}: {size(bytes_)}; it sends nothing until `zonemta queue adopt`"
    with Telling(json) as tell:
        tell(said, folder=directory, bytes=bytes_)


def copied(config: Config) -> Path:
    """The copy of the MTA's first queue, in its folder; the others have theirs, too. Of a cluster, of this node's
    queues: a copy is only good for the machine that it is on. Raises CommandError."""
    if not config.cluster.enabled:
        return Path(answer(config, questions.backup))
    made = list[str]()
    for number in layout.numbers(config.folder):
        try:
            made.append(ask_at(layout.folder_of(config.folder, number) / SOCKET, questions.backup))
        except QueueGone as error:
            raise CommandError(Exit.UNAVAILABLE, str(error)) from None
        except QueueFault as fault:
            raise CommandError(Exit.PROBLEMS, fault.reply.text) from None
        except (ValueError, OSError) as error:
            raise CommandError(Exit.DISK, cause(error)) from None
    return Path(made[0])


def gather(folder: Path, made: Path) -> None:
    """Of several queues, the copies of the others come into that of the first. Raises OSError."""
    numbers = layout.numbers(folder)
    layout.write(made, numbers, home=layout.home_of(folder))
    for number in numbers[1:]:
        place = layout.folder_of(made, number)
        place.rmdir()
        (layout.folder_of(folder, number) / made.name).rename(place)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other backup is made meanwhile: both would have the same folder to begin with. Raises CommandError."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # who cannot look into it is told why by the queue's socket
        yield
        return
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sentence = f"{folder}: another backup of it is being made; try again when that has ended"
            raise CommandError(Exit.TEMPORARY, sentence) from None
        yield
    finally:
        os.close(held)


def _bring(made: Path, directory: Path) -> None:
    """Raises OSError: then there is no such directory."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(directory)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copying = directory.with_name(directory.name + _COPYING)
        shutil.rmtree(copying, ignore_errors=True)  # of a command that was killed
        try:
            _copy(made, copying)
            os.sync()
            copying.rename(directory)
        except BaseException:
            shutil.rmtree(copying, ignore_errors=True)
            raise
    os.sync()


def _copy(made: Path, to: Path) -> None:
    """With the times and rights of each file, and its owner where that is possible. Raises OSError."""
    for source in (made, *sorted(made.rglob("*"))):
        target, about = to / source.relative_to(made), source.stat()
        if source.is_dir():
            target.mkdir(mode=0o700)
        else:
            shutil.copy2(source, target)
        if os.geteuid() == 0:
            os.chown(target, about.st_uid, about.st_gid)
