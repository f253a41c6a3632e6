"""What is asked of several queues on one machine, answered as if they were one.

`Merged.ask` is an `Ask` as that of one queue. TABLE has a row for each question (`queue/questions/`), which says how:

    sum         asked of all at once, and added up: sizes, counters, who waits for what
    pages       lists, of which each queue has a part: merged in the order that one queue lists in, with a cursor that
                stands for a place in all of them
    the one     about one message: the queue that its id names, and if it was moved, the others
    any one     what orders make alike in all
    order       what all must have: given by `GiveOrder`, and their answers merged; what one queue would decide by what
                it alone knows (which template is best) is decided before, and said in the order
    first       what is the MTA's, and not a queue's
    each        about one queue's own files: ask that queue

Failures: as those of one queue; `joined.asked` says what becomes of several.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, Ask, P, Question, Refused
from zonemta_py.queues.joined import campaigns, domains, people, places, sizes, standing, stories, tasks, whole
from zonemta_py.queues.joined.asked import AskedQueues, GiveOrder, Used, all_orders, no_queue, unused

Answer = Callable[..., Awaitable[Any]]
ROOM, AGAIN_S = 20, 0.01
"""Rows of a queue besides its part of a page: a message has several. After less time it is asked again."""


class Way(NamedTuple):
    """How a question is answered. how: as the module names it; answer: gets the queues, and what was asked."""

    how: str
    question: Question[..., Any]
    answer: Answer


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Merged:
    """asks: one for each queue, by its number. used, is_silent, lacks_ms: as of `AskedQueues`."""

    def __init__(
        self, asks: Mapping[int, Ask], order: GiveOrder, now_ms: Callable[[], int] = _clock_ms, used: Used = unused,
        is_silent: Callable[[int], bool] = no_queue, lacks_ms: Callable[[int], float] = all_orders,
    ) -> None:  # fmt: skip
        self._queues = AskedQueues(asks, order, now_ms, used, is_silent, lacks_ms)

    async def ask(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        """Raises ValueError, QueueRefusal."""
        found: A = await self.answer(question, arguments)
        return found

    async def decide(self, campaign: str) -> None:
        """What no one asks for: as of `campaigns.decided`."""
        await campaigns.decided(self._queues, campaign)

    async def answer(self, question: str, arguments: dict[str, Any]) -> Any:
        """As `ask`, of whatever somebody has named so."""
        way = TABLE.get(question)
        if way is None:
            raise Refused(f"no queue knows the question {str(question)!r}; they know {', '.join(sorted(TABLE))}")
        way.question.check(arguments)
        return await way.answer(self._queues, **arguments)


def _the_one(question: Question[..., Any], has: Callable[[Any], bool] | None = None) -> Answer:
    async def answer(queues: AskedQueues, id: str, **more: Any) -> Any:
        return await queues.one(question, {"id": id} | more, id, has)

    return answer


def _any_one(question: Question[..., Any]) -> Answer:
    async def answer(queues: AskedQueues, **arguments: Any) -> Any:
        return await queues.any_one(question, arguments)

    return answer


def _first(question: Question[..., Any]) -> Answer:
    async def answer(queues: AskedQueues, **arguments: Any) -> Any:
        return await queues.first(question, arguments)

    return answer


def _each(question: Question[..., Any]) -> Answer:
    async def answer(queues: AskedQueues, **_: Any) -> Any:
        names = ", ".join(map(str, queues.asks))
        raise Refused(f"the question {str(question)!r} is about the files of one queue; ask one of {names}")

    return answer


async def _list(queues: AskedQueues, limit: int = 100, after: str = "", **where: Any) -> dict[str, Any]:
    """Each queue is asked for little more than its part of a page, and again where that was not enough, and quick."""
    limit, rows, walked = max(1, min(limit, places.LIST_MAX)), list[dict[str, Any]](), 0
    until = time.monotonic() + AGAIN_S
    while True:
        left = limit - len(rows)

        async def ask(numbers: Any, cursor: str, left: int = left) -> dict[int, Any]:
            most = min(left, left // len(numbers) + ROOM)
            return await queues.each(questions.list_, {"limit": most, "after": cursor} | where, numbers)

        found = await places.listed(ask, list(queues.asks), after, left)
        rows += found.rows
        walked += sum(page["walked"] for page in found.pages.values())
        if found.next is None or len(rows) >= limit or time.monotonic() > until:
            break
        after = found.next
    return {"rows": rows, "next": found.next, "walked": walked, "more": found.next is not None and len(rows) < limit}


_WAYS: tuple[tuple[str, Question[..., Any], Answer], ...] = (
    ("sum", questions.size_of, sizes.size),
    ("pages", questions.sizes, sizes.sizes),
    ("pages", questions.tally, sizes.tally),
    ("sum", questions.qshape, sizes.qshape),
    ("sum", questions.queues, sizes.named_queues),
    ("sum", questions.metrics, sizes.metrics),
    ("sum", questions.now, sizes.now),
    ("pages", questions.list_, _list),
    ("the one", questions.show, _the_one(questions.show)),
    ("the one", questions.content, _the_one(questions.content)),
    ("pages", questions.trace, stories.trace),
    ("pages", questions.in_doubt, people.in_doubt),
    ("sum", questions.in_doubt_acknowledge, people.in_doubt_acknowledge),
    ("the one", questions.release, _the_one(questions.release)),
    ("the one", questions.drop, _the_one(questions.drop)),
    ("pages", questions.explain, standing.explain),
    ("pages", questions.lanes, standing.lanes),
    ("pages", questions.standing, standing.standing),
    ("order", questions.stop, standing.stop),
    ("order", questions.lift, standing.lift),
    ("order", questions.reroute, standing.reroute),
    ("order", questions.reroute_remove, standing.reroute_remove),
    ("any one", questions.reroutes, _any_one(questions.reroutes)),
    ("sum", questions.accounts, people.accounts),
    ("sum", questions.warmup, people.warmup),
    ("order", questions.warm, people.warm),
    ("sum", questions.task_preview, tasks.preview),
    ("order", questions.task, tasks.task),
    ("order", questions.task_start, tasks.start),
    ("pages", questions.tasks, tasks.rows),
    ("sum", questions.task_states, tasks.states),
    ("sum", questions.task_row, tasks.one),
    ("order", questions.task_cancel, tasks.cancel),
    ("order", questions.task_undo, tasks.undo),
    ("order", questions.campaign_put, campaigns.put),
    ("order", questions.campaign_pause, campaigns.pause),
    ("order", questions.campaign_resume, campaigns.resume),
    ("order", questions.campaign_cancel, campaigns.cancel),
    ("order", questions.campaign_complete, campaigns.complete),
    ("order", questions.campaign_decide, campaigns.decide),
    ("order", questions.campaign_text, campaigns.text),
    ("order", questions.campaign_schedule, campaigns.schedule),
    ("any one", questions.campaign_templates, campaigns.templates),
    ("sum", questions.campaign, campaigns.one),
    ("pages", questions.campaigns, campaigns.newest),
    ("any one", questions.campaign_tenant, campaigns.tenant),
    ("each", questions.campaign_basis, _each(questions.campaign_basis)),
    ("sum", questions.campaign_ends, campaigns.ends),
    ("sum", questions.campaign_hours, campaigns.hours),
    ("order", questions.suppress, people.suppress),
    ("order", questions.unsuppress, people.unsuppress),
    ("any one", questions.suppression, _any_one(questions.suppression)),
    ("any one", questions.suppressions, _any_one(questions.suppressions)),
    ("sum", questions.evidence, people.evidence),
    ("sum", questions.guards, people.guards),
    ("order", questions.guard_release, people.guard_release),
    ("order", questions.forget, people.forget),
    ("order", questions.domain_put, domains.put),
    ("order", questions.domain_looked, domains.looked),
    ("order", questions.domain_remove, domains.remove),
    ("any one", questions.domain, _any_one(questions.domain)),
    ("any one", questions.domains, _any_one(questions.domains)),
    ("pages", questions.feedback, stories.feedback),
    ("the one", questions.feedback_one, stories.feedback_one),
    ("the one", questions.feedback_ties, stories.feedback_ties),
    ("the one", questions.feedback_forget, stories.feedback_forget),
    ("the one", questions.feedback_leave, stories.feedback_leave),
    ("sum", questions.feedback_reports, stories.feedback_reports),
    ("first", questions.feedback_import, _first(questions.feedback_import)),
    ("sum", questions.ready, whole.ready),
    ("first", questions.reload, _first(questions.reload)),
    ("first", questions.drain, _first(questions.drain)),
    ("sum", questions.generation, whole.generation),
    ("first", questions.cluster, _first(questions.cluster)),
    ("first", questions.cluster_move, _first(questions.cluster_move)),
    ("first", questions.cluster_move_zone, _first(questions.cluster_move_zone)),
    ("first", questions.cluster_balance, _first(questions.cluster_balance)),
    ("first", questions.cluster_versions, _first(questions.cluster_versions)),
    ("any one", questions.rights, _any_one(questions.rights)),
    ("sum", questions.draining, whole.draining),
    ("first", questions.configurations, _first(questions.configurations)),
    ("sum", questions.copied, whole.copied),
    ("sum", questions.adopt, whole.adopt),
    ("each", questions.backup, _each(questions.backup)),
    ("each", questions.positions, _each(questions.positions)),
    ("sum", questions.rotate, whole.rotate),
    ("each", questions.stable, _each(questions.stable)),
    ("the one", questions.leased, _the_one(questions.leased, lambda queue: queue is not None)),
    ("first", questions.report, _first(questions.report)),
    ("each", questions.order, _each(questions.order)),
    ("each", questions.learn, _each(questions.learn)),
    ("each", questions.give, _each(questions.give)),
    ("each", questions.away, _each(questions.away)),
    ("each", questions.take, _each(questions.take)),
    ("each", questions.take_body, _each(questions.take_body)),
    ("each", questions.order_number, _each(questions.order_number)),
    ("each", questions.share, _each(questions.share)),
    ("each", questions.shared, _each(questions.shared)),
    ("sum", questions.spooled, whole.spooled),
    ("sum", questions.alone, whole.alone),
)
TABLE: dict[str, Way] = {str(question): Way(how, question, answer) for how, question, answer in _WAYS}
