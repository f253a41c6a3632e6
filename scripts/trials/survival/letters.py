"""Letters: messages made from their number alone, so that whoever finds one can say whether a byte of it is wrong.

Every attempt to hand a letter in makes another message with recipients and sender of its own: so an attempt whose reply
was lost, and which may or may not have been accepted, is never mistaken for the next one.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

LARGE_BYTES = 65_536
_LINE = "Nothing that was acknowledged is ever lost, and nothing comes that was not sent. "
_NAME = re.compile(r"([0-9]+)\.([0-9]+)")


class Letter(NamedTuple):
    """name: "number.attempt", which Message-ID, sender and recipients are made of. data: as sent, not dot-stuffed."""

    name: str
    sender: str
    recipients: list[str]
    data: bytes


def letter(number: int, attempt: int = 0, *, kinds: str = "plain later gone", large: float = 0.02) -> Letter:
    """One recipient mostly, up to 30 in every tenth letter; `large` is the share of letters of more than 64 KB.

    kinds: what recipients are called: the sink's rules put the "later" off now and then, and refuse the "gone".
    """
    dice = random.Random(number)
    name = f"{number}.{attempt}"
    count = dice.choice((2, 5, 30)) if dice.random() < 0.1 else 1
    size = dice.randint(LARGE_BYTES, 5 * LARGE_BYTES) if dice.random() < large else dice.randint(200, 6000)
    choice = kinds.split()
    weights = (90, 8, 2)[: len(choice)]
    recipients = [
        f"{dice.choices(choice, weights)[0]}-{name}.{index}@{dice.choice(('one.test', 'two.test', 'bulk.test'))}"
        for index in range(count)
    ]
    head = (
        f"Message-ID: <{name}@letters.test>\r\nDate: Sat, 21 Nov 2026 04:00:00 +0000\r\n"
        f"From: writer@letters.test\r\nSubject: letter {name}\r\n\r\n"
    )
    return Letter(name, f"writer-{name}@letters.test", recipients, head.encode() + _body(dice, name, size))


def _body(dice: random.Random, name: str, size: int) -> bytes:
    """Lines that begin with dots, and no two bodies alike."""
    lines, length = [], 0
    while length < size:
        line = f"{'.' * dice.randint(0, 2)}{name} {dice.getrandbits(64):016x} {_LINE[: dice.randint(0, len(_LINE))]}"
        lines.append(line)
        length += len(line) + 2
    return ("\r\n".join(lines) + "\r\n").encode()


def name_in(text: str) -> str | None:
    """The letter's name in a Message-ID or an address."""
    found = _NAME.search(text)
    return found[0] if found else None


def again(name: str, **same: object) -> Letter:
    """The letter of that name."""
    number, _, attempt = name.partition(".")
    return letter(int(number), int(attempt), **same)  # type: ignore[arg-type]
