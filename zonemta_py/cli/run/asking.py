"""Asks the queue of this machine through its socket, and says in a sentence why it cannot be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zonemta_py.cli.terminal.errors import CommandError, Exit


def ask_queue(folder: Path, question: str, **arguments: Any) -> Any:
    """Its answer; all rows, where that has pages. Raises CommandError if no MTA runs there (69), if it is another
    user's (77), or with its refusal (65)."""
    from zonemta_py.wire.client import QueueGone
    from zonemta_py.wire.pages import ask_all

    try:
        return ask_all(folder, question, **arguments)
    except QueueGone as error:
        raise CommandError(Exit.UNAVAILABLE, f"{error}, or name the MTA's folder with --folder") from None
    except PermissionError:
        sentence = f"{folder}: permission denied; run this as {owner(folder)}, or as root"
        raise CommandError(Exit.PERMISSION, sentence) from None
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None


def owner(folder: Path) -> str:
    """Whose MTA it is, as words."""
    try:
        return f"user {folder.owner()}"
    except (OSError, KeyError):
        return "the MTA's user"
