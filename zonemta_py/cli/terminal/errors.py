"""Exit codes, and the one place where an error becomes a sentence on stderr, or with --json a JSON object.

Promise: every error that a user can cause ends in one sentence with its remedy and the exit code below, never in a
traceback. A traceback is a bug of ours, and looks like one.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from enum import IntEnum

from zonemta_py.config import ConfigError


class Exit(IntEnum):
    """The numbers of sysexits.h, which sendmail made known, so that programs can tell what went wrong."""

    OK = 0
    PROBLEMS = 1
    """Something needs attention; the output says what."""
    USAGE = 64
    """The command line is wrong."""
    DATA = 65
    """The message or file given is malformed."""
    NO_INPUT = 66
    """A file to be read cannot be read."""
    NO_USER = 67
    """Recipients were rejected permanently."""
    UNAVAILABLE = 69
    """Something needed is unavailable: the MTA is not running, or a port or the store is in use."""
    CANT_CREATE = 73
    """A file or folder cannot be created or written."""
    DISK = 74
    """Reading or writing failed: the disk is full, damaged or gone."""
    TEMPORARY = 75
    """Not now; the same may work later."""
    PERMISSION = 77
    """The operating system, or the server, denies permission."""
    CONFIG = 78
    """The configuration is wrong."""
    INTERRUPTED = 130
    """Ctrl-C."""


class CommandError(Exception):
    """Ends the command: exit code and one sentence for stderr ("" to say nothing)."""

    def __init__(self, code: Exit, sentence: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


_OS_ERRORS: dict[int, tuple[Exit, str]] = {
    errno.ENOENT: (Exit.NO_INPUT, "name one that exists"),
    errno.EISDIR: (Exit.NO_INPUT, "name a file"),
    errno.ENOTDIR: (Exit.CANT_CREATE, "name a folder"),
    errno.EACCES: (Exit.PERMISSION, "change its permissions, or run as its owner"),
    errno.EPERM: (Exit.PERMISSION, "change its permissions, or run as its owner"),
    errno.EROFS: (Exit.CANT_CREATE, "name one on a writable disk"),
    errno.ENOSPC: (Exit.DISK, "free space on that disk, then try again"),
    errno.EDQUOT: (Exit.DISK, "free space in your quota, then try again"),
    errno.EIO: (Exit.DISK, "the disk is failing: check the system log, then run `zonemta fsck`"),
}


def from_os(error: OSError) -> CommandError:
    """What the operating system refused, with the remedy."""
    code, remedy = _OS_ERRORS.get(error.errno or 0, (Exit.DISK, "see the system log"))
    where = f"{error.filename}: " if error.filename else ""
    return CommandError(code, f"{where}{(error.strerror or str(error)).lower()}; {remedy}")


def guarded(command: Callable[[], object], as_json: bool = False) -> int:
    """Runs a command and returns its exit code; reports errors on stderr. as_json: as {"error": sentence, "exit":
    code}, in one line."""
    try:
        command()
        sys.stdout.flush()
        return Exit.OK
    except CommandError as stop:
        return _say(stop, as_json)
    except ConfigError as error:
        return _say(CommandError(Exit.CONFIG, str(error)), as_json)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it (`| head`); Python must not complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as error:
        return _say(from_os(error), as_json)


def _say(stop: CommandError, as_json: bool) -> int:
    if stop.sentence:
        lines = stop.sentence.splitlines() if stop.code == Exit.CONFIG else [stop.sentence]
        said = "\n".join(f"zonemta: {line}" for line in lines)
        if as_json:
            said = json.dumps({"error": stop.sentence, "exit": int(stop.code)}, ensure_ascii=False)
        print(said, file=sys.stderr)
    return stop.code
