"""Pages over HTTP while tasks move what they list: whoever stays is there once; a cursor belongs to its question."""

from __future__ import annotations

import random
from typing import Any

import httpx
import pytest

from tests.web.admin.test_tasks import until
from tests.web.conftest import HttpDoor
from zonemta_py.web.keys import hashed

SCOPED = {"name": "acme", "hash": hashed("acme"), "role": "operate", "tenants": ["acme"]}
ZONES = [{"name": "default"}, {"name": "bulk"}]
DOMAINS = ["a.test", "b.test", "c.test"]


@pytest.fixture
def door(open_http: Any) -> HttpDoor:
    made: HttpDoor = open_http(http={"keys": [SCOPED]}, zones=ZONES)
    return made


def inject(door: HttpDoor, number: int, name: str) -> set[tuple[str, str]]:
    people = [f"{name}{number}-{one}@{DOMAINS[one % 3]}" for one in range(4)]
    mail = {"from": "x@y.test", "to": people, "text": "x", "tenant": "acme", "headers": {"x-deliver-after": "86400"}}
    id = door.client.post("/v1/inject", json=mail).raise_for_status().json()["id"]
    return {(id, address) for address in people}


def change(door: HttpDoor, die: random.Random) -> None:
    """A task about a domain, done to its end; sometimes undone."""
    verb, more = die.choice((
        ("hold", {}), ("release", {}), ("flush", {}), ("move", {"set": {"zone": die.choice(("default", "bulk"))}}),
        ("set", {"set": {"priority": die.randint(-3, 3)}}),
    ))  # fmt: skip
    row = door.client.post("/v1/tasks", json={"verb": verb, "where": {"domain": die.choice(DOMAINS)}, **more}).json()
    row = until(door, row["id"], lambda row: row["state"] != "running")
    if die.random() < 0.3 and row["undoable"]:
        door.client.post(f"/v1/tasks/{row['id']}/undo", json={})
    inject(door, die.randint(100, 10_000), "new")


def walk(door: HttpDoor, client: httpx.Client, die: random.Random, **query: Any) -> list[tuple[str, str]]:
    rows, after = list[tuple[str, str]](), ""
    while after is not None:
        params = {"limit": die.randint(1, 9), "after": after, **query}
        page = client.get("/v1/recipients", params=params).raise_for_status().json()
        rows, after = rows + [(row["id"], row["recipient"]) for row in page["rows"]], page["next"]
        if die.random() < 0.4:
            change(door, die)
    return rows


@pytest.mark.parametrize(("seed", "key"), [(0, ""), (1, "acme")])
def test_who_stays_is_listed_once(door: HttpDoor, seed: int, key: str) -> None:
    """To an operator and to a key with a scope; by any filter, with the order and without."""
    die, client = random.Random(seed), door.client_with(key) if key else door.client
    staying = {one for number in range(8) for one in inject(door, number, "stay")}
    for query in ({}, {"order": "age", "recipient": "stay*"}, {"domain": ["a.test", "b.test"]}):
        rows = walk(door, client, die, **query)
        assert len(rows) == len(set(rows))
        meant = {one for one in staying if one[1].rpartition("@")[2] in query.get("domain", DOMAINS)}
        assert meant <= set(rows), query


@pytest.mark.parametrize("key", ["", "acme"])
def test_an_explanation_goes_on_to_its_end(door: HttpDoor, key: str) -> None:
    """Of a message, a domain, a campaign and a tenant with more recipients than a page has; whom a key must not see is
    neither named nor counted."""
    client = door.client_with(key) if key else door.client
    held = {"headers": {"x-deliver-after": "86400"}, "from": "x@y.test", "text": "x"}
    people = [f"r{number:04}@long.test" for number in range(450)]
    mail = {"to": people, "tenant": "acme", "campaign": "spring"} | held
    id = door.client.post("/v1/inject", json=mail).raise_for_status().json()["id"]
    other = {"to": [f"o{number:04}@long.test" for number in range(250)], "tenant": "other"} | held
    door.client.post("/v1/inject", json=other).raise_for_status()
    meant = {id: people, "spring": people, "acme": people} | ({} if key else {"long.test": people + other["to"]})
    for what, everybody in meant.items():
        found, after, pages = list[str](), "", 0
        while after is not None:
            page = client.get("/v1/explain", params={"what": what, "after": after}).raise_for_status().json()
            found, after, pages = found + [row["recipient"] for row in page["rows"]], page["next"], pages + 1
            assert "@" not in (after or "") or not key
            assert page["looked"] == len(page["rows"]) or not key
        assert (sorted(found), pages > 2) == (sorted(everybody), True), what
    assert client.get("/v1/explain", params={"what": id, "after": "junk"}).status_code == 422
    if key:
        assert client.get("/v1/explain", params={"what": "long.test"}).status_code == 404
        assert client.get("/v1/explain", params={"what": "other"}).status_code == 404


def test_a_cursor_belongs_to_its_question(door: HttpDoor) -> None:
    """That of a list is a place in its order, whatever the filter; to any other question it is no cursor."""
    staying = sorted(one for number in range(3) for one in inject(door, number, "stay"))
    door.client.post("/v1/suppressions", json={"rows": [{"address": f"{n}@s.test", "kind": "manual"} for n in "ab"]})

    def asked(path: str, client: httpx.Client = door.client, **query: Any) -> Any:
        return client.get(path, params=query)

    after = asked("/v1/recipients", limit=2).json()["next"]
    rows = asked("/v1/recipients", after=after, domain="c.test", order="age").json()["rows"]
    assert [(row["id"], row["recipient"]) for row in rows] == [one for one in staying[2:] if one[1].endswith("c.test")]
    others = {
        "/v1/sizes": asked("/v1/sizes", by="domain", limit=1).json()["next"],
        "/v1/suppressions": asked("/v1/suppressions", limit=1).json()["next"],
        "/v1/in-doubt": f"{staying[0][0]} x@y.test", "/v1/lanes": 1, "/v1/standing": 1, "/v1/tasks": "3",
    }  # fmt: skip
    assert all(others.values())
    for path, cursor in others.items():
        refused = asked("/v1/recipients", after=cursor)
        assert (refused.status_code, "is not a cursor" in refused.text) == (422, True), path
        by = {"by": "domain"} if path == "/v1/sizes" else {}
        assert door.client.get(path, params={"after": after} | by).status_code == 422, path
    own = door.client_with("acme")
    sealed = asked("/v1/recipients", own, limit=2).json()["next"]
    assert asked("/v1/recipients", own, after=after).status_code == 422, "not sealed"
    assert asked("/v1/recipients", after=sealed).status_code == 422, "sealed for another"
