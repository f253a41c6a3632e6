"""Open sessions of accounts, in all receivers together: who has a quota of them, and whether one more fits.

In memory only. Each receiver's connection says what it has (`wire.session_requests`); what a dead one had is counted
out with its connection, and one whose queue's process was restarted says it again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from zonemta_py.config import Config
from zonemta_py.mail.reply import Reply

SESSIONS = "sessions"


class SessionQuotas:
    """Of all accounts."""

    def __init__(self, config: Config) -> None:
        self.open: Counter[str] = Counter()
        self.settled_at = 0.0
        """Time of the loop from which on receivers that outlived the last process have said what they have."""
        self.configure(config)

    def configure(self, config: Config) -> None:
        """The quotas of this configuration from now on; those that are open stay."""
        self._most = {account.name: account.sessions for account in config.accounts if account.sessions}

    def refusal(self, account: str) -> Reply | None:
        """Why that account may not have one more; None: it may."""
        most = self._most.get(account)
        if most is None or self.open[account] < most:
            return None
        whose = f"account {account!r} has as many sessions open as it may, {most:,}"
        return Reply(421, "4.7.0", f"{whose}; end one, or try again later")

    def count(self, account: str, change: int) -> None:
        """change: 1 for one that begins, -1 for one that ends."""
        self.open[account] += change
        if not self.open[account]:
            del self.open[account]

    def rows(self) -> list[dict[str, Any]]:
        """As of `Quotas.rows`; they never begin anew."""
        return [
            {
                "account": account,
                "what": SESSIONS,
                "quota": str(most),
                "used": self.open[account],
                "left": max(0, most - self.open[account]),
                "anew_ms": None,
            }
            for account, most in self._most.items()
        ]
