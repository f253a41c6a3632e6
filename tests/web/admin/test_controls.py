"""No text field of any operation takes a control character: in paths, queries and bodies, as the document has them.

ZONEMTA_ALL_CONTROLS=1 tries each of them in each field; otherwise some, different ones for each field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.admin.requests import DOCUMENT, OPERATIONS, PLACES, STREAM, Operation, needed
from tests.web.conftest import HttpDoor

CONTROLS = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u2028", "\u2029"]
LINES = {"\t", "\n", "\r", "\x0c", "\x85", "\u2028", "\u2029"}
"""What a text of several lines may have."""
EACH = 3
SEVERAL_LINES = {"text", "html", "mjml", "raw", "private_key"}
BASE64 = {"template", "content"}


def test_every_text_of_paths_and_queries(shared_door: HttpDoor) -> None:
    """The refusal names the field."""
    tried = 0
    for one in OPERATIONS:
        for row in one.row.get("parameters", []):
            if row["in"] == "header" or not _is_text(row["schema"]) or (one.path == STREAM and row["name"] == "since"):
                continue
            for control in _some(tried):
                value, places, query = f"a{control}b", dict(PLACES), needed(one)
                if row["in"] == "path":
                    places[row["name"]] = _quoted(value)
                else:
                    query[row["name"]] = value
                _refused(shared_door, one, one.path.format(**places), row["name"], {"params": query})
            tried += 1
    assert tried > 40


def test_every_text_of_bodies(shared_door: HttpDoor) -> None:
    """Nested ones, too."""
    tried = 0
    for one in OPERATIONS:
        for content in one.row.get("requestBody", {}).get("content", {}).values():
            for where, made in _texts(content["schema"]):
                last = where.rpartition(".")[2].partition("[")[0]
                if last in BASE64:
                    continue
                for control in _some(tried):
                    if last in SEVERAL_LINES and (control in LINES or last == "raw"):
                        continue
                    body = made(f"a{control}b")
                    _refused(shared_door, one, one.path.format(**PLACES), where, {"json": body})
                tried += 1
    assert tried > 40


def _refused(door: HttpDoor, one: Operation, path: str, where: str, sent: dict[str, Any]) -> None:
    answer = door.client.request(one.method, path, headers={"idempotency-key": "1"}, **sent)
    assert answer.status_code == 422, (one.id, where, sent, answer.text)
    named = [row["where"] for row in answer.json().get("errors", [])]
    assert any(name.startswith(where) for name in named), (one.id, where, sent, named)


def _some(number: int) -> list[str]:
    if os.environ.get("ZONEMTA_ALL_CONTROLS"):
        return CONTROLS
    return [CONTROLS[(number * EACH + step * 17) % len(CONTROLS)] for step in range(EACH)]


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    schema = _resolved(schema)
    found = [one for kind in ("anyOf", "oneOf") for one in schema.get(kind, ()) if "$ref" in one or "type" in one]
    return [inner for one in found for inner in _choices(one)] if found and "properties" not in schema else [schema]


def _is_text(schema: dict[str, Any]) -> bool:
    return any(
        one.get("type") == "string" or (one.get("type") == "array" and _is_text(one["items"]))
        for one in _choices(schema)
    )


def _texts(schema: dict[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(place, a function that makes a body with a value there) for every text in it."""
    for choice in _choices(schema):
        batch = {"recipients": [["ann@a.test"]]} if "recipients" in choice.get("required", ()) else {}
        for name, inner in choice.get("properties", {}).items():
            for one in _choices(inner) if name not in batch else ():  # test_batch.py has these
                for where, made in _within(name, one, depth):
                    yield where, lambda value, made=made, batch=batch: batch | made(value)


def _within(name: str, schema: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    kind = schema.get("type")
    if kind == "string" and "binary" not in schema.get("format", ""):
        yield name, lambda value: {name: value}
    elif kind == "array" and depth < 3:
        for one in _choices(schema["items"]):
            if one.get("type") == "string":
                yield f"{name}[0]", lambda value: {name: [value]}
            for where, made in _texts(one, depth + 1) if one.get("type") == "object" else ():
                yield f"{name}[0].{where}", lambda value, made=made: {name: [made(value)]}
    elif kind == "object" and depth < 3:
        for where, made in _texts(schema, depth + 1):
            yield f"{name}.{where}", lambda value, made=made: {name: made(value)}


@pytest.mark.parametrize("control", ["\n", "\x00", "\x1b"])
def test_the_walk_finds_what_it_looks_for(shared_door: HttpDoor, control: str) -> None:
    """A field that took anything would be found: one without a control character is no error of that field."""
    good = shared_door.client.get("/v1/explain", params={"what": "default"})
    bad = shared_door.client.get("/v1/explain", params={"what": f"default{control}"})
    assert (good.status_code, bad.status_code) == (200, 422)
