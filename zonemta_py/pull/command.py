"""The first line of a connection: a command and its arguments, separated by spaces or tabs. Pure.

Positional arguments come first, then options as `name=value` and words such as `id`. What cannot be understood is a
`LineError`: one sentence that says how the command is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from zonemta_py.config import QUEUE_NAME

LINE_BYTES_MAX = 1_000
"""Longest first line."""
DEFAULT = "default"
"""The queue of a command that names none."""
_RECEIPT = re.compile(r"[0-9a-zA-Z-]{1,64}\.[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")
_BYTES = re.compile(r"[0-9]{1,15}")


class LineError(Exception):
    """One sentence with the remedy."""


@dataclass(slots=True)
class Command:
    """seconds, delay, wait: None or in seconds. size: bytes that a push must have, None: not said. id: a push is
    answered with the message's id. envelope: the message comes with its envelope before it."""

    verb: str
    queue: str = DEFAULT
    receipt: str = ""
    seconds: float | None = None
    delay: float | None = None
    wait: float | None = None
    priority: int | None = None
    size: int | None = None
    id: bool = False
    envelope: bool = False
    token: str = ""


class Form(NamedTuple):
    """How a command is written. needed: how many of the positional arguments must be there."""

    words: tuple[str, ...]
    options: tuple[str, ...]
    about: str
    needed: int = 0


COMMANDS = {
    "push": Form(("queue",), ("priority", "delay", "size", "id"), "then the message, to the end of file"),
    "pop": Form(("queue",), ("wait", "envelope"), "takes the oldest message"),
    "reserve": Form(("queue", "seconds"), ("wait", "envelope"), "a receipt and size on a line, then the message"),
    "ack": Form(("receipt",), (), "the reserved message is done", 1),
    "nack": Form(("receipt", "delay"), (), "puts it back, for others at once or after a delay", 1),
    "extend": Form(("receipt", "seconds"), (), "reserves it for so long from now", 2),
    "peek": Form(("queue",), ("envelope",), "shows the oldest message and leaves it"),
    "size": Form(("queue",), (), "how many messages are ready, leased, delayed and held"),
    "queues": Form((), (), "the same for every queue, by name"),
    "help": Form((), (), "this list"),
}
_FLAGS = frozenset(("id", "envelope"))


def parse(line: bytes) -> Command:
    """line: without its end. Raises LineError."""
    words = line.decode("latin-1").replace("\t", " ").split(" ")
    words = [word for word in words if word]
    if not words:
        raise LineError("the first line is empty; send a command, such as help")
    verb, *rest = words
    if verb == "auth":
        if len(rest) != 1:
            raise LineError("write auth TOKEN on a line of its own, before the command")
        return Command(verb, token=rest[0])
    form = COMMANDS.get(verb)
    if form is None:
        raise LineError(f"{_shown(verb)} is not a command; send one of {', '.join(COMMANDS)}")
    command = Command(verb)
    for name, value in _arguments(verb, form, rest):
        setattr(command, name, value)
    return command


def _arguments(verb: str, form: Form, words: list[str]) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    positional = 0
    for word in words:
        name, equals, text = word.partition("=")
        if equals and name in (*form.words, *form.options) and name not in _FLAGS:
            pass
        elif word in _FLAGS and word in form.options and (positional or not form.words):
            name, text = word, ""
        elif not equals and positional < len(form.words):
            name, text = form.words[positional], word
            positional += 1
        else:
            raise LineError(f"{verb} does not understand {_shown(word)}; write {usage(verb)}")
        if name in found:
            raise LineError(f"{verb} was told its {name} twice; write {usage(verb)}")
        found[name] = _VALUES[name](text)
    for name in form.words[: form.needed]:
        if name not in found:
            raise LineError(f"{verb} needs {name.upper()}; write {usage(verb)}")
    return list(found.items())


def usage(verb: str) -> str:
    """As "pop [queue] [wait=SECONDS] [envelope]"."""
    form = COMMANDS[verb]
    words = [name.upper() if at < form.needed else f"[{name}]" for at, name in enumerate(form.words)]
    options = [f"[{name}]" if name in _FLAGS else f"[{name}={_UNITS[name]}]" for name in form.options]
    return " ".join([verb, *words, *options])


def overview() -> str:
    """All commands, at most 80 columns wide."""
    lines = ["A command is the first line of a connection:", ""]
    for verb, form in COMMANDS.items():
        lines += [f"  {usage(verb)}", f"      {form.about}"]
    return "\n".join([*lines, "", "A connection that ends with a reset means no, or that nobody knows.", ""])


def _queue(text: str) -> str:
    if not QUEUE_NAME.fullmatch(text):
        raise LineError(
            f"{_shown(text)} is not the name of a queue; use 1 to 63 of A-Z a-z 0-9 . _ -, the first a letter or digit"
        )
    return text.lower()


def _receipt(text: str) -> str:
    if not _RECEIPT.fullmatch(text):
        raise LineError(f"{_shown(text)} is not a receipt; send the first word that reserve answered")
    return text


def _seconds(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise LineError(f"{_shown(text)} is not a number of seconds; write it as 30 or 0.5")
    return float(text)


def _priority(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]", text):
        raise LineError(f"{_shown(text)} is not a priority; write a number from -9 to 9, 9 for the most urgent")
    return int(text)


def _size(text: str) -> int:
    if not _BYTES.fullmatch(text):
        raise LineError(f"{_shown(text)} is not a size; write the number of bytes that follow this line")
    return int(text)


def _flag(_: str) -> bool:
    return True


_VALUES: dict[str, Callable[[str], Any]] = {
    "queue": _queue, "receipt": _receipt, "seconds": _seconds, "delay": _seconds, "wait": _seconds,
    "priority": _priority, "size": _size, "id": _flag, "envelope": _flag,
}  # fmt: skip
_UNITS = {"priority": "-9…9", "delay": "SECONDS", "wait": "SECONDS", "size": "BYTES"}


def _shown(text: str) -> str:
    return ascii(text[:60])
