"""The ledger: what was sent and acknowledged, what came, and the judgement over both.

The rules: an acknowledged recipient has its mail, or its sender a notification where it was refused for good. A letter
that was never acknowledged came to all of its recipients or to none. Nothing came that was not sent, not a byte changed
but for trace fields in front. Nobody got anything twice but those that the queue lists as in doubt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from survival.letters import Letter, again, name_in
from zonemta_py.sink.record import ReceivedMessage

_FAILED = re.compile(rb"^action:[ \t]*failed", re.IGNORECASE | re.MULTILINE)
_FINAL = re.compile(rb"^final-recipient:[ \t]*(?:rfc822|utf-8);[ \t]*(\S+)", re.IGNORECASE | re.MULTILINE)
_TRACE = re.compile(rb"(?:Received:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)+", re.IGNORECASE)


def failed(body: bytes) -> list[str]:
    """The recipients, in lower case, that a notification of failure names; empty if it is none."""
    return [address.decode().lower() for address in _FINAL.findall(body)] if _FAILED.search(body) else []


@dataclass
class Judgement:
    """Each list names recipients (or messages) that break a rule; `doubles`: how many came twice, being in doubt."""

    lost: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unnotified: list[str] = field(default_factory=list)
    sent: int = 0
    acknowledged: int = 0
    recipients: int = 0
    doubles: int = 0
    in_doubt: int = 0

    RULES = ("lost", "torn", "foreign", "wrong", "doubled", "unnotified")

    @property
    def broken(self) -> list[str]:
        """One line for each rule that was broken; empty: all is well."""
        return [f"{rule}: {len(rows)} ({', '.join(rows[:5])})" for rule in self.RULES if (rows := getattr(self, rule))]

    def figures(self) -> dict[str, Any]:
        names = ("sent", "acknowledged", "recipients", "in_doubt", "doubles")
        return {name: getattr(self, name) for name in names} | {rule: len(getattr(self, rule)) for rule in self.RULES}


class Ledger:
    """Kept by the client (`open`, `acknowledge`) and the sink (`came`)."""

    def __init__(
        self,
        make: Callable[[str], Letter] | None = None,
        refused: tuple[str, ...] = ("gone-",),
        silent: tuple[str, ...] = (),
        **same: Any,
    ) -> None:
        """make: the letter of a name; `letters.again` with what is `same` if not said. Recipients that begin with one
        of `refused` are bounced, those that begin with one of `silent` must not get anything, and nobody hears of it.
        """
        self._make: Callable[[str], Letter] = make or (lambda name: again(name, **same))
        self._refused, self._silent = refused, silent
        self._sent: dict[str, bool] = {}
        self._came: Counter[str] = Counter()
        self._notified: Counter[str] = Counter()
        self._named: set[str] = set()
        """Recipients that a notification of failure has named."""
        self._merged: dict[str, Callable[[bytes], bool]] = {}
        self._judgement = Judgement()

    def open(self, letter: Letter) -> None:
        """It is about to be handed in."""
        self._sent[letter.name] = False

    def acknowledge(self, letter: Letter) -> None:
        """Its 250 has come."""
        self._sent[letter.name] = True

    @property
    def acknowledged(self) -> int:
        return sum(self._sent.values())

    @property
    def arrivals(self) -> set[str]:
        """Recipients whose mail has come."""
        return set(self._came)

    def arrived(self, message: ReceivedMessage) -> None:
        """Something has come to the sink."""
        self.came(message.sender, message.recipients, message.body)

    def came(self, sender: str, recipients: Iterable[str], body: bytes) -> None:
        """The same, in its parts."""
        if not sender:
            self._notified.update(recipients)
            self._named.update(failed(body))
            return
        if self._merged and set(recipients) <= self._merged.keys():
            for recipient in recipients:
                self._came[recipient] += 1
                if not self._merged[recipient](body):
                    self._judgement.wrong.append(recipient)
            return
        name = name_in(sender)
        if name is None or name not in self._sent:
            self._judgement.foreign.append(f"{sender} to {', '.join(recipients)}")
            return
        letter = self._make(name)
        trace = body[: len(body) - len(letter.data)]
        if not body.endswith(letter.data) or not _TRACE.fullmatch(trace):
            self._judgement.wrong.append(name)
        for recipient in recipients:
            if recipient in letter.recipients:
                self._came[recipient] += 1
            else:
                self._judgement.foreign.append(f"{name} to {recipient}")

    def judge(self, in_doubt: Iterable[str]) -> Judgement:
        """in_doubt: addresses that the queue lists."""
        judgement, doubtful = self._judgement, set(in_doubt)
        judgement.in_doubt = len(doubtful)
        for name, acknowledged in self._sent.items():
            self._judge_letter(judgement, self._make(name), acknowledged, doubtful)
        for address in self._merged:
            judgement.recipients += 1
            if not self._came[address]:
                judgement.lost.append(address)
            self._judge_doubles(judgement, address, doubtful)
        return judgement

    def merge(self, recipients: Iterable[str], right: Callable[[str, bytes], bool]) -> None:
        """A batch of a campaign has its 200. right: whether that is the message for this recipient."""
        for recipient in recipients:
            self._merged[recipient] = partial(right, recipient)

    def _judge_letter(self, judgement: Judgement, letter: Letter, acknowledged: bool, doubtful: set[str]) -> None:
        judgement.sent += 1
        judgement.acknowledged += acknowledged
        silent = [address for address in letter.recipients if address.startswith(self._silent)] if self._silent else []
        refused = [address for address in letter.recipients if address.startswith(self._refused)]
        others = refused + silent
        missing = [address for address in letter.recipients if not self._came[address] and address not in others]
        accepted = acknowledged or len(missing) + len(others) < len(letter.recipients)
        if accepted:
            judgement.unnotified += [address for address in refused if address.lower() not in self._named]
        judgement.foreign += [f"{address}, who is suppressed" for address in silent if self._came[address]]
        if acknowledged:
            judgement.recipients += len(letter.recipients)
            judgement.lost += missing
        elif missing and accepted:
            judgement.torn.append(letter.name)
        for address in letter.recipients:
            self._judge_doubles(judgement, address, doubtful)
        if self._notified[letter.sender] > max(1, len(refused)) and letter.sender not in doubtful:
            judgement.doubled.append(letter.sender)

    def _judge_doubles(self, judgement: Judgement, address: str, doubtful: set[str]) -> None:
        if self._came[address] > 1:
            judgement.doubles += 1
            if address not in doubtful:
                judgement.doubled.append(address)
