"""Attachments uploaded once: by PUT, and then referred to by campaigns and messages, for everybody or for one."""

from __future__ import annotations

import email
import email.policy
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.web.conftest import HttpDoor
from zonemta_py.disk.attachments import FOLDER
from zonemta_py.merge.compile import compile
from zonemta_py.merge.source import TemplateSource
from zonemta_py.plugin.host import Host
from zonemta_py.web.keys import hashed

PDF = b"%PDF- terms" + bytes(range(256))
REF = "sha256:" + hashlib.sha256(PDF).hexdigest()
TEMPLATE = {"from": "The Shop <news@src.test>", "subject": "Hello {{ name }}", "text": "Dear {{ name }}\n"}
PEOPLE = [{"to": "anna@example.org", "fields": {"name": "Anna"}}, {"to": "ben@example.net", "fields": {"name": "Ben"}}]
MAIL = {"from": "a@src.test", "to": ["b@dest.test"], "text": "x"}
Open = Callable[..., HttpDoor]


def put(client: httpx.Client, name: str, content: bytes = PDF, **query: str) -> dict[str, Any]:
    answer = client.put(f"/v1/attachments/{quote(name)}", content=content, params=query)
    assert answer.status_code == 200, answer.text
    row: dict[str, Any] = answer.json()
    return row


def files(letter: bytes) -> list[tuple[str | None, str, bytes]]:
    message = email.message_from_bytes(letter, policy=email.policy.default)
    return [
        (one.get_filename(), one.get_content_type(), one.get_payload(decode=True)) for one in message.iter_attachments()
    ]  # type: ignore[attr-defined]


def letters(door: HttpDoor, count: int) -> dict[str, list[tuple[str | None, str, bytes]]]:
    """Recipient → the files in their message."""
    return {one.recipients[0].address: files(one.body or door.body(one)) for one in door.deliveries(count)}


def names(client: httpx.Client, **query: Any) -> list[str]:
    return [row["name"] for row in client.get("/v1/attachments", params=query).json()["rows"]]


def test_uploaded_listed_and_removed(http_door: HttpDoor) -> None:
    """With type, size, digest and life; in pages; the same name again replaces it."""
    client = http_door.client
    row = put(client, "terms.pdf")
    assert {key: row[key] for key in ("name", "type", "size", "ref", "created")} == {
        "name": "terms.pdf", "type": "application/pdf", "size": len(PDF), "ref": REF, "created": True,
    }  # fmt: skip
    assert row["expires_ms"] - row["uploaded_ms"] == 30 * 86_400_000
    assert put(client, "terms.pdf", b"other")["created"] is False
    typed = client.put("/v1/attachments/Größe.x", content=b"a;b", headers={"content-type": "Text/CSV; charset=utf-8"})
    assert typed.json()["type"] == "text/csv"
    assert typed.headers["etag"] == f'"{hashlib.sha256(b"a;b").hexdigest()}"'
    assert client.get("/v1/attachments/Größe.x").headers["etag"] == typed.headers["etag"]
    put(client, "b")
    assert names(client) == ["Größe.x", "b", "terms.pdf"]
    page = client.get("/v1/attachments", params={"limit": 2}).json()
    assert (page["next"], names(client, after=page["next"])) == ("b", ["terms.pdf"])
    assert client.delete("/v1/attachments/b").json() == {"removed": True}
    for answer in (client.delete("/v1/attachments/b"), client.get("/v1/attachments/b")):
        assert (answer.status_code, "no attachment 'b'" in answer.json()["detail"]) == (404, True)


@pytest.mark.parametrize(
    ("name", "sent", "status", "what"),
    [
        ("a", {"content": b"x" * 2001}, 413, "larger than 2,000 bytes"),
        ("a", {"content": iter([b"x" * 1500, b"x" * 1500])}, 413, "larger than 2,000 bytes"),
        ("a", {"files": {"file": b"x"}}, 415, "that of a form"),
        ("a", {"data": {"a": "b"}}, 415, "curl --upload-file FILE"),
        ("a", {"content": b"x", "headers": {"content-encoding": "gzip"}}, 415, "without Content-Encoding"),
        ("a", {"content": b"x", "headers": {"content-type": "message/rfc822"}}, 422, "not a media type"),
        ("a", {"content": b""}, 422, "the body is empty; send the file's bytes"),
        ("sha256:" + "0" * 64, {"content": b"x"}, 422, "no name for an attachment"),
        ("a\x85b", {"content": b"x"}, 422, "no name for an attachment"),
        ("../../identity", {"content": b"x"}, 404, "nothing at"),
        ("b", {"content": b"x" * 1500}, 409, "3,000 at most: remove some first, or raise http.attachments_bytes"),
    ],
)  # fmt: skip
def test_a_wrong_upload_is_refused(limited: HttpDoor, name: str, sent: dict[str, Any], status: int, what: str) -> None:
    """With a sentence, and nothing of it is left."""
    answer = limited.client.put(f"/v1/attachments/{quote(name, safe='')}", **sent)
    assert (answer.status_code, what in answer.json()["detail"]) == (status, True), answer.text
    assert names(limited.client) == ["there"]
    assert len(list((limited.folder / FOLDER).iterdir())) == 2


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    http = {"attachment_bytes": 2000, "attachments_bytes": 3000}
    door = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {"http": http})
    put(door.client, "there", b"y" * 1600)
    yield door
    door.stop()


