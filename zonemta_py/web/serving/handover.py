"""A message as a response: its bytes as they are, its envelope in header fields.

A popped message is done when the client's TCP has acknowledged the whole response: it is all that HTTP lets a server
know. A response that ends otherwise gives the message back. Whoever must be sure reserves, and acknowledges.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from zonemta_py.reception.pull import Taken
from zonemta_py.reception.tcp import has_all

MEDIA_TYPE = "application/octet-stream"


class Handover(Response):
    """settles: it is done when the response has arrived; otherwise it stays as it is. receipt: the client gets one.
    timeout_s: how long the client may take for each chunk."""

    def __init__(self, taken: Taken, timeout_s: float, settles: bool = False, receipt: bool = False) -> None:
        self._taken, self._timeout_s, self._settles, self._leased = taken, timeout_s, settles, settles or receipt
        delivery = taken.delivery
        envelope = {"sender": delivery.sender, "recipients": [one.address for one in delivery.recipients]}
        fields = {
            "content-length": str(delivery.size), "zonemta-id": delivery.id, "zonemta-envelope": json.dumps(envelope),
            "zonemta-attempts": str(max(delivery.attempts, default=0)), "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        }  # fmt: skip
        if receipt:
            fields["zonemta-receipt"] = taken.receipt
        super().__init__(headers=fields, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport: Any = scope["state"]["transport"]
        arrived = False
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}, send)
            async for chunk in self._taken.chunks():
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True}, send)
            arrived = await has_all(transport, self._timeout_s)  # before the end, which may close the connection
            await self._send({"type": "http.response.body", "body": b""}, send)
        except TimeoutError:
            transport.abort()
        finally:
            if self._leased and not arrived:
                transport.abort()  # an end that looks clean would say that it is the client's
                await self._taken.give_back()
        if self._settles and arrived:
            await self._taken.done()

    async def _send(self, event: dict[str, Any], send: Send) -> None:
        async with asyncio.timeout(self._timeout_s):
            await send(event)


def described(what: str) -> dict[int | str, dict[str, Any]]:
    """The successful responses, for the description of the API."""
    fields = {
        "Zonemta-Id": "The message's id.",
        "Zonemta-Envelope": "A JSON object with sender and recipients, in ASCII.",
        "Zonemta-Attempts": "How often it was given back with a delay.",
    }
    if "reserve" in what:
        fields["Zonemta-Receipt"] = "Names the reservation, for ack, nack and extend."
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in fields.items()}
    content = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    return {
        200: {"description": "The message, byte for byte.", "content": content, "headers": headers},
        204: {"description": "There is none."},
    }


def nothing() -> Response:
    return Response(status_code=204, headers={"cache-control": "no-store"})
