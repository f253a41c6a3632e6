"""/v1/ready, /v1/node, /v1/status, /v1/cluster and /v1/accounts: whether mail may come, which node this is, what is
running, what happens now, the nodes of a cluster, and quotas."""

from __future__ import annotations

import importlib.metadata

from fastapi import APIRouter, Depends, Request, Response

from zonemta_py.queue import questions
from zonemta_py.web.api.admin import bodies, rows
from zonemta_py.web.api.admin.operation import ask, asked, operation
from zonemta_py.web.authentication import answer, described, needs, request_context
from zonemta_py.web.documents import models, reading
from zonemta_py.web.documents.derived import document
from zonemta_py.web.documents.problem import QUEUE_S, RequestProblem
from zonemta_py.web.keys import RIGHTS

router = APIRouter(prefix="/v1")


@router.get("/ready", summary="Whether mail should be sent here", response_model=models.Health, responses=described())
async def ready(request: Request) -> Response:
    """503 with the reason during recovery, during a drain, in a copy of a queue, and while no mail is accepted. Needs
    no key."""
    why = await request_context(request).queue.ask(questions.ready)
    if why:
        raise RequestProblem("unavailable", " ".join(why), retry_s=QUEUE_S)
    return answer({"status": "ok"})


@router.get(
    "/node", summary="Which node of which cluster this is", response_model=document(rows.NodeIdentity),
    responses=described(422), openapi_extra=needs(*RIGHTS),
    dependencies=[Depends(reading.known_query)],
)  # fmt: skip
async def node(request: Request) -> Response:
    """With any key. Whoever sends to several nodes learns by it which of them are one MTA: all those with one `id` take
    a request with the same Idempotency-Key once between them."""
    here = request_context(request)
    if not here.config.cluster.enabled:
        return answer({"cluster": "", "id": "", "node": ""})
    found = await ask(here, "conflict", questions.cluster)
    return answer({name: found[name] for name in ("cluster", "id", "node")})


@router.get("/status", **operation("read", "Version, sizes and rates", rows.Status))
async def status(request: Request) -> Response:
    """What runs here, how much waits, and what happens a second, over the last minute."""
    here, _ = asked(request)
    return answer({
        "version": importlib.metadata.version("zonemta-py"), "hostname": here.config.server.name,
        "problems": await here.ask(questions.ready),
        "total": (await here.ask(questions.size))["total"], "rates": await here.ask(questions.now),
    })  # fmt: skip


@router.get("/cluster", **operation("read", "Nodes of the cluster, and their queues", questions.ClusterState, 409))
async def cluster(request: Request) -> Response:
    """Which nodes live, who leads, and which node serves which queue."""
    here, _ = asked(request)
    return answer(await ask(here, "conflict", questions.cluster))


@router.post(
    "/cluster/move", **operation("admin", "Move mail of a zone to a node", questions.ZoneMove, 409, body="ZoneToNode")
)
async def cluster_move(request: Request) -> Response:
    """Moves messages for a moment, each exactly once. Repeat it until no message moves any more."""
    here, _ = asked(request)
    said = reading.checked(bodies.ZoneToNode, await reading.json_object(request, here.config.http.body_bytes))
    return answer(
        await ask(here, "conflict", questions.cluster_move_zone, zone=said.zone, to=said.to, giver=said.giver)
    )


@router.post("/cluster/balance", **operation("admin", "Balance the nodes", questions.Balance, 409, body="BalanceNodes"))
async def cluster_balance(request: Request) -> Response:
    """Moves messages for a moment so that nodes hold about as many recipients of zones that several can send. Repeat it
    until no recipient moves any more. dry_run: only says what would move."""
    here, _ = asked(request)
    said = reading.checked(bodies.BalanceNodes, await reading.json_object(request, here.config.http.body_bytes))
    return answer(await ask(here, "conflict", questions.cluster_balance, dry_run=said.dry_run))


@router.get("/accounts", **operation("read", "Quotas of accounts", list[questions.QuotaRow], whole=False))
async def accounts(request: Request) -> Response:
    """What each has used of its quotas, and when they begin anew. A key with a scope sees those of its own account."""
    here, who = asked(request)
    found = await here.ask(questions.accounts)
    account = here.site.accounts.key(who.name) if who.scope.bound else None
    own = account.name if account is not None else ""
    return answer([row for row in found if not who.scope.bound or row["account"] == own])
