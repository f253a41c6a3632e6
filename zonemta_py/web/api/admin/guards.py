"""/v1/guards: where refusals are held back, because a provider said of very many people that they do not exist."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from zonemta_py.queue import questions
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import reading, suppression_rows
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.problem import RequestProblem

router = APIRouter(prefix="/v1/guards")


@router.get("", **operation("read", "Where refusals are held back", document(list[questions.GuardRow], closed=True)))
async def every(request: Request) -> Response:
    """Nobody is suppressed for what these providers say, until it has been calm or somebody decides."""
    here, _ = asked(request)
    return answer(await here.ask(questions.guards))


@router.post(
    "", **operation("operate", "Release or drop what is held back", suppression_rows.GuardEnded, 404, body="GuardEnd")
)
async def end(request: Request) -> Response:
    """Ends the guard. Released, it counts from now on; dropped, it is forgotten."""
    here, _ = asked(request)
    said = reading.checked(suppression_rows.GuardEnd, await reading.json_object(request, here.config.http.body_bytes))
    count = await ask(here, "not-found", questions.guard_release, name=said.name, drop=said.drop)
    if not count:
        raise RequestProblem("not-found", f"nothing is held back at {said.name[:80]!r}; GET /v1/guards shows where")
    return answer({"people": count})
