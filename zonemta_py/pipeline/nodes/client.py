"""The client of a node's HTTP listener: the only module of the pipeline that speaks HTTP.

Promise: a request that may have been accepted is repeated with its idempotency key until the node reports its result,
or the patience ends. A node that is busy (429, 503) sets the pace by Retry-After; an unreachable one is waited for.
Of a cluster, whose nodes are one MTA, another node is asked meanwhile; no node is used before it has said that it is
one of that cluster.
Failures: `NodeRefused` for what retrying does not help, with the sentence of the problem document (RFC 9457);
`NodeGone` when patience ended. Both name the node.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from zonemta_py.logs.causes import cause

PATIENCE_S = 600.0
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 30.0
TIMEOUT_S = 60.0
CONNECT_S, RESPONSE_S = 3.0, 30.0
"""Of a node of a cluster: after so long another one is asked."""
RESTS_S = 5.0
"""How long a node of a cluster that did not answer is passed over."""
PAGE = 1_000
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class NodeRefused(Exception):
    """The node refused; its sentence says why."""


class NodeGone(Exception):
    """The node did not answer, or was busy, for the whole patience_s."""


class NodeReceipt(NamedTuple):
    """What became of a chunk: recipients accepted, left out as suppressed; repeated: it was in the node already."""

    accepted: int
    suppressed: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """Where to: URLs of nodes, and their key. patience_s: for a node that is away or busy. requests: at once per task.

    key_file: where the key is from; it is read again when the node does not know the key (any more).
    """

    nodes: tuple[str, ...]
    key: str
    patience_s: float = PATIENCE_S
    requests: int = 4
    key_file: str = ""
    verify: bool | str = True

    def __post_init__(self) -> None:
        """Raises ValueError."""
        for url in self.nodes:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{url!r} is not the URL of a node; write it like http://127.0.0.1:8525")
            if parts.scheme == "http" and not _is_here(parts.hostname):
                raise ValueError(f"{url!r} would get the API key in the clear; write https://, or use a tunnel")
        if not self.nodes:
            raise ValueError("no node is named; name at least one with --nodes")


def _is_here(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class NodeGroup(NamedTuple):
    """What is one MTA: a node that is alone (id ""), or some nodes of a cluster. name: of the cluster."""

    urls: tuple[str, ...]
    id: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        """By which it is known again."""
        return f"cluster {self.id}" if self.id else self.urls[0]

    def __str__(self) -> str:
        return f"the cluster {self.name} ({', '.join(self.urls)})" if self.id else self.urls[0]

    @classmethod
    def alone(cls, url: str) -> NodeGroup:
        return cls((url.rstrip("/"),))


class NodeClient:
    """One node, or those of one cluster. `with NodeClient(url, target) as node:`; its methods may be called from
    several threads."""

    def __init__(
        self, group: str | NodeGroup, target: NodeAccess, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.group = NodeGroup.alone(group) if isinstance(group, str) else group
        self.url = self.group.urls[0]
        """Of a cluster, the node that answered last."""
        self._patience_s, self._clock, self._sleep = target.patience_s, clock, sleep
        limits = httpx.Limits(max_connections=target.requests, max_keepalive_connections=target.requests)
        self._key, self._key_file = target.key, target.key_file
        timeout = httpx.Timeout(RESPONSE_S, connect=CONNECT_S) if self.group.id else httpx.Timeout(TIMEOUT_S)
        self._clients = {
            url: httpx.Client(base_url=url, limits=limits, timeout=timeout, verify=target.verify, trust_env=False)
            for url in self.group.urls
        }
        self._known = set[str]() if self.group.id else set(self.group.urls)
        """Nodes that have said which cluster they are of."""
        self._resting = dict[str, float]()
        """Nodes that did not answer, and until when they are passed over."""

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()

    def inject(self, chunk: str, body: bytes) -> NodeReceipt:
        """One batch of a campaign (POST /v1/inject). Raises NodeRefused, NodeGone, which name the chunk."""
        headers = {"Idempotency-Key": chunk, "Content-Type": "application/json"}
        row = self._json("POST", "/v1/inject", f"chunk {chunk}", content=body, headers=headers)
        return NodeReceipt(int(row["accepted"]), int(row["suppressed"]), bool(row["repeated"]))

    def identity(self) -> NodeGroup:
        """What it says it is: alone, or of which cluster. Raises NodeRefused, NodeGone."""
        options = {"timeout": httpx.Timeout(RESPONSE_S, connect=CONNECT_S)}
        answer = self._patiently("GET", "/v1/node", "which node it is", options, (httpx.codes.NOT_FOUND,))
        return _identity(self.url, answer)

    def put_campaign(self, name: str, template: bytes, **fields: Any) -> None:
        """fields: sender, tenant, zone, priority, planned, bounds, life_h, at … The same again succeeds."""
        body = {"template": base64.b64encode(template).decode(), **fields}
        self._json("PUT", f"/v1/campaigns/{quote(name, safe='')}", f"campaign {name}", json=body)

    def campaign(self, name: str) -> dict[str, Any]:
        """Its status row."""
        return self._json("GET", f"/v1/campaigns/{quote(name, safe='')}", f"campaign {name}")

    def schedule(self, name: str, hours: dict[str, str]) -> dict[str, Any]:
        """It goes at other hours from now on: at, window, until, time_zone."""
        return self._json("PATCH", f"/v1/campaigns/{quote(name, safe='')}", f"campaign {name}", json=hours)

    def hours(self, name: str) -> dict[str, Any] | None:
        """Who of it waits for their hour; None: it has no hours."""
        path = f"/v1/campaigns/{quote(name, safe='')}"
        return self._json("GET", path, f"campaign {name}", params={"hours": "true"}).get("scheduled")

    def campaigns(self) -> list[dict[str, Any]]:
        answer = self._json("GET", "/v1/campaigns", "the campaigns")
        found: list[dict[str, Any]] = answer["campaigns"] if isinstance(answer, dict) else answer
        return found

    def order(self, name: str, verb: str, cause: str = "") -> dict[str, Any]:
        """verb: pause, resume, cancel or complete."""
        return self._json(
            "POST", f"/v1/campaigns/{quote(name, safe='')}/{verb}", f"campaign {name}", json={"cause": cause}
        )

    def planning(self) -> dict[str, Any]:
        """Its zones, their sources, what those that warm up may send, and its providers."""
        return self._json("GET", "/v1/planning", "what it sends by")

    def decide(self, name: str, winner: str, cause: str) -> dict[str, Any]:
        """A campaign gets the template of one of its variants; winner "": of the best one now."""
        path = f"/v1/campaigns/{quote(name, safe='')}/decide"
        return self._json("POST", path, f"campaign {name}", json={"winner": winner, "cause": cause})

    def text(self, name: str, template: bytes, cause: str) -> dict[str, Any]:
        """What waits of a suspended campaign gets this template."""
        body = {"template": base64.b64encode(template).decode(), "cause": cause}
        return self._json("POST", f"/v1/campaigns/{quote(name, safe='')}/text", f"campaign {name}", json=body)

    def suppressions(self) -> Iterator[list[dict[str, Any]]]:
        """All of the list, page by page."""
        after = ""
        while True:
            page = self._json("GET", "/v1/suppressions", "the suppression list", params={"after": after, "limit": PAGE})
            if page["rows"]:
                yield page["rows"]
            after = page["next"] or ""
            if not after:
                return

    def suppress(self, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Puts people on the list: address, kind, reason, evidence, by; up to 10,000. Gives {"added", "known"}."""
        return self._json("POST", "/v1/suppressions", "the suppression list", json={"rows": list(rows)})

    def _json(self, method: str, path: str, what: str, **options: Any) -> dict[str, Any]:
        answer = self._patiently(method, path, what, options)
        try:
            row: dict[str, Any] = answer.json()
        except json.JSONDecodeError:
            raise NodeRefused(
                f"{self.url}: {what}: the answer is not JSON; name a node's HTTP listener with --nodes"
            ) from None
        return row

    def _patiently(
        self, method: str, path: str, what: str, options: dict[str, Any], taken: tuple[int, ...] = ()
    ) -> httpx.Response:
        """taken: statuses that are answers, too."""
        end, pause_s, tried = self._clock() + self._patience_s, PAUSE_S_MIN, 0
        by = options.get("headers", {}).get("Idempotency-Key", "")
        while True:
            url, wanted_s = self._next(by), 0.0
            try:
                self._check(url)
                answer = self._request(url, method, path, options)
            except httpx.TransportError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    sentence = f"its certificate cannot be verified ({error}); name its CA with --ca FILE"
                    raise NodeRefused(f"{url}: {what}: {sentence}") from None
                trouble = f"it does not answer ({cause(error)})"
            except _Busy as busy:
                trouble = str(busy)
            else:
                if answer.is_success or answer.status_code in taken:
                    self.url = url
                    return answer
                if answer.status_code not in _AGAIN:
                    raise NodeRefused(f"{url}: {what}: {_sentence(answer)}")
                trouble, wanted_s = _sentence(answer), _retry_after_s(answer)
            left_s = end - self._clock()
            if left_s <= 0:
                raise NodeGone(f"{url}: {what}: {trouble}, for {self._patience_s:.0f} s")
            tried += 1
            self._resting[url] = self._clock() + max(wanted_s, RESTS_S)
            if tried % len(self._clients):  # another node of the cluster first
                continue
            # Spreads the retries of clients that were refused together.
            self._sleep(min(max(wanted_s, pause_s * random.uniform(0.5, 1)), left_s))
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _next(self, by: str) -> str:
        """The node to ask: what has a key is spread over those that answer, the rest goes to the one that answered
        last. If none does, the one whose rest ends first."""
        now = self._clock()
        ready = [url for url in self._clients if self._resting.get(url, 0.0) <= now]
        if not ready:
            return min(self._clients, key=lambda url: self._resting[url])
        if by:
            return max(ready, key=lambda url: hashlib.sha256(f"{by}\0{url}".encode()).digest())
        return self.url if self.url in ready else ready[0]

    def _check(self, url: str) -> None:
        """Raises NodeRefused if it is not of this cluster, _Busy if it cannot say it, httpx.TransportError."""
        if url in self._known:
            return
        answer = self._request(url, "GET", "/v1/node", {})
        if answer.status_code in _AGAIN:
            raise _Busy(_sentence(answer))
        if not answer.is_success and answer.status_code != httpx.codes.NOT_FOUND:
            raise NodeRefused(f"{url}: {_sentence(answer)}")
        if _identity(url, answer).id != self.group.id:
            sentence = "give each cluster, and each MTA that is alone, its own campaign"
            raise NodeRefused(f"{url} is no node of the cluster {self.group.name} ({self.url}); {sentence}")
        self._known.add(url)

    def _request(self, url: str, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        """A restarted node has a new key in its token file."""
        shown = self._key
        headers = options.get("headers", {}) | {"Authorization": f"Bearer {shown}"}
        answer = self._clients[url].request(method, path, **options | {"headers": headers})
        if answer.status_code != httpx.codes.UNAUTHORIZED or not self._key_file:
            return answer
        with contextlib.suppress(OSError):
            self._key = Path(self._key_file).read_text("utf-8").strip()
        return answer if self._key == shown else self._request(url, method, path, options)


class _Busy(Exception):
    """Why a node does not say of which cluster it is."""


def _identity(url: str, answer: httpx.Response) -> NodeGroup:
    """Raises NodeRefused."""
    if answer.status_code == httpx.codes.NOT_FOUND:  # it is older than clusters are
        return NodeGroup.alone(url)
    try:
        row = answer.json()
        return NodeGroup((url,), str(row["id"]), str(row["cluster"]))
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise NodeRefused(f"{url}: the answer is not a node's; name a node's HTTP listener with --nodes") from None


def _sentence(answer: httpx.Response) -> str:
    try:
        document = answer.json()
        return str(document["detail"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return f"it answered {answer.status_code} {answer.reason_phrase}"


def _retry_after_s(answer: httpx.Response) -> float:
    """Seconds or a date (RFC 9110 10.2.3); 0 if nothing is said, or nothing that is understood."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isdigit():
        return float(text)
    date = parsedate_tz(text) if text else None
    return max(0.0, mktime_tz(date) - time.time()) if date else 0.0
