"""Accounts over HTTP: keys get their account's tenant, zone, senders and quotas, and nothing of others'."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.web.conftest import SHOP, HttpDoor
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.web.keys import hashed

PRESS = "zmta_press"


@pytest.fixture
def door(open_http: Callable[..., HttpDoor]) -> HttpDoor:
    """shop has a tenant, a zone and quotas, press has a tenant."""
    rights = ["inject", "campaigns"]
    keys: list[dict[str, Any]] = [
        {"name": "shop", "hash": hashed(SHOP), "rights": rights},
        {"name": "press", "hash": hashed(PRESS), "rights": rights},
    ]
    accounts: list[dict[str, Any]] = [
        {"name": "shop", "keys": ["shop"], "tenant": "shop", "zone": "bulk", "recipients": ["5/365day"]},
        {"name": "press", "keys": ["press"], "tenant": "press"},
    ]
    zones = [{"name": "default", "default": True}, {"name": "bulk"}]
    return open_http(http={"keys": keys}, accounts=accounts, zones=zones)


def message(*to: str, **more: Any) -> dict[str, Any]:
    people = [{"address": one} for one in to or ("c@d.test",)]
    return {"sender": "a@s.test", "from": {"address": "a@s.test"}, "to": people, "subject": "hi", "text": "hi"} | more


def campaign(**more: Any) -> dict[str, Any]:
    source = TemplateSource("t", Text("Hello"), Text("a@s.test"), text=Text("Dear {{ name }}\n"), prepared=True)
    return {"sender": "a@s.test", "template": base64.b64encode(source.pack()).decode(), **more}


def batch(client: httpx.Client, name: str, count: int, key: str) -> httpx.Response:
    people = [[f"{key}{number}@d.test", "C"] for number in range(count)]
    document = {"campaign": name, "columns": ["name"], "recipients": people}
    return client.post("/v1/inject", json=document, headers={"idempotency-key": key})


def test_mail_is_of_its_account_and_of_no_other(door: HttpDoor) -> None:
    with door.client_with(SHOP) as shop:
        said = [{"tenant": "press"}, {"zone": "default"}]
        for more in said:
            refused = shop.post("/v1/inject", json=message(**more))
            assert (refused.status_code, "leave it out" in refused.text) == (422, True), refused.text
        forged = {"X-Tenant": "press", "X-Sending-Zone": "default", "X-Campaign": "spring"}
        assert shop.post("/v1/inject", json=message(headers=forged)).status_code in (200, 422)
        assert shop.post("/v1/inject", json=message(), headers=forged).status_code == 200
    for delivery in door.deliveries(door.messages()):
        assert (delivery.tenant, delivery.zone, delivery.campaign) == ("shop", "bulk", "")


def test_quotas_count_messages_and_batches_together_and_repeats_once(door: HttpDoor) -> None:
    with door.client_with(SHOP) as shop:
        assert shop.put("/v1/campaigns/spring", json=campaign()).status_code == 200
        for _ in range(2):
            assert batch(shop, "spring", 3, "first").status_code == 200
        assert batch(shop, "spring", 6, "large").status_code == 422
        assert batch(shop, "spring", 3, "more").status_code == 503
        with ThreadPoolExecutor(6) as pool:
            answers = [pool.submit(shop.post, "/v1/inject", json=message(f"r{n}@d.test")) for n in range(6)]
            codes = sorted(answer.result().status_code for answer in answers)
        assert codes == [200, 200, 503, 503, 503, 503]
    [row] = door.do(lambda queue: queue.ask("accounts"))
    assert (row["used"], row["left"]) == (5, 0)


def test_campaigns_are_of_their_account(door: HttpDoor) -> None:
    """Their tenant is that of the account, and nobody else's account fills, pauses or cancels them."""
    with door.client_with(SHOP) as shop, door.client_with(PRESS) as press:
        assert shop.put("/v1/campaigns/forged", json=campaign(tenant="press")).status_code == 403
        assert shop.put("/v1/campaigns/own", json=campaign(zone="default")).status_code == 200
        assert batch(shop, "own", 1, "o").status_code == 200
        assert [(one.tenant, one.zone) for one in door.deliveries(1)] == [("shop", "bulk")]
        assert press.put("/v1/campaigns/news", json=campaign()).status_code == 200
        assert press.get("/v1/campaigns/news").json()["tenant"] == "press"
        assert batch(shop, "news", 1, "k").status_code in (403, 404, 422)
        assert [row["name"] for row in shop.get("/v1/campaigns").json()] == ["own"]
        for action in ("pause", "cancel"):
            assert shop.post(f"/v1/campaigns/news/{action}", json={}).status_code in (403, 404)
        assert batch(press, "news", 1, "p").status_code == 200
    [delivery] = door.deliveries(1)
    assert (delivery.tenant, delivery.zone) == ("press", "default")


