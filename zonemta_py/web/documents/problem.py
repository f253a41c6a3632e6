"""Problem documents (RFC 9457): every refusal, whatever its origin, is sent as one of these.

`detail` is one sentence that ends with the remedy; `errors` lists places in the request. They never contain internal
details: a bug is logged under the number at the end of `instance`, and reported as "bug".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.verdicts import Defer, Verdict

MEDIA_TYPE = "application/problem+json"
ERRORS_MAX = 20
"""Places that one document names; the rest is counted in the last of them."""
BUSY_S = 1
QUEUE_S = 5
DISK_S = 60
_NO_SPACE = 452
_TOO_LARGE = 552
_CONFLICT = "5.5.0"
_WAIT = re.compile(r"; try again in ([\d,]+) s$", re.ASCII)


class Kind(NamedTuple):
    status: int
    title: str


KINDS: dict[str, Kind] = {
    "bad-request": Kind(400, "Bad request"),
    "malformed": Kind(400, "The request cannot be read"),
    "no-key": Kind(401, "Missing or invalid key"),
    "no-signature": Kind(403, "The request is not proven to be its sender's"),
    "refused": Kind(403, "Refused"),
    "no-right": Kind(403, "The key lacks the required right"),
    "not-found": Kind(404, "Not found"),
    "method": Kind(405, "Method not allowed"),
    "slow": Kind(408, "The request took too long"),
    "conflict": Kind(409, "Conflict with the current state"),
    "too-large": Kind(413, "The request is too large"),
    "media-type": Kind(415, "Unsupported media type"),
    "invalid": Kind(422, "Invalid request"),
    "too-many": Kind(429, "Too many requests"),
    "share": Kind(429, "Too many requests in progress with this key"),
    "bug": Kind(500, "Internal error"),
    "unavailable": Kind(503, "Temporarily unavailable"),
}
"""Last part of `type` → status and title."""
_BY_STATUS = {kind.status: slug for slug, kind in KINDS.items()}
_OF_ROUTES = _BY_STATUS | {400: "bad-request", 403: "refused", 429: "too-many"}
"""Of what plugins' routes say: why is theirs alone."""


class FieldError(NamedTuple):
    """where: the place in the request, as "recipients[3][0]" or "header Idempotency-Key". what: what is wrong there."""

    where: str
    what: str


class RequestProblem(Exception):
    """slug: a key of KINDS. headers: further response headers, with lower-case names."""

    def __init__(
        self, slug: str, detail: str, errors: Iterable[FieldError] = (), retry_s: int = 0,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail)
        self.slug, self.detail, self.errors = slug, detail, list(errors)
        self.headers = headers or {}
        if retry_s:
            self.headers["retry-after"] = str(retry_s)

    @property
    def status(self) -> int:
        return KINDS[self.slug].status

    def document(self, instance: str) -> bytes:
        """The body, JSON in UTF-8. instance: the request's path and number."""
        row: dict[str, Any] = {
            "type": f"urn:zonemta:problem:{self.slug}",
            "title": KINDS[self.slug].title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
        }
        if self.errors:
            row["errors"] = [fault._asdict() for fault in _shortened(self.errors)]
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")


def _shortened(faults: list[FieldError]) -> list[FieldError]:
    if len(faults) <= ERRORS_MAX:
        return faults
    more = FieldError("", f"and {len(faults) - ERRORS_MAX + 1} more like these")
    return [*faults[: ERRORS_MAX - 1], more]


def invalid(faults: list[FieldError]) -> RequestProblem:
    """One or more errors; the first becomes the sentence."""
    first = faults[0]
    others = f" (and {len(faults) - 1} more, see errors)" if len(faults) > 1 else ""
    return RequestProblem("invalid", f"{first.where}: {first.what}{others}" if first.where else first.what, faults)


def of_reply(reply: Reply, retry_s: int = 0) -> RequestProblem:
    """The problem for the reply that an SMTP client would get. 4xx: try again."""
    sentence = reply.text or "the message was refused"
    if ";" not in sentence and ":" not in sentence:
        sentence += "; change it before you send it again" if reply.permanent else "; send the same after Retry-After"
    if not reply.permanent:
        said = _WAIT.search(sentence)  # a quota's, which begins anew then
        wait_s = int(said[1].replace(",", "")) if said else DISK_S if reply.code == _NO_SPACE else QUEUE_S
        return RequestProblem("unavailable", sentence, retry_s=retry_s or wait_s)
    if reply.code == _TOO_LARGE:
        return RequestProblem("too-large", sentence)
    return RequestProblem("conflict" if reply.enhanced == _CONFLICT else "invalid", sentence)


def of_verdict(verdict: Verdict) -> RequestProblem:
    """The problem for a plugin's refusal."""
    retry_s = max(1, math.ceil(min(verdict.seconds, 86_400))) if isinstance(verdict, Defer) else 0
    return of_reply(verdict.reply, retry_s)


def of_route(status: int, detail: str, retry_s: int) -> RequestProblem:
    """The problem that a plugin's route refuses a request with."""
    return RequestProblem(_OF_ROUTES[status], detail, retry_s=max(0, retry_s))


def of_status(status: int, detail: str, headers: dict[str, str] | None = None) -> RequestProblem:
    """The problem for an error of the framework: unknown path, method not allowed."""
    return RequestProblem(_BY_STATUS.get(status, "malformed"), detail, headers=headers)
