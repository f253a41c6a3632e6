"""Refusals: always a problem document, never internal details."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

JSON, MAIL = {"content-type": "application/json"}, {"content-type": "message/rfc822"}
GOOD = {"from": "a@b.test", "to": ["c@d.test"], "subject": "x", "text": "y"}


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Checks the form of RFC 9457."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:zonemta:problem:")
    assert document["title"]
    assert ";" in document["detail"] or ":" in document["detail"], "a sentence has its remedy"
    assert "\n" not in document["detail"]
    assert document["instance"].startswith("/")
    assert "Traceback" not in answer.text
    assert "zonemta_py" not in answer.text
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    return document


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/", {}, b"", 404),
        ("GET", "/v1/nothing", {}, b"", 404),
        ("GET", "/v1/inject/", {}, b"", 404),
        ("GET", "/v1/campaigns/none", {}, b"", 404),
        ("GET", "/v1/campaigns/a%0ab", {}, b"", 422),
        ("GET", "/v1/suppressions?bad=1", {}, b"", 422),
        ("GET", "/v1/campaigns?limits=5", {}, b"", 422),
        ("GET", "/v1/events?sinec=1h", {}, b"", 422),
        ("POST", "/v1/inject?prority=1", MAIL, b"Subject: x\r\n\r\n", 422),
        ("GET", "/v1/inject", {}, b"", 405),
        ("BREW", "/v1/inject", {}, b"", 405),
        ("POST", "/v1/inject", {}, b"{}", 415),
        ("POST", "/v1/inject", {"content-type": "text/plain"}, b"{}", 415),
        ("POST", "/v1/inject", JSON | {"content-encoding": "gzip"}, b"{}", 415),
        ("POST", "/v1/campaigns/c/pause", MAIL, b"{}", 415),
        ("POST", "/v1/inject", JSON, b"", 400),
        ("POST", "/v1/inject", JSON, b"{", 400),
        ("POST", "/v1/inject", JSON, b"[]", 400),
        ("POST", "/v1/inject", JSON, b'{"a": NaN}', 400),
        ("POST", "/v1/inject", JSON, b'"\xff"', 400),
        ("POST", "/v1/inject", JSON, b"[" * 100_000, 400),
        ("POST", "/v1/inject", JSON, b'{"a": ' * 500 + b"1" + b"}" * 500, 400),
        ("POST", "/v1/inject", JSON, b'{"a": ' + b"9" * 10_000 + b"}", 400),
        ("POST", "/v1/inject", JSON, b'{"subject": "\\ud800"}', 422),
        ("POST", "/v1/inject", JSON, b'{"subject": "\\udc00 x"}', 422),
        ("POST", "/v1/inject", JSON, b"{}", 422),
        ("POST", "/v1/inject", JSON | {"idempotency-key": '""'}, json.dumps(GOOD).encode(), 422),
        ("POST", "/v1/inject", JSON | {"idempotency-key": "x" * 201}, json.dumps(GOOD).encode(), 422),
        ("POST", "/v1/inject", JSON, b" " * (9 * 1024 * 1024), 413),
        ("POST", "/v1/inject?to=c@d.test&sender=a", MAIL, b"x", 422),
        ("POST", "/v1/inject?sender=a@b.test", MAIL, b"x", 422),
        ("POST", "/v1/inject?to=c@d.test%0d%0aRCPT", MAIL, b"x", 422),
        ("POST", "/v1/inject?to=c@d.test&priority=10", MAIL, b"x", 422),
        ("POST", "/v1/inject?to=c@d.test&campaign=a%00b", MAIL, b"x", 422),
        ("POST", "/v1/inject?to=c@d.test&zone=nowhere", MAIL, b"x", 422),
        ("POST", "/v1/inject?to=c@d.test", MAIL, b"Subject: x\r\n\r\nnul \0\r\n", 422),
        ("POST", "/v1/inject?to=c@d.test", MAIL, b"X: y\r\n" * 200_000 + b"\r\n", 413),
        ("POST", "/v1/inject?to=c@d.test", MAIL, b"Received: x\r\n" * 60 + b"\r\n", 422),
        ("GET", "/v1/suppressions?limit=0", {}, b"", 422),
        ("GET", "/v1/suppressions/nobody", {}, b"", 422),
        ("POST", "/v1/suppressions", JSON, b'{"rows": [{"address": "a@b.test", "kind": "x"}]}', 422),
        ("POST", "/v1/forget", JSON, b'{"address": "a@b.test\\n"}', 422),
    ],
)  # fmt: skip
def test_whatever_is_wrong_is_a_problem_document(
    shared_door: Any, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    """With the status that fits."""
    answer = shared_door.client.request(method, path, headers=headers, content=body)
    problem(answer, status)
    if status == 405:
        assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"from": "a@b.test\r\nBcc: x@y.test"}, "from.address"),
        ({"from": {"address": "a@b.test", "name": "A\r\nBcc: x"}}, "from.name"),
        ({"from": {"address": "a@b.test", "name": "A\0"}}, "from.name"),
        ({"sender": "a@b.test\n"}, "sender"),
        ({"to": ["c@d.test", "e@f.test\r"]}, "to[1].address"),
        ({"to": []}, "to"),
        ({"to": "c@d.test"}, "to"),
        ({"to": [7]}, "to[0]"),
        ({"from": ["a@b.test"]}, "from"),
        ({"bcc": ["x y@d.test"]}, "bcc[0]"),
        ({"reply_to": "<a@b.test>"}, "reply_to.address"),
        ({"subject": "x\ny"}, "subject"),
        ({"subject": "x\u2029y"}, "subject"),
        ({"subject": 7}, "subject"),
        ({"text": "x\0y"}, "text"),
        ({"html": "x\x1by"}, "html"),
        ({"headers": {"X-A": "b\r\nBcc: c"}}, "headers.X-A"),
        ({"headers": {"X A": "b"}}, "headers.X A"),
        ({"headers": {"X-A:": "b"}}, "headers.X-A:"),
        ({"headers": {"": "b"}}, "headers."),
        ({"headers": {"Bcc": "b"}}, "headers.Bcc"),
        ({"headers": {"content-type": "b"}}, "headers.content-type"),
        ({"headers": {"X-Deliver-By": "yesterday"}}, ""),
        ({"attachments": [{"name": "a\r\nb", "content": ""}]}, "attachments[0].name"),
        ({"attachments": [{"name": "a", "content": "%"}]}, "attachments[0].content"),
        ({"attachments": [{"name": "a", "content": "", "type": "text/plain\r\nX: y"}]}, "attachments[0].type"),
        ({"attachments": [{"name": "a", "content": "", "type": "multipart/mixed"}]}, "attachments[0].type"),
        ({"attachments": [{"name": "a", "content": "", "content_id": "a>\r\n"}]}, "attachments[0].content_id"),
        ({"campaign": "a b"}, "campaign"),
        ({"tenant": "a\nb"}, "tenant"),
        ({"zone": "default\r\n"}, "zone"),
        ({"priority": 10}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"raw": "Subject: x\n\ny"}, ""),
        ({"surprise\n": 1}, "'surprise\\n'"),
    ],
)
def test_a_part_that_is_wrong_is_named(shared_door: Any, more: dict[str, Any], where: str) -> None:
    """Nothing that could end a header field, an address or a line gets in; the answer says where it stood."""
    document = problem(shared_door.client.post("/v1/inject", json=GOOD | more), 422)
    assert "Document" not in str(document)  # a class of ours means nothing to a client
    if where:
        assert document["errors"][0]["where"] == where


def test_many_faults_are_counted(shared_door: Any) -> None:
    """The document stays short."""
    rows = [[f"no address {n}"] for n in range(1000)]
    body = {"campaign": "c", "columns": [], "recipients": rows}
    document = problem(shared_door.client.post("/v1/inject", json=body, headers={"idempotency-key": "1"}), 422)
    assert len(document["errors"]) == 20
    assert document["errors"][-1]["what"] == "and 981 more like these"


_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["a@b.test", "c", "text"])
)
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    [
        "from", "to", "cc", "bcc", "subject", "text", "html", "headers",
        "attachments", "raw", "sender", "zone", "campaign", "columns", "recipients", "source",
        "template", "bounds", "rows", "address", "cause", "priority", "life_h", "keep",
    ]
)  # fmt: skip
_BODIES = st.builds(
    lambda good, more: good | more, st.sampled_from([GOOD, {}]), st.dictionaries(_KEYS, _JSON, max_size=5)
)
_PLACES = st.sampled_from(
    [
        ("POST", "/v1/inject"),
        ("PUT", "/v1/campaigns/x"),
        ("POST", "/v1/campaigns/x/pause"),
        ("POST", "/v1/suppressions"),
        ("POST", "/v1/forget"),
    ]
)


@settings(max_examples=50)
@given(_PLACES, st.one_of(_BODIES.map(lambda body: json.dumps(body).encode()), st.binary(max_size=40)))
def test_no_json_makes_it_fail(shared_door: Any, place: tuple[str, str], body: bytes) -> None:
    """Whatever comes, the answer is a success or says what is wrong with the request: never 500."""
    answer = shared_door.client.request(*place, content=body, headers=JSON | {"idempotency-key": "garbage"})
    assert answer.status_code in (200, 400, 404, 409, 422), answer.text
    if answer.status_code != 200:
        problem(answer, answer.status_code)


def upload(door: Any, key: str) -> socket.socket:
    """A request that is under way: its head was taken, its body of four bytes is still to come."""
    wire = socket.create_connection(("127.0.0.1", door.port), timeout=60)
    head = ("POST /v1/inject?to=c@d.test HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", "Expect: 100-continue",
            "Content-Type: message/rfc822", "Content-Length: 4", "", "")  # fmt: skip
    wire.sendall("\r\n".join(head).encode())
    assert wire.recv(1000).startswith(b"HTTP/1.1 100 ")
    return wire


def until(answer: Any, status: int) -> httpx.Response:
    """Asks again until the status is there."""
    deadline = time.monotonic() + 60
    while (found := answer()).status_code != status:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_key_has_its_share_and_no_more(open_http: Any) -> None:
    """429 for the one that has too much under way, while another is served; it is served again later."""
    door = open_http(http={"requests_per_key": 1, "requests": 3})
    with upload(door, "zmta_shop") as wire, door.client_with("zmta_shop") as shop:
        document = problem(shop.post("/v1/inject", json=GOOD), 429)
        assert "'shop'" in document["detail"]
        assert door.client.post("/v1/inject", json=GOOD).status_code == 200
        wire.sendall(b"hi\r\n")
        assert wire.recv(1000).startswith(b"HTTP/1.1 200 ")
        until(lambda: shop.post("/v1/inject", json=GOOD), 200)


def test_the_door_has_room_for_so_many(open_http: Any) -> None:
    """503 for whoever comes on top; a client that hangs up makes room."""
    door = open_http(http={"requests": 1})
    with upload(door, "zmta_shop"):
        problem(door.client.post("/v1/inject", json=GOOD), 503)
    until(lambda: door.client.post("/v1/inject", json=GOOD), 200)
    assert door.messages() == 1


def test_a_full_disk_is_a_reason_to_come_again(open_http: Any) -> None:
    """503, and not soon."""
    door = open_http(queue={"reserve_bytes": 1 << 60})
    answer = door.client.post("/v1/inject", json=GOOD)
    problem(answer, 503)
    assert int(answer.headers["retry-after"]) >= 10


def test_a_queue_that_is_gone_is_a_reason_to_come_again(open_http: Any) -> None:
    """503 until it is back, after some patience; the listener itself stays open."""
    door = open_http()
    assert door.client.get("/v1/health").json() == {"status": "ok"}

    async def cut(queue: Any) -> None:
        door.remote._patience_s = 0.2
        door.wire.close()
        door.remote._protocol._transport.abort()

    door.do(cut)
    problem(until(lambda: door.client.get("/v1/health"), 503), 503)
    problem(door.client.post("/v1/inject", json=GOOD), 503)


def test_what_is_no_http_is_told(shared_door: Any) -> None:
    """As a problem document too, and then the connection ends."""
    with socket.create_connection(("127.0.0.1", shared_door.port), timeout=60) as wire:
        wire.sendall(b"EHLO client.test\r\n\r\n")
        whole = b""
        while block := wire.recv(4096):
            whole += block
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400


def test_who_falls_silent_is_cut_off(open_http: Any) -> None:
    """In the middle of a request too: nobody holds a place for ever."""
    door = open_http(limits={"timeout_s": 0.2})
    for begun in (b"", b"POST /v1/inject HTTP/1.1\r\nHost: x\r\n"):
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as wire:
            wire.sendall(begun)
            with contextlib.suppress(ConnectionResetError):
                assert wire.recv(100) == b""


def test_connections_have_a_limit(open_http: Any) -> None:
    """One too many is told so and sent away."""
    door = open_http(limits={"connections": 1})
    assert door.client.get("/v1/health").status_code == 200  # and its connection is kept
    with door.client_with(door.token) as other:
        answer = other.get("/v1/health")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
