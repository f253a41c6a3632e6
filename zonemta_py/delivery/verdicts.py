"""Outcomes from what plugins decide, and from what goes wrong on our own side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Verdict
from zonemta_py.queue.api import BOUNCED, DEFERRED, HELD, Outcome

OUR_FAULT = Reply(451, "4.3.0", "internal error while delivering, see the log")


def together(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Merges outcomes that differ only in their recipients."""
    found: dict[tuple[Any, ...], Outcome] = {}
    for outcome in outcomes:
        key = (outcome.verdict, outcome.reply, outcome.delay_s, outcome.rest_s, *(outcome.by or ()))
        found.setdefault(key, replace(outcome, recipients=[])).recipients.extend(outcome.recipients)
    return list(found.values())


def decided(verdict: Verdict, recipients: list[int], said: Reply | None = None) -> Outcome:
    """A plugin's verdict as an outcome. said: the server's own reply."""
    by = [verdict.plugin, verdict.hook, str(said) if said is not None else ""]
    if isinstance(verdict, Defer):
        wait_s, rest_s = verdict.seconds, verdict.rest_s
        return Outcome(DEFERRED, verdict.reply, "plugin", recipients, delay_s=wait_s, by=by, rest_s=rest_s)
    if isinstance(verdict, (Hold, Drop)):
        return Outcome(HELD, verdict.reply, "plugin", recipients, by=by)
    return Outcome(BOUNCED if verdict.reply.permanent else DEFERRED, verdict.reply, "plugin", recipients, by=by)
