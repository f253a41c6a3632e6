"""Requests made from the document, one for each operation, so that no new operation can be forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import httpx

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[3] / "config" / "openapi.json").read_text())
STREAM = "/v1/events"
PLACES = {
    "name": "spring", "action": "pause", "address": "ann@a.test", "queue": "q", "id": "0" * 16, "kind": "zone",
    "source": "127.0.0.1", "provider": "google", "number": "1", "domain": "a.test", "by": "zone", "form": "ses",
    "file": "a.pdf",
}  # fmt: skip
"""What the parts of paths are."""


class Operation(NamedTuple):
    """needs: rights and roles of which one is enough. whole: for no key with a scope."""

    id: str
    method: str
    path: str
    needs: tuple[str, ...]
    whole: bool
    row: dict[str, Any]


OPERATIONS = [
    Operation(
        row["operationId"], method.upper(), path,
        tuple(one["key"][0] for one in row.get("security", [{"key": ["?"]}])), row.get("x-scope") == "none", row,
    )
    for path, methods in DOCUMENT["paths"].items()
    for method, row in methods.items()
]  # fmt: skip


def status(client: httpx.Client, one: Operation, **places: str) -> int:
    return ask(client, one, **places)[0]


def ask(client: httpx.Client, one: Operation, query: Any = None, body: Any = None, **places: str) -> tuple[int, str]:
    """The status and the text of the answer; of a stream only its status. body: default: an empty object, if it has
    one."""
    path = one.path.format(**(PLACES | places))
    sent: dict[str, Any] = {"params": query or needed(one)}
    if "requestBody" in one.row:
        sent["json"] = {} if body is None else body
    if one.path == STREAM:
        with client.stream(one.method, path, **sent) as answer:
            return answer.status_code, ""
    answer = client.request(one.method, path, **sent)
    return answer.status_code, answer.text


def needed(one: Operation) -> dict[str, str]:
    """Query parameters without which there is no answer."""
    known = {"what": "default", "reply": "550 no", "by": "zone", "domain": "[127.0.0.1]"}
    rows = [row for row in one.row.get("parameters", []) if row["in"] == "query" and row.get("required")]
    return {row["name"]: known[row["name"]] for row in rows}