def test_a_client_that_goes_leaves_nothing(http_door: HttpDoor) -> None:
    """In the middle of its upload."""
    put(http_door.client, "a")

    def broken() -> Iterator[bytes]:
        yield b"x" * 1_000_000
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        http_door.client.put("/v1/attachments/b", content=broken())
    assert names(http_door.client) == ["a"]
    until = time.monotonic() + 20
    while len(list((http_door.folder / FOLDER).iterdir())) > 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert len(list((http_door.folder / FOLDER).iterdir())) == 2


def test_messages_refer_to_it(http_door: HttpDoor) -> None:
    """By name or digest, for everybody or one; under another name and type; what was accepted keeps it when it is
    removed, and then a reference is refused at once."""
    client = http_door.client
    put(client, "terms.pdf", tenant="shop")
    own = [
        PEOPLE[0] | {"attachments": [{"ref": REF, "name": "17.bin", "type": "application/x-17"}]},
        PEOPLE[1] | {"attachments": [{"name": "own.txt", "type": "text/plain", "content": "b3du"}]},
    ]
    body = {"template": TEMPLATE | {"attachments": [{"ref": "terms.pdf"}]}, "messages": own, "tenant": "shop"}
    key = {"idempotency-key": "k"}
    assert client.post("/v1/inject", json=body, headers=key).status_code == 200
    one = MAIL | {"attachments": [{"ref": "terms.pdf"}], "tenant": "shop"}
    assert client.post("/v1/inject", json=one).status_code == 200
    assert client.delete("/v1/attachments/terms.pdf", params={"tenant": "shop"}).status_code == 200
    shared = ("terms.pdf", "application/pdf", PDF)
    assert letters(http_door, 3) == {
        "anna@example.org": [shared, ("17.bin", "application/x-17", PDF)],
        "ben@example.net": [shared, ("own.txt", "text/plain", b"own")],
        "b@dest.test": [shared],
    }
    wrong = client.post("/v1/inject", json=body, headers={"idempotency-key": "l"})
    places = [row["where"] for row in wrong.json()["errors"]]
    assert (wrong.status_code, places) == (422, ["template.attachments[0].ref", "messages[0].attachments[0].ref"])
    assert "the tenant 'shop' has no attachment 'terms.pdf'; upload it first (PUT /v1/attachments/…)" in wrong.text
    assert "attachments[0].ref: the tenant" in client.post("/v1/inject", json=one).json()["detail"]
    assert http_door.messages() == 3


def test_a_campaign_has_one_copy_of_its_own(http_door: HttpDoor) -> None:
    """In its template, once for all recipients, whatever becomes of the upload; for its test, each may have another."""
    client = http_door.client
    put(client, "terms.pdf", tenant="shop")
    put(client, "pixel.png", b"\x89PNG", tenant="shop")
    images = [{"ref": "terms.pdf"}, {"ref": "pixel.png", "content_id": "pixel"}]
    template = TEMPLATE | {"html": "<p>{{ name }} <img src=cid:pixel></p>", "attachments": images}
    body = {"sender": "news@src.test", "template": template, "tenant": "shop"}
    assert client.put("/v1/campaigns/spring", json=body).json() == {"created": True}
    assert client.put("/v1/campaigns/spring", json=body).json() == {"created": False}
    put(client, "terms.pdf", b"other", tenant="shop")
    assert client.put("/v1/campaigns/spring", json=body).status_code == 409, "that is another template"
    client.delete("/v1/attachments/terms.pdf", params={"tenant": "shop"})
    packed = http_door.do(lambda queue: queue.template("spring"))
    letter = compile(TemplateSource.unpack(packed)).render({"name": "Anna"}, "anna@example.org", "spring", "")
    assert files(letter) == [("terms.pdf", "application/pdf", PDF)]
    assert b"Content-ID: <pixel>" in letter
    refused = client.put("/v1/campaigns/summer", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["where"]) == (422, "template.attachments[0].ref")
    trial = {"messages": [PEOPLE[0] | {"attachments": [{"ref": "pixel.png"}]}]}
    assert client.post("/v1/campaigns/spring/test", json=trial).status_code == 200
    assert [row[0] for row in letters(http_door, 1)["anna@example.org"]] == ["terms.pdf", "pixel.png"]


def test_the_same_request_means_the_same_content(http_door: HttpDoor) -> None:
    """Repeated with its key it is stored once; where a name means something else meanwhile, it is another request."""
    client = http_door.client
    merged = {"template": TEMPLATE, "messages": [PEOPLE[0] | {"attachments": [{"ref": "a"}]}]}
    for number, body in enumerate((MAIL | {"attachments": [{"ref": "a"}]}, merged)):
        key = {"idempotency-key": str(number)}
        put(client, "a", b"one")
        said = [client.post("/v1/inject", json=body, headers=key) for _ in range(2)]
        assert ['"repeated": true' in one.text for one in said] == [False, True], said[1].text
        put(client, "a", b"two")
        assert client.post("/v1/inject", json=body, headers=key).status_code == 409


