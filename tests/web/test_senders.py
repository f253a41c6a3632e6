"""HTTP keys are bound to senders."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.web.conftest import SHOP, HttpDoor
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.web.keys import hashed

OTHER = "zmta_other"


@pytest.fixture
def door(open_http: Callable[..., HttpDoor]) -> HttpDoor:
    rights = ["inject", "campaigns"]
    keys: list[dict[str, Any]] = [
        {"name": "shop", "hash": hashed(SHOP), "senders": ["shop.test"], "rights": rights},
        {"name": "other", "hash": hashed(OTHER), "rights": rights},
    ]
    return open_http(http={"keys": keys})


def message(sender: str, author: str) -> dict[str, Any]:
    parts = {"from": {"address": author}, "to": [{"address": "c@d.test"}], "subject": "hi", "text": "hi"}
    return {"sender": sender, **parts}


def template(author: str) -> str:
    source = TemplateSource("t", Text("Hello"), Text(author), text=Text("Dear {{ name }}\n"), prepared=True)
    return base64.b64encode(source.pack()).decode()


def test_messages(door: HttpDoor) -> None:
    """Return path and author; one that nothing is said about is not signed, this machine's own key is."""
    with door.client_with(SHOP) as shop, door.client_with(OTHER) as other:
        assert shop.post("/v1/inject", json=message("a@shop.test", "a@shop.test")).status_code == 200
        for sender, author in (("a@bank.test", "a@shop.test"), ("a@shop.test", "a@bank.test")):
            refused = shop.post("/v1/inject", json=message(sender, author))
            assert refused.status_code in (403, 422)
            assert "a@bank.test" in refused.text
        assert other.post("/v1/inject", json=message("a@bank.test", "a@bank.test")).status_code == 200
    assert door.client.post("/v1/inject", json=message("b@bank.test", "b@bank.test")).status_code == 200
    signed = {delivery.sender: not delivery.unsigned for delivery in door.deliveries(3)}
    assert signed == {"a@shop.test": True, "a@bank.test": False, "b@bank.test": True}


@pytest.mark.parametrize("author", ["a@bank.test", "Shop <{{ name }}@shop.test>", "a@shop.test <a@bank.test>"])
def test_a_campaign_of_another_author_is_refused(door: HttpDoor, author: str) -> None:
    """Its template's too, and one whose author is only known once it is filled."""
    with door.client_with(SHOP) as shop:
        campaign = {"sender": "a@shop.test", "template": template(author)}
        refused = shop.put("/v1/campaigns/spring", json=campaign)
        assert refused.status_code == 422
        assert "may not send as" in refused.text
        own = {"sender": "a@bank.test", "template": template("Shop <a@shop.test>")}
        assert shop.put("/v1/campaigns/spring", json=own).status_code == 403
        assert shop.put("/v1/campaigns/spring", json=own | {"sender": "a@shop.test"}).status_code == 200


def test_the_campaigns_of_others_are_theirs(door: HttpDoor) -> None:
    """A key that is bound neither fills nor cancels them."""
    batch = {"campaign": "spring", "columns": ["name"], "recipients": [["c@d.test", "C"]]}
    campaign = {"sender": "a@bank.test", "template": template("a@bank.test")}
    with door.client_with(SHOP) as shop, door.client_with(OTHER) as other:
        assert other.put("/v1/campaigns/spring", json=campaign).status_code == 200
        key = {"idempotency-key": "1"}
        assert shop.post("/v1/inject", json=batch, headers=key).status_code == 403
        assert shop.post("/v1/campaigns/spring/cancel", json={}).status_code == 403
        assert other.post("/v1/inject", json=batch, headers=key).status_code == 200
    assert door.deliveries(1)[0].unsigned
