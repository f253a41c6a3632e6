"""/v1/configuration: what is in force."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from zonemta_py.config import Config
from zonemta_py.config.secret import HIDDEN, hidden
from zonemta_py.queue import questions
from zonemta_py.web.api.admin import bodies, rows
from zonemta_py.web.api.admin.operation import ask, asked, operation, tagged
from zonemta_py.web.authentication import answer
from zonemta_py.web.documents import reading

router = APIRouter(prefix="/v1/configuration")


@router.get("", **operation("admin", "The configuration in force", rows.Configuration, tagged=True))
async def show(request: Request) -> Response:
    """Every key with its value; secrets and hashes of passwords and keys are hidden."""
    return tagged(request, {"settings": masked(asked(request)[0].config)})


def masked(config: Config) -> dict[str, Any]:
    found = {name: hidden(name, value) for name, value in config.model_dump(mode="json").items()}
    found["plugins"]["options"] = hidden("options", config.model_dump(mode="json")["plugins"]["options"], plugins=True)
    for key in found["http"]["keys"]:
        key["hash"] = HIDDEN
    return found


@router.post(
    "/reload", **operation("admin", "Put the configuration file in force", questions.Reloaded, 409, body="Reload")
)
async def reload(request: Request) -> Response:
    """The whole file is checked first; then every process takes it, without dropping a connection or a lease. A wrong
    one changes nothing. check: only says what it would do."""
    here, who = asked(request)
    said = reading.checked(bodies.Reload, await reading.json_object(request, here.config.http.body_bytes))
    return answer(await ask(here, "conflict", questions.reload, check=said.check, by=f"key {who.name}"))


@router.get("/history", **operation("admin", "The configurations there were", list[questions.ConfigurationRow]))
async def history(request: Request) -> Response:
    """Who put each in force, when, and what was different; the newest first, without secrets."""
    here, _ = asked(request)
    return answer(await here.ask(questions.configurations))


@router.post("/drain", **operation("admin", "End the MTA", rows.Draining, 409, body="Drain"))
async def drain(request: Request) -> Response:
    """Nothing new is taken, what is under way is finished, then all ends: nobody is in doubt."""
    here, who = asked(request)
    said = reading.checked(bodies.Drain, await reading.json_object(request, here.config.http.body_bytes))
    return answer(await ask(here, "conflict", questions.drain, for_s=said.for_s, by=f"key {who.name}") or {})
