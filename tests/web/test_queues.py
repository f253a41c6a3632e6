"""Named queues by HTTP: /v1/queues."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.web.conftest import HttpDoor
from zonemta_py.web.keys import hashed

BINARY = bytes(range(256)) * 1_000


def ready(door: HttpDoor, queue: str) -> int:
    row = door.client.get(f"/v1/queues/{queue}").json()
    assert row["queue"] == queue
    return int(row["ready"])


@pytest.mark.parametrize("body", [b"", b"x", BINARY, b'{"a": 1}'])
def test_any_bytes_come_back_as_they_were(shared_door: HttpDoor, body: bytes) -> None:
    pushed = shared_door.client.post(
        "/v1/queues/bytes/push", content=body, headers={"content-type": "application/json"}
    )
    popped = shared_door.client.post("/v1/queues/bytes/pop")
    assert (popped.status_code, popped.content) == (200, body)
    assert popped.headers["zonemta-id"] == pushed.json()["id"]
    assert json.loads(popped.headers["zonemta-envelope"]) == {"sender": "", "recipients": ["bytes@queue"]}
    assert shared_door.client.post("/v1/queues/bytes/pop").status_code == 204


def test_reserving_and_acknowledging(shared_door: HttpDoor) -> None:
    client = shared_door.client
    for body in (b"A", b"B"):
        client.post("/v1/queues/held/push", content=body)
    taken = client.post("/v1/queues/held/reserve?seconds=60")
    said = {"receipt": taken.headers["zonemta-receipt"]}
    assert (taken.content, client.get("/v1/queues/held/peek").content) == (b"A", b"B")
    assert client.post("/v1/queues/held/extend", json=said | {"seconds": 90}).status_code == 200
    assert client.post("/v1/queues/other/ack", json=said).status_code == 409
    assert client.post("/v1/queues/held/nack", json=said).json() == said
    again = client.post("/v1/queues/held/reserve")
    assert (again.content, again.headers["zonemta-attempts"]) == (b"A", "0")
    assert client.post("/v1/queues/held/ack", json=said).status_code == 409
    assert client.post("/v1/queues/held/ack", json={"receipt": again.headers["zonemta-receipt"]}).status_code == 200
    assert client.post("/v1/queues/held/pop").content == b"B"
    assert next(row for row in client.get("/v1/queues").json() if row["queue"] == "held")["leased"] == 0


def test_waiting(shared_door: HttpDoor) -> None:
    found: list[bytes] = []
    waiting = threading.Thread(
        target=lambda: found.append(shared_door.client.post("/v1/queues/waits/pop?wait=60", timeout=90).content)
    )
    waiting.start()
    time.sleep(0.2)
    shared_door.client.post("/v1/queues/waits/push", content=b"for you")
    waiting.join(60)
    assert found == [b"for you"]


def test_a_repeated_push_is_stored_once(shared_door: HttpDoor) -> None:
    said = [
        shared_door.client.post("/v1/queues/once/push", content=b"x", headers={"idempotency-key": "1"}).json()
        for _ in range(2)
    ]
    assert (said[0]["id"], [one["repeated"] for one in said]) == (said[1]["id"], [False, True])
    assert ready(shared_door, "once") == 1
    other = shared_door.client.post("/v1/queues/once/push", content=b"y", headers={"idempotency-key": "1"})
    assert other.status_code == 409


@pytest.mark.parametrize("body", [b"", BINARY])
def test_a_client_that_wants_the_connection_closed_takes_it_too(shared_door: HttpDoor, body: bytes) -> None:
    close, client = {"connection": "close"}, shared_door.client
    for _ in range(2):
        client.post("/v1/queues/close/push", content=body)
    assert client.post("/v1/queues/close/pop", headers=close).content == body
    reserved = client.post("/v1/queues/close/reserve?wait=20", headers=close)
    assert reserved.content == body
    receipt = {"receipt": reserved.headers["zonemta-receipt"]}
    assert client.post("/v1/queues/close/ack", json=receipt).status_code == 200
    assert client.post("/v1/queues/close/pop").status_code == 204


def test_a_pop_that_is_not_taken_is_given_back(shared_door: HttpDoor) -> None:
    """Its client goes in the middle of the response."""
    large = b"z" * 8_000_000
    shared_door.client.post("/v1/queues/large/push", content=large)
    with socket.create_connection(("127.0.0.1", shared_door.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        key = f"Authorization: Bearer {shared_door.token}\r\n"
        connection.sendall(f"POST /v1/queues/large/pop HTTP/1.1\r\nHost: a\r\n{key}\r\n".encode())
        assert connection.recv(1000)
    assert shared_door.client.post("/v1/queues/large/pop?wait=30").content == large


@pytest.mark.parametrize(
    ("method", "at", "more", "status"),
    [
        ("POST", "a%2Fb/push", {}, 404),
        ("POST", "-a/push", {}, 422),
        ("POST", "a/push?priority=10", {}, 422),
        ("POST", "a/push?piority=1", {}, 422),
        ("POST", "a/push?delay=31536000", {}, 422),
        ("POST", "a/push", {"headers": {"content-encoding": "gzip"}}, 415),
        ("POST", "a/pop?wait=301", {}, 422),
        ("POST", "a/reserve?seconds=86400", {}, 422),
        ("POST", "a/ack", {"json": {"receipt": "x"}}, 422),
        ("POST", "a/ack", {"json": {"receipt": "00.1"}}, 409),
        ("GET", "a/pop", {}, 405),
    ],
)
def test_what_cannot_be_done_is_a_problem(
    shared_door: HttpDoor, method: str, at: str, more: dict[str, Any], status: int
) -> None:
    answer = shared_door.client.request(method, f"/v1/queues/{at}", **more)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_rights_and_queues_of_keys(open_http: Callable[..., HttpDoor]) -> None:
    keys = [
        {"name": "adder", "hash": hashed("adder"), "rights": ["push"], "queues": ["jobs.*"]},
        {"name": "taker", "hash": hashed("taker"), "rights": ["pop"]},
        {"name": "mailer", "hash": hashed("mailer")},
    ]
    door = open_http(http={"keys": keys})
    adder, taker, mailer = map(door.client_with, ("adder", "taker", "mailer"))
    assert adder.post("/v1/queues/jobs.a/push", content=b"x").status_code == 200
    assert "is not for the queue 'others'" in adder.post("/v1/queues/others/push").json()["detail"]
    assert "lacks the right pop" in adder.post("/v1/queues/jobs.a/pop").json()["detail"]
    door.client.post("/v1/queues/others/push", content=b"x")
    assert [row["queue"] for row in adder.get("/v1/queues").json()] == ["jobs.a"]
    assert [row["queue"] for row in taker.get("/v1/queues").json()] == ["jobs.a", "others"]
    assert taker.post("/v1/queues/jobs.a/pop").content == b"x"
    assert mailer.get("/v1/queues").status_code == mailer.post("/v1/queues/q/push").status_code == 403