@pytest.mark.parametrize(
    ("account", "key", "may"),
    [
        ({}, {}, False),
        ({"trust_headers": True}, {}, True),
        ({}, {"tenants": ["press"]}, True),
        ({}, {"tenants": ["other"]}, False),
        ({}, {"campaigns": ["news", "own"]}, False),
        ({}, {"role": "admin"}, True),
    ],
)
def test_an_account_without_a_tenant_chooses_none(
    open_http: Callable[..., HttpDoor], account: dict[str, Any], key: dict[str, Any], may: bool
) -> None:
    """Neither in a message, nor in its query, nor in a campaign, nor by adding to a campaign of that tenant."""
    keys = [{"name": "shop", "hash": hashed(SHOP), "rights": ["inject", "campaigns"], **key}]
    door = open_http(http={"keys": keys}, accounts=[{"name": "shop", "keys": ["shop"], **account}])
    assert door.client.put("/v1/campaigns/news", json=campaign(tenant="press")).status_code == 200
    fit = {"campaign": "news"}
    with door.client_with(SHOP) as shop:
        mail = {"content": b"Subject: hi\r\n\r\nhi\r\n", "headers": {"content-type": "message/rfc822"}}
        query = {"sender": "a@s.test", "to": "c@d.test", "tenant": "press", **fit}
        answers = [
            shop.post("/v1/inject", json=message(tenant="press", **fit)),
            shop.post("/v1/inject", params=query, **mail),
            shop.put("/v1/campaigns/own", json=campaign(tenant="press")),
            batch(shop, "news", 1, "b"),
        ]
        assert [answer.status_code == 200 for answer in answers] == [may] * 4, [answer.text for answer in answers]
        assert all(answer.status_code in (200, 403, 404, 422) for answer in answers)
        if not key:
            assert shop.post("/v1/inject", json=message()).status_code == 200
        for action in ("pause", "resume", "complete", "cancel"):
            answer = shop.post(f"/v1/campaigns/news/{action}", json={})
            assert (answer.status_code == 200) is may, answer.text
            assert answer.status_code in (200, 404)
    state = door.client.get("/v1/campaigns/news").json()["state"]
    assert state == ("canceled" if may else "running")


def test_a_request_in_progress_is_a_session_of_its_account(open_http: Callable[..., HttpDoor]) -> None:
    """Beside those of SMTP, and of whatever key; those of others and the operator's go on."""
    keys = [{"name": name, "hash": hashed(f"zmta_{name}")} for name in ("shop", "till", "press")]
    accounts = [{"name": "shop", "keys": ["shop", "till"], "sessions": 1}, {"name": "press", "keys": ["press"]}]
    door = open_http(http={"keys": keys}, accounts=accounts)
    with socket.create_connection(("127.0.0.1", door.port), 20) as slow, door.client_with("zmta_till") as till:
        head = (
            f"POST /v1/inject HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SHOP}\r\ncontent-type: application/json\r\n"
        )
        slow.sendall(f"{head}content-length: 1000\r\n\r\n{{".encode())
        until(lambda: door.queue.core.counters.sessions.open["shop"] == 1)
        refused = till.post("/v1/inject", json=message())
        assert (refused.status_code, "has as many sessions open as it may, 1" in refused.text) == (429, True), (
            refused.text
        )
        assert "retry-after" in refused.headers
        with door.client_with("zmta_press") as press:
            assert press.post("/v1/inject", json=message()).status_code == 200
        [row] = [row for row in door.client.get("/v1/accounts").json() if row["what"] == "sessions"]
        assert (row["account"], row["used"], row["left"]) == ("shop", 1, 0)
        slow.close()
        until(lambda: not door.queue.core.counters.sessions.open)
        assert till.post("/v1/inject", json=message()).status_code == 200
        until(lambda: not door.queue.core.counters.sessions.open)


