"""`api.admin`: the questions and orders of operators, for plugins. They are those of commands and of /v1, with the same
checks, in every process from `start` on, and in commands of plugins.

An order has the plugin as its actor ("plugin lists", and whose request it was made for), wherever it says who has given
it: in tasks, the history, the suppression list and the journal; where an order has no actor, it is in its cause; and
each is in the log.

Failures: AdminRefused with a sentence for what is wrong with the question, or why it cannot be done; AdminUnavailable
while the queue cannot be asked.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from logging import Logger
from typing import Any

from zonemta_py.queue import questions
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.questions.question import Question, Refused

AskAdmin = Callable[[Question[..., Any], dict[str, Any]], Awaitable[Any]]
"""A question, and what it is asked with. Raises ValueError, QueueRefusal."""
INTERNAL: frozenset[Question[..., Any]] = frozenset((
    questions.alone, questions.away, questions.campaign_basis, questions.feedback_ties, questions.give,
    questions.leased, questions.learn, questions.order, questions.order_number, questions.report, questions.rights,
    questions.share, questions.shared, questions.spooled, questions.stable, questions.take, questions.take_body,
    questions.task_states,
))  # fmt: skip
"""Those that processes of the MTA ask each other."""
OFFERED: dict[str, Question[..., Any]] = {
    str(one): one for name, one in vars(questions).items() if isinstance(one, Question) and one not in INTERNAL
} | {str(questions.size): questions.size_of}
"""By name. `size` takes what `size_of` takes."""
ORDERS: frozenset[Question[..., Any]] = frozenset((
    questions.adopt, questions.backup, questions.campaign_cancel, questions.campaign_complete,
    questions.campaign_decide, questions.campaign_pause, questions.campaign_put, questions.campaign_resume,
    questions.campaign_schedule, questions.campaign_text, questions.cluster_balance, questions.cluster_move,
    questions.domain_looked, questions.domain_put, questions.domain_remove,
    questions.cluster_move_zone, questions.drain, questions.drop, questions.feedback_forget, questions.feedback_import,
    questions.feedback_leave,
    questions.forget, questions.guard_release, questions.in_doubt_acknowledge, questions.lift, questions.release,
    questions.reload, questions.reroute, questions.reroute_remove, questions.rotate,
    questions.stop, questions.suppress, questions.task, questions.task_cancel,
    questions.task_preview, questions.task_start, questions.task_undo, questions.unsuppress, questions.warm,
))  # fmt: skip
"""Those of OFFERED that change something."""
CAUSE_CHARACTERS_MAX = 300
_BY = 4
"""Where a row of `suppress` says who has put it there."""

acting: ContextVar[str] = ContextVar("acting", default="")
"""For whom the plugin does what it does now, as "key ops"; "": for itself."""


class AdminRefused(ValueError):
    """The question is wrong, or what is ordered cannot be done; the sentence says why."""


class AdminUnavailable(OSError):
    """The queue cannot be asked now: try again later."""


class PluginAdmin:
    """What operators can see and do."""

    def __init__(self, plugin: str, log: Logger, ask: AskAdmin) -> None:
        self._plugin, self._log, self._ask = plugin, log, ask

    async def ask(self, question: str, /, **arguments: Any) -> Any:
        """Asks a question, or gives an order, by its name: `await api.admin.ask("explain", what="anna@example.com")`.
        The page of fields lists them, with what they take and what they answer.

        Raises AdminRefused, AdminUnavailable.
        """
        asked = OFFERED.get(question.replace("_", "-")) if isinstance(question, str) else None
        if asked is None:
            close = difflib.get_close_matches(str(question), OFFERED, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(OFFERED))}"
            raise AdminRefused(f"there is no question {str(question)[:80]!r}; {remedy}")
        try:
            asked.check(arguments)
            arguments = self._signed(asked, arguments)
            if asked in ORDERS:
                self._log.info("%s orders %s %s", self.actor, asked, _shown(arguments))
            return await self._ask(asked, arguments)
        except Refused as refused:
            raise AdminRefused(str(refused)) from None
        except QueueRefusal as refusal:
            raise AdminUnavailable(f"the queue cannot be asked: {refusal.reply.text}") from None
        except ValueError as error:
            raise AdminRefused(str(error)) from None

    @property
    def actor(self) -> str:
        """Who gives an order."""
        return f"plugin {self._plugin}" + (f" for {acting.get()}" if acting.get() else "")

    def _signed(self, question: Question[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
        takes = question.takes.parameters
        if question not in ORDERS:
            return arguments
        if question == questions.suppress:
            return arguments | {"rows": [self._signed_row(row) for row in arguments["rows"]]}
        if "by" in takes:
            return arguments | {"by": self.actor}
        if "cause" in takes:
            cause = str(arguments.get("cause", ""))[:CAUSE_CHARACTERS_MAX]
            return arguments | {"cause": f"{cause} ({self.actor})" if cause else self.actor}
        return arguments

    def _signed_row(self, row: Any) -> Any:
        if not isinstance(row, list | tuple):
            return row
        return [*row[:_BY], *[""] * (_BY - len(row)), self.actor, *row[_BY + 1 :]]


def _shown(arguments: dict[str, Any]) -> str:
    said = ", ".join(f"{name}={str(value)[:100]!r}" for name, value in arguments.items() if name != "by")
    return said[:500]
