"""/v1/tasks: what is done to many recipients at once, with preview, cancel and undo.

A key with a scope orders tasks for its own mail, whatever its filter says, and knows only such.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from zonemta_py.queue import questions
from zonemta_py.web.api.admin import bodies
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import reading
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import Holder
from zonemta_py.web.request_context import RequestContext

router = APIRouter(prefix="/v1/tasks")
_Id = Annotated[str, Field(pattern="^p?[0-9]{1,18}$"), Path(description="The task's id, or a preview's.")]
LIST_MAX = 1_000
_OF_ALL = frozenset(("source", "host", "sender", "campaign", "tenant"))


@router.post(
    "",
    **operation("operate", "Order a task", questions.TaskRow, 409, body="Task", whole=False, parameters=[reading.KEY]),
)
async def order(request: Request) -> Response:
    """Something to do to all recipients that the filter means, of mail that was accepted before: in effect at once,
    done behind, undone on demand. preview: only counts what it would do; start it by its id. A request that is repeated
    with the same Idempotency-Key gets the task that it ordered."""
    here, who = asked(request)
    content = await reading.json_object(request, here.config.http.body_bytes)
    said = reading.checked(bodies.TaskDocument, content)
    filter = who.narrowed(said.where.given())
    change = said.set.model_dump(exclude_none=True) if said.set else {}
    if said.set is not None and said.set.header:  # null there means something
        change["header"] = said.set.header
    if who.scope.bound and (others := sorted(_OF_ALL.intersection(change))):
        raise RequestProblem("no-right", f"a key with a scope cannot set {others[0]}; it is not only its own mail's")
    given: dict[str, Any] = {"verb": said.verb, "where": filter, "set": change, "by": who.name, "cause": said.cause}
    if said.preview:
        return answer(await ask(here, "invalid", questions.task_preview, **given))
    given["undo_s"] = said.undo_s
    if key := reading.request_key(request):
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:32]
        given |= {"request": f"{who.name} {key}", "digest": digest}
    return answer(await ask(here, "conflict", questions.task, **given))


@router.get("", **operation("read", "All tasks", list[questions.TaskRow], whole=False))
async def every(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=LIST_MAX, description="Maximum number of rows.")] = 100,
    after: Annotated[str, Query(pattern="^(p?[0-9]{1,18})?$", description="The last page's last id.")] = "",
) -> Response:
    """Those of the last 30 days, and previews, the newest first."""
    here, who = asked(request)
    found = await here.ask(questions.tasks, limit=LIST_MAX if who.scope.bound else limit, after=after)
    return answer([row for row in found if who.scope.holds(row["where"])][:limit])


@router.get("/{id}", **operation("read", "One task", questions.TaskRow, 404, whole=False))
async def one(request: Request, id: _Id) -> Response:
    here, who = asked(request)
    return answer(await _found(here, who, id))


@router.post(
    "/{id}/start",
    **operation("operate", "Order what was previewed", questions.TaskRow, 404, 409, body="Start", whole=False),
)
async def start(request: Request, id: _Id) -> Response:
    """As it was previewed, for what the filter means now."""
    here, who = asked(request)
    said = reading.checked(bodies.Start, await reading.json_object(request, here.config.http.body_bytes))
    await _found(here, who, id)
    return answer(
        await ask(here, "conflict", questions.task_start, id=id, by=who.name, cause=said.cause, undo_s=said.undo_s)
    )


@router.post("/{id}/cancel", **operation("operate", "Cancel a task", questions.TaskRow, 404, 409, whole=False))
async def cancel(request: Request, id: _Id) -> Response:
    """It does nothing more. What it has done stays, and can be undone."""
    here, who = await _theirs(request, id)
    return answer(await ask(here, "conflict", questions.task_cancel, id=id, by=who.name))


@router.post("/{id}/undo", **operation("operate", "Undo a task", questions.TaskRow, 404, 409, whole=False))
async def undo(request: Request, id: _Id) -> Response:
    """Puts back what it changed, as far as nothing was sent."""
    here, who = await _theirs(request, id)
    return answer(await ask(here, "conflict", questions.task_undo, id=id, by=who.name))


async def _theirs(request: Request, id: str) -> tuple[RequestContext, Holder]:
    here, who = asked(request)
    await _found(here, who, id)
    return here, who


async def _found(here: RequestContext, who: Holder, id: str) -> questions.TaskRow:
    row = await ask(here, "not-found", questions.task_row, id=id)
    if not who.scope.holds(row["where"]):
        raise RequestProblem("not-found", f"there is no task {id!r}; `zonemta task list` shows all of the last 30 days")
    return row
