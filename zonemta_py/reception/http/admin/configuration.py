"""/v1/configuration: what is in force."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from zonemta_py.config import Config
from zonemta_py.config.secret import HIDDEN, hidden
from zonemta_py.reception.http.admin import rows
from zonemta_py.reception.http.admin.operation import asked, operation, tagged

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
