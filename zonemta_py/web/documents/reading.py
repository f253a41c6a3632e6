"""Parsing of requests: bodies within their limits, JSON, types; every fault is a RequestProblem."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any, TypeVar

from fastapi import Request
from jiter import from_json
from pydantic import BaseModel, ValidationError

from zonemta_py.web.documents import values
from zonemta_py.web.documents.problem import ERRORS_MAX, FieldError, RequestProblem, invalid

JSON, MAIL = "application/json", "message/rfc822"
_M = TypeVar("_M", bound=BaseModel)
ELEMENTS_MAX = 1_000
BRACKETS_MAX, COMMAS_MAX, KEYS_MAX = 200_000, 600_000, 100_000
KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 200 printable ASCII characters that identify this request: repeated with the same content, it"
    " gets the first response again (draft-ietf-httpapi-idempotency-key-header).",
    "schema": {"type": "string", "maxLength": 200, "pattern": '^(?! *"" *$)[ -~]*[!-~][ -~]*$'},
    "example": "spring-000017",
}
"""The description of that header."""
_KEY = re.compile(rb'"\s*:')
_READ_AWAY = 4
_SURROGATES = ("surrogate", "hex escape")


def media_type(request: Request, *known: str) -> str:
    """The body's, lower case, without parameters. Raises RequestProblem for one not in `known`."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said not in known:
        raise RequestProblem(
            "media-type", f"the body's Content-Type is {said[:80]!a}; send it as Content-Type: {' or '.join(known)}"
        )
    plain_coding(request)
    return said


def plain_coding(request: Request) -> None:
    """Raises RequestProblem for a compressed body."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise RequestProblem("media-type", f"the body is encoded as {coding[:80]!a}; send it without Content-Encoding")


async def blocks(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body as it comes. Raises RequestProblem for more than `most` bytes, before reading if Content-Length says
    so."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > most:
        raise _too_large(most, int(declared))
    size = 0
    async for block in request.stream():
        size += len(block)
        if size > most:
            raise _too_large(most)
        if block:
            yield block


def _too_large(most: int, size: int = 0) -> RequestProblem:
    """size: as declared, 0 if it was not. A small excess is read and discarded, so that the client reads the
    response."""
    headers = {} if 0 < size <= _READ_AWAY * most else {"connection": "close"}
    return RequestProblem("too-large", f"the body is larger than {most:,} bytes; send less at once", headers=headers)


async def json_object(request: Request, most: int, elements: int = ELEMENTS_MAX) -> dict[str, Any]:
    """elements: limit on members of objects and lists; "recipients" is not counted. Raises RequestProblem."""
    media_type(request, JSON)
    return parsed(b"".join([block async for block in blocks(request, most)]), elements)


def parsed(body: bytes, elements: int) -> dict[str, Any]:
    """The same for a body that has been read. Raises RequestProblem."""
    _check_marks(body)
    try:
        content = from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        reason = str(error)
        if any(word in reason for word in _SURROGATES):
            raise invalid([FieldError("body", "has one half of a surrogate pair; write the whole character")]) from None
        raise RequestProblem("malformed", f"the body is not JSON ({reason[:200]}); correct it there") from None
    if not isinstance(content, dict):
        raise RequestProblem("malformed", "the body is not a JSON object; put it in braces")
    _count(content, elements)
    return content


def _check_marks(body: bytes) -> None:
    """Refuses many tiny elements, which take far more memory than their bytes, and are slow. Raises RequestProblem."""
    what = ""
    if body.count(b"[") + body.count(b"{") > BRACKETS_MAX:
        what = f"{BRACKETS_MAX:,} brackets and braces"
    elif body.count(b",") > COMMAS_MAX:
        what = f"{COMMAS_MAX:,} commas"
    elif body.count(b":") > KEYS_MAX and next(islice(_KEY.finditer(body), KEYS_MAX, None), None) is not None:
        what = f"{KEYS_MAX:,} keys"
    if what:
        raise RequestProblem("too-large", f"the body has more than {what}; send less at once")


def _count(content: dict[str, Any], most: int) -> None:
    """Counts all elements before any is checked. Raises RequestProblem."""
    left, inner = most, [value for key, value in content.items() if key != "recipients"]
    left -= len(content)
    while inner and left >= 0:
        value = inner.pop()
        if isinstance(value, dict | list):
            left -= len(value)
            if left >= 0:
                inner += value.values() if isinstance(value, dict) else value
    if left < 0:
        raise invalid(
            [FieldError("body", f"has more than {most:,} members, all objects and lists together; send fewer")]
        )


def checked(model: type[_M], content: Any, within: tuple[str, int] = ("", 0)) -> _M:
    """within: a list, and the index of the given part in it. Raises RequestProblem."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        rows = error.errors(include_url=False, include_input=False)
        raise of_validation([{**row, "loc": _shifted(row["loc"], *within)} for row in rows]) from None


