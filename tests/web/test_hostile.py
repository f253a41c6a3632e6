"""No request stops another client: not by its size, its shape, its slowness or its crumbs."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h11
import pytest

from zonemta_py.reception.connection_limits import Turns
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import hashed
from zonemta_py.web.serving import connection
from zonemta_py.web.serving.connection import Parser, RequestPace
from zonemta_py.web.shares import RequestShares

JSON = {"content-type": "application/json"}
MESSAGE = b'{"from": "a@b.test", "subject": "x", "text": "y", '
MANY = 1_000_000


def bodies_of_many_parts() -> list[tuple[str, bytes]]:
    """Made when they are sent: they are 50 MB, and each process of `scripts/test` collects them."""
    numbers = b"".join(b',"%d":1' % n for n in range(500_000))
    return [
        ("/v1/inject", MESSAGE + b'"to": [' + b"1," * MANY * 2 + b"1]}"),
        ("/v1/inject", MESSAGE + b'"to": [' + b'"c@d.test",' * 300_000 + b'"c@d.test"]}'),
        ("/v1/inject", MESSAGE + b'"to": ["c@d.test"], "a": [' + b"[]," * MANY + b"[]]}"),
        ("/v1/inject", MESSAGE + b'"to": [{"address": "c@d.test"' + numbers + b"}]}"),
        ("/v1/inject", MESSAGE + b'"to": ["c@d.test"]' + numbers + b"}"),
        ("/v1/inject", MESSAGE + b'"headers": {' + b",".join(b'"X-%d":"y"' % n for n in range(300_000)) + b"}}"),
        ("/v1/inject", b'{"campaign": "c", "columns": [], "recipients": [[' + b'"a@b.test",' * 500_000 + b'""]]}'),
        ("/v1/inject", b'{"campaign": "c", "recipients": [], "columns": [' + b'"a",' * MANY + b'"b"]}'),
        ("/v1/suppressions", b'{"rows": [' + b"{}," * MANY + b"{}]}"),
        ("/v1/suppressions", b'{"rows": [' + b"{}," * 9_000 + b"{}]}"),
        ("/v1/campaigns/c/pause", b'{"cause": [' + b"0," * MANY + b"0]}"),
    ]


def test_a_body_of_many_parts_stops_nobody(shared_door: Any) -> None:
    """It is refused by its measure, before each part is looked at."""
    for path, body in bodies_of_many_parts():
        with shared_door.others_are_served():
            answer = shared_door.client.post(path, content=body, headers=JSON | {"idempotency-key": "1"})
        assert answer.status_code in (413, 422), f"{path} {body[-60:]!r}: {answer.text}"
        assert len(answer.content) < 20_000


def test_base64_with_much_space_takes_little_memory(shared_door: Any) -> None:
    """A blank behind every two characters is no list of millions of texts."""
    file = {"name": "a", "content": "AAA " * 1_500_000}
    body = {"from": "a@b.test", "to": ["c@d.test"], "text": "x", "attachments": [file]}
    packed = json.dumps(body).encode()
    tracemalloc.start()
    try:
        with shared_door.others_are_served():
            answer = shared_door.client.post("/v1/inject", content=packed, headers=JSON)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status_code == 200, answer.text
    assert peak < 10 * len(packed)


def test_a_key_said_twice_is_refused(shared_door: Any) -> None:
    """Who checked the first of them is not to be passed by the second."""
    body = MESSAGE + b'"to": ["c@d.test"], "to": ["x@y.test"]}'
    answer = shared_door.client.post("/v1/inject", content=body, headers=JSON)
    assert (answer.status_code, "duplicate key" in answer.json()["detail"]) == (400, True)


def raw(door: Any, head: str, body: bytes = b"", key: str = "") -> bytes:
    with socket.create_connection(("127.0.0.1", door.port), timeout=90) as wire:
        authorization = f"Authorization: Bearer {key or door.token}\r\n"
        wire.sendall(f"{head}\r\nHost: x\r\n{authorization}".encode() + body)
        whole = b""
        with contextlib.suppress(ConnectionResetError):
            while block := wire.recv(65536):
                whole += block
        return whole


def test_a_body_has_one_length(shared_door: Any) -> None:
    """Content-Length beside Transfer-Encoding is how requests are smuggled past proxies."""
    body = (
        b"Content-Type: application/json\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )
    said = raw(shared_door, "POST /v1/inject HTTP/1.1", body)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"send only one" in said


def test_a_header_section_ends(shared_door: Any) -> None:
    """However it grows: one long field, many fields."""
    for more in (b"X-A: " + b"a" * 300_000, b"X-A: b\r\n" * 40_000):
        said = raw(shared_door, "GET /v1/health HTTP/1.1", more)
        assert not said or said.startswith(b"HTTP/1.1 400 ")


def crumbs(count: int) -> bytes:
    return (
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * count + b"0\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("clients", "head", "rest", "status"),
    [
        (1, "POST /v1/inject HTTP/1.1", crumbs(60_000), b"400"),
        (8, "POST /v1/inject HTTP/1.1", crumbs(25_000), b"400"),
        (12, "GET /v1/health HTTP/1.1", b"a:b\r\n" * 12_000 + b"\r\n", b"200"),
    ],
)
def test_crumbs_take_turns(shared_door: Any, clients: int, head: str, rest: bytes, status: bytes) -> None:
    """A chunk of one byte costs as much as one of many; however many send them, no round of the loop is long."""
    with shared_door.rounds() as rounds, shared_door.others_are_served(), ThreadPoolExecutor(clients) as hostile:
        said = list(hostile.map(lambda _: raw(shared_door, head, b"Connection: close\r\n" + rest), range(clients)))
    assert [one[9:12] for one in said] == [status] * clients
    assert rounds.longest < 300_000, "one of them all costs a million"


@pytest.mark.parametrize(
    "begun",
    [
        b"POST /v1/inject HTTP/1.1\r\nHost: x\r\n",
        b"POST /v1/inject HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n{}\r\n",
    ],
)
def test_who_sends_drop_by_drop_is_cut_off(open_http: Any, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    """Never silent, and never done."""
    for name, value in (("HEAD_S", 0.5), ("WINDOW_S", 0.5), ("LEAST_BYTES_S", 100)):
        monkeypatch.setattr(connection, name, value)
    door = open_http(limits={"timeout_s": 1})
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as wire:
        fields = f"Authorization: Bearer {door.token}\r\nContent-Type: application/json\r\n".encode()
        wire.sendall(begun.replace(b"{}", fields))
        wire.settimeout(0.1)
        said, until = b"", time.monotonic() + 60
        while time.monotonic() < until:
            try:
                wire.sendall(b"x")
                block = wire.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if not block:
                break
            said += block
        else:
            pytest.fail("it goes on for ever")
    assert said.startswith(b"HTTP/1.1 408 ") or not said


def test_a_slow_upload_is_taken(open_http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow is not too slow."""
    for name, value in (("HEAD_S", 30), ("WINDOW_S", 2), ("LEAST_BYTES_S", 2)):
        monkeypatch.setattr(connection, name, value)
    door = open_http(limits={"timeout_s": 20})

    def drops() -> Iterator[bytes]:
        for byte in b"Subject: x\r\n\r\n" + b"y" * 40:
            yield bytes((byte,))
            time.sleep(0.05)

    answer = door.client.post("/v1/inject?to=c@d.test", content=drops(), headers={"content-type": "message/rfc822"})
    assert answer.status_code == 200, answer.text