def until(found: Callable[[], bool]) -> None:
    """The listener hears of the end of a connection soon."""
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        time.sleep(0.005)


TRUST: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {"zone": "bulk"}, False),
    ({}, {"priority": 3}, False),
    ({}, {"priority": -3}, True),
    ({"zone": "bulk"}, {"zone": "bulk"}, True),
    ({"trust_headers": True}, {"zone": "bulk", "priority": 3}, True),
]


def test_an_account_without_trust_chooses_no_zone_and_raises_no_priority(open_http: Callable[..., HttpDoor]) -> None:
    """In no form of mail, and in no campaign."""
    names = [f"k{number}" for number in range(len(TRUST))]
    keys = [{"name": name, "hash": hashed(f"zmta_{name}"), "rights": ["inject", "campaigns"]} for name in names]
    zones = [{"name": "default", "default": True}, {"name": "bulk"}]
    accounts = [{"name": name, "keys": [name], **row[0]} for name, row in zip(names, TRUST, strict=True)]
    door = open_http(http={"keys": keys}, zones=zones, accounts=accounts)
    raw: dict[str, Any] = {"content": b"Subject: hi\r\n\r\nhi\r\n", "headers": {"content-type": "message/rfc822"}}
    for name, (_, asked, may) in zip(names, TRUST, strict=True):
        with door.client_with(f"zmta_{name}") as client:
            answers = [
                client.post("/v1/inject", json=message(**asked)),
                client.post("/v1/inject", params={"sender": "a@s.test", "to": "c@d.test", **asked}, **raw),
                client.put(f"/v1/campaigns/own-{name}", json=campaign(**asked)),
            ]
        codes = [answer.status_code for answer in answers]
        assert codes == [200 if may else 403] * 3, (name, [one.text for one in answers])


def test_retry_after_is_the_end_of_the_quota(open_http: Callable[..., HttpDoor]) -> None:
    """So that nobody asks every five seconds for a day."""
    keys = [{"name": "shop", "hash": hashed(SHOP)}]
    door = open_http(http={"keys": keys}, accounts=[{"name": "shop", "keys": ["shop"], "messages": ["1/365day"]}])
    with door.client_with(SHOP) as shop:
        assert shop.post("/v1/inject", json=message()).status_code == 200
        refused = shop.post("/v1/inject", json=message())
    assert (refused.status_code, int(refused.headers["retry-after"]) > 1000) == (503, True), refused.text


def test_what_is_pushed_to_named_queues_counts(open_http: Callable[..., HttpDoor]) -> None:
    """As a message to one recipient, beside mail; and it is no larger than a message of the account may be."""
    keys = [{"name": "shop", "hash": hashed(SHOP), "rights": ["inject", "push"]}]
    account = {"name": "shop", "keys": ["shop"], "messages": ["2/365day"], "message_bytes": 1000}
    door = open_http(http={"keys": keys}, pull={"create": True}, accounts=[account])
    with door.client_with(SHOP) as shop:
        raw = {"content-type": "application/octet-stream"}
        assert shop.post("/v1/queues/jobs/push", content=b"x" * 2000, headers=raw).status_code == 422
        assert shop.post("/v1/queues/jobs/push", content=b"x", headers=raw).status_code == 200
        assert shop.post("/v1/inject", json=message()).status_code == 200
        refused = shop.post("/v1/queues/jobs/push", content=b"x", headers=raw)
        assert (refused.status_code, "has used its quota" in refused.text) == (503, True), refused.text