@pytest.mark.parametrize(
    ("attachment", "what"),
    [
        ({"name": "a"}, "there is neither content nor ref"),
        ({"name": "a", "content": "eA==", "ref": "a"}, "ref stands for content; give one of the two"),
        ({"content": "eA=="}, "name is missing"),
        ({"ref": "https://example.com/a.pdf"}, "no attachment 'https://example.com/a.pdf'"),
        ({"ref": "../http.token"}, "no attachment '../http.token'"),
        ({"ref": "sha256:0"}, "no attachment 'sha256:0'"),
    ],
)
def test_a_wrong_reference_is_refused(shared_door: HttpDoor, attachment: dict[str, str], what: str) -> None:
    """Nothing is fetched, from nowhere."""
    answer = shared_door.client.post("/v1/inject", json=MAIL | {"attachments": [attachment]})
    assert (answer.status_code, what in answer.text) == (422, True), answer.text


def test_a_small_request_makes_no_heap_of_mail(open_http: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all its messages would have together is bounded, before anything is read."""
    monkeypatch.setattr("zonemta_py.web.api.uploads.attached.BYTES_MAX", 2 * len(PDF))
    door = open_http()
    put(door.client, "a")
    template = TEMPLATE | {"attachments": [{"ref": "a"}]}
    for count, status in ((2, 200), (3, 413)):
        body = {"template": template, "messages": [PEOPLE[0]] * count}
        answer = door.client.post("/v1/inject", json=body, headers={"idempotency-key": str(count)})
        assert answer.status_code == status, answer.text
    assert "hand in fewer messages at once, or use a campaign" in answer.json()["detail"]


def test_everybody_has_their_own(open_http: Open) -> None:
    """A key with a tenant uploads, sees and refers to that tenant's alone, without naming it; one for campaigns alone
    has none; an account that is not trusted names no tenant."""
    keys = [
        {"name": "alpha", "hash": hashed("alpha"), "tenants": ["alpha"]},
        {"name": "two", "hash": hashed("two"), "tenants": ["alpha", "gamma"]},
        {"name": "spring", "hash": hashed("spring"), "campaigns": ["spring"]},
        {"name": "free", "hash": hashed("free")},
    ]
    door = open_http(http={"keys": keys}, accounts=[{"name": "free", "keys": ["free"]}])
    alpha, two, spring, free = (door.client_with(str(key["name"])) for key in keys)
    put(door.client, "a", tenant="beta")
    put(door.client, "b")
    put(alpha, "a", b"mine")
    assert (names(alpha), names(door.client), names(door.client, tenant="beta")) == (["a"], ["b"], ["a"])
    mail = MAIL | {"attachments": [{"ref": "a"}]}
    assert alpha.post("/v1/inject", json=mail).status_code == 200
    assert letters(door, 1) == {"b@dest.test": [("a", "application/octet-stream", b"mine")]}
    assert alpha.post("/v1/inject", json=MAIL | {"attachments": [{"ref": REF}]}).status_code == 422
    for client, tenant in (
        (alpha, "beta"),
        (two, None),
        (two, "beta"),
        (spring, None),
        (spring, "beta"),
        (free, "beta"),
    ):
        query = {"tenant": tenant} if tenant else {}
        for answer in (
            client.put("/v1/attachments/a", content=b"x", params=query),
            client.get("/v1/attachments", params=query), client.get("/v1/attachments/a", params=query),
            client.delete("/v1/attachments/a", params=query), client.post("/v1/inject", json=mail | query),
        ):  # fmt: skip
            assert (answer.status_code, "key" in answer.text) == (403, True), answer.text
    assert names(two, tenant="alpha") == ["a"]
    assert names(free) == ["b"]


def test_it_is_there_after_a_restart(open_http: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Until its life is over: then it is neither seen nor kept."""
    folder = tmp_path_factory.mktemp("queue")
    door = HttpDoor(folder, Host.empty(), {})
    put(door.client, "a")
    door.stop()
    (folder / FOLDER / ".0123456789abcdef.new").write_bytes(b"of an upload that was killed")
    door = HttpDoor(folder, Host.empty(), {})
    assert names(door.client) == ["a"]
    assert door.client.post("/v1/inject", json=MAIL | {"attachments": [{"ref": REF}]}).status_code == 200
    door.stop()
    assert len(list((folder / FOLDER).iterdir())) == 2
    door = HttpDoor(folder, Host.empty(), {"http": {"attachment_days": 1e-9}})
    assert names(door.client) == []
    door.stop()
    assert list((folder / FOLDER).iterdir()) == []


def test_a_full_disk_is_said(open_http: Open) -> None:
    """As for mail, with Retry-After."""
    answer = open_http(queue={"reserve_bytes": 1 << 60}).client.put("/v1/attachments/a", content=b"x")
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert "nearly full" in answer.json()["detail"]
