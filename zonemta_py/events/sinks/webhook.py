"""Events over HTTP: CloudEvents in batches, signed as Standard Webhooks has it. The only module of the feed with httpx.

A batch has arrived when the answer is 2xx. What is wrong with the batch itself (`WRONG`) is found by halving it until
single events are left, and those are rejected for good. Everything else, 401, 403 and 404 too, is somebody's mistake
that somebody will mend: the same batch is sent again. Certificates are validated, redirects are not followed, proxies
of the environment are not used, and of an answer at most ANSWER_BYTES are read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from collections.abc import Sequence
from email.utils import mktime_tz, parsedate_tz

import httpx

from zonemta_py.config.services.events import EventSink, signing_key
from zonemta_py.events.sinks import tls
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown
from zonemta_py.logs.causes import cause

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every URL, and a secret may be in one

ANSWER_BYTES = 8 * 1024
WRONG = frozenset({400, 410, 413, 415, 422, 451})
"""Answers that say that the request itself is not wanted, and will not be later either."""
_TYPES = {
    "batch": "application/cloudevents-batch+json; charset=utf-8",
    "jsonlines": "application/x-ndjson; charset=utf-8",
    "single": "application/cloudevents+json; charset=utf-8",
}


class WebhookSink:
    """One connection, one request at a time."""

    def __init__(self, settings: EventSink, source: str) -> None:
        self._settings, self._source = settings, source
        self._keys = [signing_key(secret) for secret in settings.secret]
        self._client: httpx.AsyncClient | None = None
        tls.context(settings)

    async def open(self) -> None:
        settings = self._settings
        headers = {"User-Agent": "zonemta-py", "Content-Type": _TYPES[settings.format], "Accept-Encoding": "identity"}
        if settings.password and not settings.username:
            headers["Authorization"] = f"Bearer {settings.password}"
        self._client = httpx.AsyncClient(
            auth=(settings.username, settings.password) if settings.username else None,
            headers=headers, verify=tls.context(settings), timeout=settings.timeout_s,
            trust_env=False, follow_redirects=False,
        )  # fmt: skip

    async def send(self, batch: Sequence[Ready]) -> None:
        size = 1 if self._settings.format == "single" else len(batch)
        wrong: list[int] = []
        why = ""
        for start in range(0, len(batch), size):
            found, said = await self._halved(batch[start : start + size], start)
            wrong += found
            why = said or why
        if wrong:
            raise Rejected(why, wrong)

    async def _halved(self, batch: Sequence[Ready], first: int) -> tuple[list[int], str]:
        """Indices, from `first` on, of events that are refused for good, and what was said about the last of them."""
        why = await self._post(batch)
        if not why or len(batch) == 1:
            return [first] if why else [], why
        middle = len(batch) // 2
        left, why_left = await self._halved(batch[:middle], first)
        right, why_right = await self._halved(batch[middle:], first + middle)
        return left + right, why_right or why_left

    async def _post(self, batch: Sequence[Ready]) -> str:
        """Why it was refused for good, "" if it has arrived. Raises SinkDown."""
        assert self._client is not None
        body = self._body(batch)
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s * 2),
                self._client.stream(
                    "POST", self._settings.url, content=body, headers=self._signed(batch, body)
                ) as answer,
            ):
                await _skim(answer)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            raise SinkDown(_phrase(error)) from None
        if answer.is_success:
            return ""
        said = f"it answered {answer.status_code} {answer.reason_phrase}".rstrip()
        if answer.status_code in WRONG:
            return said
        raise SinkDown(said, _retry_after_s(answer))

    def _body(self, batch: Sequence[Ready]) -> bytes:
        if self._settings.format == "single":
            return batch[0].body
        if self._settings.format == "jsonlines":
            return b"".join(ready.body + b"\n" for ready in batch)
        return b"[" + b",".join(ready.body for ready in batch) + b"]"

    def _signed(self, batch: Sequence[Ready], body: bytes) -> dict[str, str]:
        """The same batch has the same id each time it is sent."""
        name = batch[0].id if len(batch) == 1 else f"{batch[0].id}+{len(batch)}"
        moment = str(int(time.time()))
        headers = {"webhook-id": name, "webhook-timestamp": moment}
        if self._keys:
            signed = f"{name}.{moment}.".encode() + body
            made = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in self._keys]
            headers["webhook-signature"] = " ".join(f"v1,{one}" for one in made)
        return headers

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def _skim(answer: httpx.Response) -> None:
    """Reads a short answer to its end, so that the connection can be used again; a long one is cut off."""
    size = 0
    async for part in answer.aiter_raw():
        size += len(part)
        if size > ANSWER_BYTES:
            return


def _phrase(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "it took too long to answer"
    return f"it cannot be reached: {cause(error)}"


def _retry_after_s(answer: httpx.Response) -> float | None:
    """Seconds or a date (RFC 9110 10.2.3); None if nothing is said, or nothing that is understood."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    date = parsedate_tz(text) if text else None
    return max(0.0, mktime_tz(date) - time.time()) if date else None
