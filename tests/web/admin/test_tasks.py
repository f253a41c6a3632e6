"""Tasks by HTTP: seen before, ordered once, canceled and undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.web.conftest import HttpDoor

MAIL = {"from": "a@b.test", "to": ["c@d.test", "e@f.test"], "text": "x", "headers": {"x-deliver-after": "86400"}}


def until(door: HttpDoor, id: str, done: Callable[[Any], bool]) -> Any:
    """The task's row when it is so."""
    end = time.monotonic() + 60
    while True:
        row = door.client.get(f"/v1/tasks/{id}").json()
        if done(row) or time.monotonic() > end:
            return row
        time.sleep(0.02)


def states(door: HttpDoor) -> list[str]:
    pages = [door.client.get("/v1/recipients", params={"state": one}).json() for one in ("deferred", "deleted")]
    return [row["state"] for page in pages for row in page["rows"]]


def test_from_a_preview_to_its_undo(http_door: HttpDoor) -> None:
    """Counted with examples, started by its id, done, undone; nothing of it can be done twice."""
    client = http_door.client
    client.post("/v1/inject", json=MAIL)
    seen = client.post("/v1/tasks", json={"verb": "delete", "where": {"domain": "d.test"}, "preview": True}).json()
    seen = until(http_door, seen["id"], lambda row: row["state"] == "previewed")
    assert (seen["count"], seen["examples"][0]["recipient"]) == (1, "c@d.test")
    assert states(http_door) == ["deferred", "deferred"]
    row = client.post(f"/v1/tasks/{seen['id']}/start", json={"cause": "a test"}).json()
    row = until(http_door, row["id"], lambda row: row["state"] == "undoable")
    assert (row["done"], row["by"], row["cause"]) == (1, "local", "a test")
    assert states(http_door) == ["deferred", "deleted"]
    assert client.post(f"/v1/tasks/{row['id']}/cancel").status_code == 409
    assert client.post(f"/v1/tasks/{row['id']}/undo").status_code == 200
    row = until(http_door, row["id"], lambda row: row["state"] == "undone")
    assert (row["state"], states(http_door)) == ("undone", ["deferred", "deferred"])
    assert client.post(f"/v1/tasks/{seen['id']}/start", json={}).status_code == 404


@pytest.mark.parametrize(("verb", "said"), [("hold", "can only be queued again"), ("requeue", "is not kept; set")])
def test_what_has_bounced_is_for_one_verb_and_where_it_is_kept(http_door: HttpDoor, verb: str, said: str) -> None:
    client, where = http_door.client, {"state": "bounced"}
    assert client.get("/v1/recipients", params=where).json()["rows"] == []
    refused = client.post("/v1/tasks", json={"verb": verb, "where": where})
    assert (refused.status_code, said in refused.json()["detail"]) == (409, True)


def test_a_repeated_order_is_the_same_task(http_door: HttpDoor) -> None:
    """With its key; another order with that key is refused, and without a key each is one of its own."""
    client, order = http_door.client, {"verb": "hold", "where": {"all": True}}
    first = client.post("/v1/tasks", json=order, headers={"idempotency-key": "a"}).json()
    again = client.post("/v1/tasks", json=order, headers={"idempotency-key": "a"}).json()
    other = client.post("/v1/tasks", json=order | {"verb": "flush"}, headers={"idempotency-key": "a"})
    assert first["id"] == again["id"]
    assert (other.status_code, "use a new key" in other.json()["detail"]) == (409, True)
    ids = {client.post("/v1/tasks", json=order).json()["id"] for _ in range(2)}
    assert len(ids | {first["id"]}) == 3


def test_filters_say_what_is_wrong(http_door: HttpDoor) -> None:
    """An empty one, one that is not there, and one that can never be."""
    for where, word in (({}, "all: true"), ({"sendr": "x"}, "where.sendr"), ({"zone": "nowhere"}, "nowhere")):
        answer = http_door.client.post("/v1/tasks", json={"verb": "delete", "where": where})
        assert (answer.status_code in (409, 422), word in answer.json()["detail"]) == (True, True), answer.text


def test_an_ended_message_still_has_its_story(http_door: HttpDoor) -> None:
    """It is found in the journal when it is no more in the queue."""
    client = http_door.client
    id = client.post("/v1/inject", json=MAIL).json()["id"]
    row = client.post("/v1/tasks", json={"verb": "delete", "where": {"id": id}, "undo_s": 0}).json()
    until(http_door, row["id"], lambda row: row["state"] == "done")
    end = time.monotonic() + 60
    while (found := client.get(f"/v1/messages/{id}").json())["envelope"] is not None and time.monotonic() < end:
        time.sleep(0.02)
    whats = [one["what"] for one in found["story"]["rows"]]
    assert (found["envelope"], whats[0], "removed" in whats) == (None, "accepted", True), whats
    assert client.get(f"/v1/messages/{id}/content").status_code == 404
    assert client.get("/v1/messages/0000000000000000").status_code == 404