def test_pace_blames_nobody_for_our_own_waits() -> None:
    """While the server does not read, and between requests, no time limit runs."""
    pace = RequestPace(0, 20, 20, 500)
    assert pace.late_with_head(21)
    pace.idle()
    assert not pace.late_with_head(1_000)
    body = object()
    pace.heard(10, 1_000)
    assert not pace.late_with_body(body, True, 1_000)
    assert not pace.late_with_body(body, False, 1_050)
    assert not pace.late_with_body(body, True, 1_069)
    assert pace.late_with_body(body, True, 1_071)
    pace.heard(500 * 21, 1_080)
    assert not pace.late_with_body(body, True, 1_092)


def slow_body(door: Any, path: str, kind: str, key: str = "") -> socket.socket:
    """A request of which the body never comes."""
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    wire = socket.create_connection(("127.0.0.1", door.port), timeout=60)
    wire.sendall(
        f"POST {path} HTTP/1.1\r\nHost: x\r\n{authorization}Content-Type: {kind}\r\nContent-Length: 9\r\n\r\n".encode()
    )
    return wire


def crowd(stack: contextlib.ExitStack, door: Any, path: str, kind: str, key: str = "") -> int:
    """So many that one of them is refused; with which status."""
    wires = [stack.enter_context(slow_body(door, path, kind, key)) for _ in range(30)]
    answered, _, _ = select.select(wires, [], [], 60)
    return int(answered[0].recv(100).split()[1])


