"""Somebody who uses a cluster by HTTP: a client, a worker and an operator in one. A request that is not answered, or
refused for now, is made again, at the next node; so it may have been carried out before, which is what `Reply.again`
says.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

import httpx

from survival.cluster import Node
from survival.contract.stage import KEY, Round
from zonemta_py.queues.placement import Placement
from zonemta_py.sink.record import ReceivedMessage

FINISHED = ("undoable", "done", "canceled", "undone")
STATES = ("queued", "leased", "deferred", "held", "deleted", "bounced")
LATER = (408, 425, 429, 502, 503, 504)
REQUEST_S, PATIENCE_S, PAUSE_S = 25.0, 240.0, 0.1


class Reply(NamedTuple):
    """again: the request was made before, and may have been carried out."""

    response: httpx.Response
    again: bool

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def json(self) -> Any:
        return self.response.json()


class Reserved(NamedTuple):
    receipt: str
    id: str
    body: bytes


class Caller:
    """Of one case: with a domain, a campaign and named queues that nobody else has."""

    def __init__(self, round: Round, number: int) -> None:
        self.round, self.name = round, f"k{number}"
        self.domain = f"{self.name}.test"
        self._stage, self._client, self._keys = round.stage, round.stage.client, count()
        self.late = 0
        """How many of what `take_all` took last may have come later than in their turn: an answer was lost, or the time
        of a reservation ended."""
        self.home = round.home
        """The node whose queue has what is handed in there without a key."""
        self._asked = [node for node in self._stage.nodes.all if node is not self.home][:: 1 if number % 2 else -1]
        self._asked.append(self.home)

    # -- the blow

    async def middle(self, last: Callable[[], Awaitable[None]] | None = None) -> None:
        """Returns when all cases are in the middle; the blow falls in the next moments. last: what has to be done right
        before."""
        await self.round.middle(last)

    async def over(self) -> None:
        """Returns when everything is back."""
        await self.round.over()

    @property
    def lost_node(self) -> bool:
        """Whether the node has died that had what was handed in at home."""
        return self.round.struck is self.home

    # -- requests

    async def send(
        self, method: str, path: str, *, at: Node | None = None, key: str = "", wait_s: float = 0, **more: Any
    ) -> Reply:
        """The first answer that is one. at: the node that is asked first. wait_s: how long an answer may take besides.
        Raises AssertionError."""
        headers = {"Authorization": f"Bearer {KEY}", **more.pop("headers", {})}
        if key:
            headers["Idempotency-Key"] = key
        nodes = [*([at] if at else []), *(node for node in self._asked if node is not at)]
        end, tries, again = time.monotonic() + PATIENCE_S, 0, False
        while True:
            url = f"http://127.0.0.1:{nodes[tries % len(nodes)].http_port}{path}"
            try:
                response = await self._client.request(method, url, headers=headers, timeout=REQUEST_S + wait_s, **more)
                if response.status_code not in LATER:
                    assert response.status_code != 500, f"{method} {path}: {response.text}"
                    return Reply(response, again)
                said = f"{response.status_code} {response.text}"
                again = again or response.status_code in (503, 504)
            except httpx.ConnectError as error:
                said = repr(error)
            except httpx.HTTPError as error:
                said, again = repr(error), True
            assert time.monotonic() < end, f"{method} {path} has no answer: {said}"
            tries += 1
            await asyncio.sleep(PAUSE_S)

    async def get(self, path: str, at: Node | None = None, **params: Any) -> Any:
        reply = await self.send("GET", path, params=params, at=at)
        assert reply.status == 200, f"GET {path}: {reply.status} {reply.response.text}"
        return reply.json

    async def order(self, method: str, path: str, json: Any = None, key: str = "") -> Any:
        reply = await self.send(method, path, key=key, **({"json": json} if json is not None else {}))
        assert reply.status == 200, f"{method} {path}: {reply.status} {reply.response.text}"
        return reply.json

    def key(self) -> str:
        """One that was not used before."""
        return f"{self.name} {next(self._keys)}"

    # -- mail

    def address(self, who: str) -> str:
        return who if "@" in who else f"{who}@{self.domain}"

    async def put(
        self, *people: str, key: str = "", home: bool = False, sender: str | None = None, text: str = "",
        headers: str = "", **query: Any,
    ) -> str:  # fmt: skip
        """A message's id. home: without a key, at home, so that it is that node's: for quiet times."""
        data = f"Subject: {people[0]}\r\n{headers}\r\n{text or self.text(people[0])}"
        params = [
            ("sender", self.sender if sender is None else sender), *(("to", self.address(who)) for who in people),
            *query.items(),
        ]  # fmt: skip
        reply = await self.send(
            "POST", "/v1/inject", at=self.home if home else None, key="" if home else key or self.key(),
            content=data.encode(), params=params, headers={"Content-Type": "message/rfc822"},
        )  # fmt: skip
        assert reply.status == 200, f"it is not accepted: {reply.status} {reply.response.text}"
        return str(reply.json["id"])

    @property
    def sender(self) -> str:
        return f"ann@src-{self.domain}"

    def text(self, who: str) -> str:
        return f"To {who} of {self.domain}, and nobody else.\r\n"

    def arrived(self, domain: str = "") -> list[ReceivedMessage]:
        """What has come, the first first."""
        ends = f"@{domain or self.domain}"
        return [one for one in self._stage.arrived() if any(who.endswith(ends) for who in one.recipients)]

    def people(self) -> list[str]:
        """Who has got something, in that order."""
        return [who.partition("@")[0] for one in self.arrived() for who in one.recipients]

    async def come(self, *people: str) -> None:
        """These get their messages, whole; nobody else gets anything, and twice only who is in doubt."""
        await self.until(lambda: set(people) <= set(self.people()), lambda: f"{set(people) - set(self.people())} lack")
        await self.until_empty()
        found = Counter(self.people())
        assert set(found) == set(people), f"{set(found) - set(people)} were not to get anything"
        doubled = {self.address(who) for who, times in found.items() if times > 1}
        assert doubled <= await self.in_doubt(), f"{doubled} got it twice"
        for one in self.arrived():
            texts = [self.text(who.partition("@")[0]).encode() for who in one.recipients]
            assert any(one.body.endswith(text) for text in texts), f"{one.recipients}: {one.body[-200:]!r}"

    async def in_doubt(self) -> set[str]:
        return {row["recipient"] for row in (await self.get("/v1/in-doubt", limit=1000))["rows"]}

    # -- what there is

    async def size(self, **of: str) -> dict[str, int]:
        """Of each state, without what there is nothing of."""
        found = await self.get("/v1/size", **(of or {"domain": self.domain}))
        return {state: found[state] for state in STATES if found.get(state)}

    async def until_size(self, **states: int) -> None:
        await self.until(lambda: self._has(states), lambda: f"it never was {states}")

    async def _has(self, states: dict[str, int]) -> bool:
        return await self.size() == states

    async def until_empty(self) -> None:
        """Until nothing of it may go any more."""

        async def empty() -> bool:
            found = await self.size()
            return not any(found.get(state) for state in ("queued", "leased", "deferred"))

        await self.until(empty, lambda: "it does not end")

    async def page(self, limit: int, after: str = "", **where: Any) -> tuple[list[str], str | None]:
        """Local parts, and the cursor of the next page."""
        more = {"after": after} if after else {}
        found = await self.get("/v1/recipients", limit=limit, **(where or {"domain": self.domain}), **more)
        return [row["recipient"].partition("@")[0] for row in found["rows"]], found["next"]

    async def browse(self, limit: int = 100, after: str | None = "", **where: Any) -> list[str]:
        found: list[str] = []
        while after is not None:
            some, after = await self.page(limit, after, **where)
            found += some
        return found

    # -- orders

    async def stop(self, kind: str = "domain", name: str = "") -> None:
        await self.order("PUT", f"/v1/suspensions/{kind}/{name or self.domain}", {"cause": self.name})

    async def lift(self, kind: str = "domain", name: str = "") -> None:
        """Whoever did it before has done it."""
        reply = await self.send("DELETE", f"/v1/suspensions/{kind}/{name or self.domain}")
        assert reply.status == 200 or (reply.again and reply.status == 404), reply.response.text

    async def task(self, verb: str, key: str = "", **where: Any) -> dict[str, Any]:
        """Done to its end. undo_s, set: of the order."""
        more = {name: where.pop(name) for name in ("undo_s", "set") if name in where}
        said = {"verb": verb, "where": where or {"domain": self.domain}, **more}
        return await self.ended(await self.order("POST", "/v1/tasks", said, key or self.key()))

    async def ended(self, row: dict[str, Any], *states: str) -> dict[str, Any]:
        found = row

        async def done() -> bool:
            nonlocal found
            found = await self.get(f"/v1/tasks/{row['id']}")
            return found["state"] in (states or FINISHED)

        await self.until(done, lambda: f"the task does not end: {found}")
        return found

    async def undo(self, row: dict[str, Any]) -> dict[str, Any]:
        reply = await self.send("POST", f"/v1/tasks/{row['id']}/undo")
        assert reply.status == 200 or (reply.again and reply.status == 409), reply.response.text
        return await self.ended(row, "undone")

    # -- named queues

    async def queue(self) -> str:
        """The name of one that belongs to the home."""
        place = Placement([row["queue"] for row in await self._stage.queues()])
        names = (f"{self.name}-{number}" for number in count())
        return next(name for name in names if place.of_queue(name) == self.round.number)

    async def push(self, queue: str, body: str, key: str = "", **query: Any) -> str:
        reply = await self.send(
            "POST", f"/v1/queues/{queue}/push", key=key or self.key(), content=body.encode(), params=query,
        )  # fmt: skip
        assert reply.status == 200, reply.response.text
        return str(reply.json["id"])

    async def reserve(self, queue: str, seconds: float = 60, wait: float = 0) -> Reserved | None:
        return (await self._reserved(queue, seconds, wait))[0]

    async def _reserved(self, queue: str, seconds: float, wait: float = 0) -> tuple[Reserved | None, bool]:
        """And whether another one may be reserved for nobody."""
        reply = await self.send(
            "POST", f"/v1/queues/{queue}/reserve", params={"seconds": seconds, "wait": wait}, wait_s=wait
        )
        assert reply.status in (200, 204), reply.response.text
        if reply.status == 204:
            return None, reply.again
        fields = reply.response.headers
        return Reserved(fields["zonemta-receipt"], fields["zonemta-id"], reply.response.content), reply.again

    async def ack(self, queue: str, one: Reserved) -> tuple[bool, bool]:
        """Whether it was done by this, and whether it may have been done by it before."""
        reply = await self.send("POST", f"/v1/queues/{queue}/ack", json={"receipt": one.receipt})
        assert reply.status in (200, 409), reply.response.text
        return reply.status == 200, reply.again

    async def nack(self, queue: str, one: Reserved, delay_s: float = 0) -> bool:
        """Whether it is known to be given back."""
        said = {"receipt": one.receipt, "delay_s": delay_s}
        return (await self.send("POST", f"/v1/queues/{queue}/nack", json=said)).status == 200

    async def lengths(self, queue: str) -> dict[str, int]:
        found = await self.get(f"/v1/queues/{queue}")
        return {state: found[state] for state in ("ready", "leased", "delayed", "held") if found[state]}

    async def take_all(self, queue: str) -> list[Reserved]:
        """Everything, one after the other, also what somebody has reserved whom nobody knows: his time ends."""
        found: list[Reserved] = []
        self.late = 0

        async def empty() -> bool:
            while True:
                one, again = await self._reserved(queue, 5)
                self.late += again
                if one is None:
                    return not await self.lengths(queue)
                done, maybe = await self.ack(queue, one)
                if done or maybe:
                    found.append(one)
                else:
                    self.late += 1

        await self.until(empty, lambda: f"{queue} does not end")
        return found

    # -- waiting

    async def until(self, true: Callable[[], bool | Awaitable[bool]], otherwise: Callable[[], str]) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            assert time.monotonic() < end, f"{self.domain}: {otherwise()}"
            await asyncio.sleep(PAUSE_S)

    async def together(self, orders: Iterable[Awaitable[Any]]) -> list[Any]:
        return list(await asyncio.gather(*orders))
