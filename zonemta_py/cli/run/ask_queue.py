"""Asks the queue of this machine through its socket, and says in a sentence why it cannot be asked.

While its MTA starts, it is waited for, START_S at most: whoever starts it and then asks need not know how long that
takes. A question that may have been heard is not asked again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.cli.run import folder_lock
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question

if TYPE_CHECKING:
    from zonemta_py.wire.blocking_client import QueueGone

START_S = 10.0
_SAID_S, _LOOK_S = 0.5, 0.05
_WAITS = "the MTA starts; its queue is waited for"


class NotRunning(CommandError):
    """There is no MTA."""


def ask_queue(folder: Path, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
    """Its answer; all rows, where that has pages. Raises CommandError if no MTA runs there (69, NotRunning), if it is
    another user's (77), with its refusal (65), or if it failed to answer (1)."""
    from zonemta_py.queue.api import QueueFault
    from zonemta_py.wire.blocking_client import QueueGone, ask_all

    begun, said = time.monotonic(), False
    while True:
        try:
            return ask_all(folder, question, *_, **arguments)
        except QueueGone as error:
            waited_s = time.monotonic() - begun
            if error.asked or waited_s >= START_S or not folder_lock.there(folder):
                raise _gone(error, folder) from None
            if waited_s >= _SAID_S and not said and sys.stderr.isatty():
                print(f"zonemta: {_WAITS}", file=sys.stderr, flush=True)
                said = True
            time.sleep(_LOOK_S)
        except PermissionError:
            sentence = f"{folder}: permission denied; run this as {owner(folder)}, or as root"
            raise CommandError(Exit.PERMISSION, sentence) from None
        except QueueFault as fault:
            raise CommandError(Exit.PROBLEMS, fault.reply.text) from None
        except ValueError as error:
            raise CommandError(Exit.DATA, str(error)) from None


def runs(folder: Path) -> bool:
    """Whether an MTA has that folder, or a queue answers there."""
    from zonemta_py.wire.blocking_client import QueueGone, ask

    try:
        return folder_lock.there(folder) or bool(ask(folder, questions.stable))
    except QueueGone as error:
        return error.asked
    except (PermissionError, ValueError):  # somebody is there
        return True


def _gone(error: QueueGone, folder: Path) -> CommandError:
    if error.asked:
        return CommandError(Exit.UNAVAILABLE, str(error))
    if folder_lock.there(folder):
        sentence = f"the MTA in {folder} runs, but its queue does not answer yet; its log may say why"
        return CommandError(Exit.UNAVAILABLE, sentence)
    return NotRunning(Exit.UNAVAILABLE, f"{error}, or name the MTA's folder with --folder")


def owner(folder: Path) -> str:
    """Whose MTA it is, as words."""
    try:
        return f"user {folder.owner()}"
    except (OSError, KeyError):
        return "the MTA's user"