def test_slow_bodies_take_no_place_from_others(open_http: Any) -> None:
    """Nor those of strangers at the dashboard's login and at a signed webhook: each key finds a place, and those that
    operate find the last one."""
    keys = [{"name": f"shop{n}", "hash": hashed(f"zmta_{n}")} for n in range(4)]
    keys.append({"name": "boss", "hash": hashed("zmta_boss"), "role": "operate"})
    webhook = {"name": "mg", "provider": "mailgun", "secrets": ["x" * 32]}
    door = open_http(
        http={"requests": 24, "requests_per_key": 100, "keys": keys, "webhooks": [webhook], "dashboard": True},
        limits={"connections_per_client": 1000},
    )
    inject, form = ("/v1/inject", "application/json"), ("/dashboard/login", "application/x-www-form-urlencoded")
    with contextlib.ExitStack() as stack:
        assert crowd(stack, door, "/v1/feedback/mailgun", "application/json") in (429, 503)
        assert crowd(stack, door, *form) in (429, 503)
        for n in range(3):
            with door.client_with(f"zmta_{n}") as shop:
                assert shop.post("/v1/inject", content=b"{}", headers=JSON).status_code == 422
            assert crowd(stack, door, *inject, f"zmta_{n}") == 429
        with door.client_with("zmta_3") as shop:
            assert shop.post("/v1/inject", content=b"{}", headers=JSON).status_code == 422
        for key in ("zmta_boss", door.token):
            with door.client_with(key) as operator:
                assert operator.get("/v1/campaigns").status_code == 200


def test_whoever_comes_next_finds_a_place() -> None:
    """Alone a key gets half of the places, and the next half of what is left; the operator's are beside them."""
    shares = RequestShares(80, 32)
    with contextlib.ExitStack() as stack:
        counts = []
        for key in ("a", "b", "c", "d", "e"):
            count = 0
            with contextlib.suppress(RequestProblem):
                while True:
                    stack.enter_context(shares.one(key, "127.0.0.1"))
                    count += 1
            counts.append(count)
        assert counts[0] == 32
        assert min(counts) >= 1
        assert sum(counts) <= 70
        for _ in range(5):
            stack.enter_context(shares.one("boss", "127.0.0.1", operator=True))
        for last in range(1, 3):
            stack.enter_context(shares.stranger(f"127.0.0.{last}"))
    with shares.one("a", "127.0.0.1"):  # all have been counted out
        pass


def test_a_parser_stops_also_where_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait behind it; what it has left out comes at its next turn."""
    monkeypatch.setattr(Turns, "spent", lambda _: False)
    parser = Parser(Turns(), 65_536)
    parser.receive_data(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1_000)
    counts = []
    while not counts or parser.more:
        parser.begin(0)
        counts.append(0)
        while parser.next_event() is not h11.NEED_DATA:
            counts[-1] += 1
    assert max(counts) < 100
    assert sum(counts) == 1_001
