"""Quotas of accounts: how many messages and recipients each has handed in, in its seconds, hours and days; exact.

Kept as `sizes.py` keeps its counters: in memory, and written, if changed, in the batch that accepts the message. So
whichever batch a crash leaves as the last one, quotas and mail agree, and no restart grants a quota twice. A window of
time is counted by steady time (`schedule/time/steady.py`), so setting the clock begins none anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zonemta_py.config import Config, rate
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Operation, Store
from zonemta_py.mail.reply import Reply
from zonemta_py.schedule.time.steady import Steady

MESSAGES, RECIPIENTS = "messages", "recipients"


class Quota(NamedTuple):
    """One quota of an account. text: as configured."""

    account: str
    what: str
    text: str
    amount: int
    ms: int

    @property
    def name(self) -> tuple[str, str, int]:
        """Under which its use is kept: a quota that is raised goes on with what was used."""
        return self.account, self.what, self.ms


class Charge(NamedTuple):
    """What a message has added to the use of one quota (`Quota.name`) in one window."""

    name: tuple[str, str, int]
    window: int
    amount: int


class Quotas:
    """Of all accounts."""

    def __init__(self, store: Store, config: Config, clock: Steady) -> None:
        self._clock = clock
        self._used: dict[tuple[str, str, int], list[int]] = {}
        """[window, used]."""
        for key, value in store.scan(keys.QUOTAS, keys.end(keys.QUOTAS)):
            _, account, what, ms = key.decode().split(" ")
            self._used[account, what, int(ms)] = list(packing.unpack(value))
        self.unwritten: set[tuple[str, str, int]] = set()
        self.written: set[tuple[str, str, int]] = set()
        self.configure(config)

    def configure(self, config: Config) -> None:
        """The quotas of this configuration from now on; what was used stays used, also of one that is gone, as long as
        its window lasts: it may come back."""
        self._of: dict[str, list[Quota]] = {}
        for account in config.accounts:
            for what in (MESSAGES, RECIPIENTS):
                for text in getattr(account, what):
                    found = rate(text)
                    quota = Quota(account.name, what, text, int(found.amount), int(found.seconds * 1000))
                    self._of.setdefault(account.name, []).append(quota)
        known = {quota.name for quotas in self._of.values() for quota in quotas}
        now_ms = self._clock.steady_ms()
        for name in self._used.keys() - known:
            if self._used[name][0] < now_ms // name[2]:
                del self._used[name]
                self.unwritten.add(name)

    def refusal(self, account: str, recipients: int) -> Reply | None:
        """Why a message of that account to so many is not taken now; None: it may be."""
        for quota in self._of.get(account, ()):
            more = 1 if quota.what == MESSAGES else recipients
            if more > quota.amount:
                sentence = (
                    f"{more:,} recipients are more than the {quota.text} of account {account!r}; split the message"
                )
                return Reply(550, "5.7.1", sentence)
            window, used = self._now(quota)
            if used + more > quota.amount:
                wait_s = -(-((window + 1) * quota.ms - self._clock.steady_ms()) // 1000)
                whose = f"account {account!r} has used its quota of {quota.what}, {quota.text}"
                return Reply(450, "4.7.1", f"{whose}; try again in {max(1, wait_s):,} s")
        return None

    def charge(self, account: str, recipients: int) -> list[Charge]:
        """A message of that account is accepted; for `take_back`."""
        charges = []
        for quota in {quota.name: quota for quota in self._of.get(account, ())}.values():  # of two for one time, once
            window, used = self._now(quota)
            more = 1 if quota.what == MESSAGES else recipients
            self._used[quota.name] = [window, used + more]
            self.unwritten.add(quota.name)
            charges.append(Charge(quota.name, window, more))
        return charges

    def take_back(self, charges: list[Charge]) -> None:
        """It was not accepted, after all. A window that has begun since keeps what it has."""
        for name, window, amount in charges:
            used = self._used.get(name)
            if used is not None and used[0] == window:
                used[1] = max(0, used[1] - amount)
                self.unwritten.add(name)

    def rows(self) -> list[dict[str, Any]]:
        """What each account has used."""
        return [
            {
                "account": quota.account,
                "what": quota.what,
                "quota": quota.text,
                "used": self._now(quota)[1],
                "left": max(0, quota.amount - self._now(quota)[1]),
                "anew_ms": (self._now(quota)[0] + 1) * quota.ms - self._clock.apart_ms(),
            }
            for quotas in self._of.values()
            for quota in quotas
        ]

    def _now(self, quota: Quota) -> tuple[int, int]:
        """The window that time is in, and what has been used of it. Time that goes back begins none anew."""
        window = self._clock.steady_ms() // quota.ms
        known, used = self._used.get(quota.name, (0, 0))
        return (known, used) if known >= window else (window, 0)

    def changes(self) -> list[Operation]:
        """Writes what has changed since the last call."""
        operations: list[Operation] = []
        for name in self.unwritten:
            used = self._used.get(name)
            operations.append((keys.quota(*name), None if used is None else packing.pack(used)))
        self.written, self.unwritten = self.unwritten, set()
        return operations

    def not_written(self) -> None:
        """The batch with the last changes did not reach the disk: writes them with the next one."""
        self.unwritten |= self.written