def _shifted(parts: tuple[int | str, ...], name: str, by: int) -> tuple[int | str, ...]:
    if by and len(parts) > 1 and parts[0] == name and isinstance(parts[1], int):
        return (name, parts[1] + by, *parts[2:])
    return parts


def of_validation(errors: list[Any]) -> RequestProblem:
    """The problem for pydantic's errors."""
    found = [FieldError(where(error["loc"]), _what(error)) for error in errors]
    return invalid(found[: 50 * ERRORS_MAX])


_NO_KEYS = frozenset(("[key]", "[packed]", "[plain]"))
"""In pydantic's places: not what the client wrote."""


_NO_KEY = "is not a key of this request; remove it"
_OF_FILES = {
    "filename": "name",
    "contenttype": "type",
    "mimetype": "type",
    "contentid": "content_id",
    "cid": "content_id",
}
"""What other services call the keys of an attachment, without marks between words → ours."""


def where(parts: tuple[int | str, ...]) -> str:
    """recipients[3].address; keys chosen by the client are shortened."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in _NO_KEYS:
            shown = part[:60] if part.isascii() and part.isprintable() else ascii(part[:60])
            text += f".{shown}" if text else shown
    return text


def _what(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        *above, key = error["loc"]
        of_file = bool({"attachments", "images"}.intersection(above))
        ours = _OF_FILES.get(str(key).lower().replace("_", "").replace("-", ""), "") if of_file else ""
        return f"is not a key of this request; it is called {ours!r} here" if ours else _NO_KEY
    if error["type"] == "missing":
        return "is missing; give it"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] in ("model_type", "model_attributes_type", "dataclass_type", "dict_type"):
        return "is not an object; write it as { … } with its keys"
    message = str(error["msg"]).removeprefix("Input ").removeprefix("Value ")
    return message[:1].lower() + message[1:] + "; correct it"


def bytes_of(text: str, where: str) -> bytes:
    """Base64. Raises RequestProblem."""
    try:
        return base64.b64decode(text.encode("ascii").translate(None, b" \t\r\n"), validate=True)
    except (binascii.Error, ValueError):
        raise invalid([FieldError(where, "is not base64; encode it so (RFC 4648 4)")]) from None


def request_key(request: Request) -> str:
    """The value of Idempotency-Key, "" if there is none. Raises RequestProblem."""
    said = request.headers.getlist("idempotency-key")
    if not said:
        return ""
    try:
        if len(said) > 1:
            raise ValueError("appears more than once; send one")
        return values.request_key(said[0])
    except ValueError as error:
        raise invalid([FieldError("header Idempotency-Key", str(error))]) from None


def body_of(model: str) -> dict[str, Any]:
    """The API description of a body that is parsed here."""
    schema = {"$ref": f"#/components/schemas/{model}"}
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


def known_query(request: Request) -> None:
    """A delay or priority that is misspelt must not be lost in silence. Raises RequestProblem."""
    known = _parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            remedy = f"there are {', '.join(known)}" if known else "remove it"
            raise invalid([FieldError(f"query {name[:40]!a}", f"is not a parameter of this request; {remedy}")])


def _parameters(dependant: Any) -> list[str]:
    inner = [name for one in dependant.dependencies for name in _parameters(one)]
    return [*(one.alias for one in dependant.query_params), *inner]
