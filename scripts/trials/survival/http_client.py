"""An HTTP client that repeats unanswered requests with the same Idempotency-Key, until it gets a 200."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from survival.letters import Letter

AGAIN = (401, 408, 409, 425, 429, 500, 502, 503, 504)
"""401: the key in http.token is not there yet, or was changed."""
PAUSE_S = 0.05


class HttpClient:
    """answers: how often each status came; broken: how often none did."""

    def __init__(self, port: int, folder: Path, cut: Callable[[], bool] = lambda: False) -> None:
        """cut: whether to hang up on this request without waiting for its answer."""
        self._folder, self._cut = folder, cut
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self.answers: Counter[int] = Counter()
        self.broken = 0

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def letter(self, message: Letter) -> None:
        """Hands in one letter, as it is."""
        await self._insist(
            "POST", "/v1/inject", key=f"letter {message.name}", content=message.data,
            params=[("sender", message.sender), *(("to", to) for to in message.recipients)],
            headers={"Content-Type": "message/rfc822"},
        )  # fmt: skip

    async def campaign(self, name: str, sender: str, template: bytes) -> None:
        body = {"sender": sender, "template": base64.b64encode(template).decode(), "notify": "never"}
        await self._insist("PUT", f"/v1/campaigns/{name}", json=body)

    async def batch(self, campaign: str, number: int, rows: list[list[str]], columns: list[str]) -> None:
        body = {"campaign": campaign, "columns": columns, "recipients": rows}
        await self._insist("POST", "/v1/inject", key=f"batch {number}", json=body)

    async def complete(self, campaign: str) -> None:
        await self._insist("POST", f"/v1/campaigns/{campaign}/complete", json={})

    async def _insist(self, method: str, path: str, *, key: str = "", **more: Any) -> None:
        headers = more.pop("headers", {}) | ({"Idempotency-Key": key} if key else {})
        while True:
            try:
                token = (self._folder / "http.token").read_text().strip()
                request = self._client.request(
                    method, path, headers={**headers, "Authorization": f"Bearer {token}"}, **more
                )
                answer = await (asyncio.wait_for(request, 0.01) if self._cut() else request)
            except (httpx.HTTPError, OSError, TimeoutError):
                self.broken += 1
            else:
                self.answers[answer.status_code] += 1
                if answer.status_code == 200:
                    return
                if answer.status_code not in AGAIN:
                    raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
            await asyncio.sleep(PAUSE_S)
