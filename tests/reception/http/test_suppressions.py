"""The suppression list, and people who want to be forgotten."""

from __future__ import annotations

from typing import Any

from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.prepare.suppressed import of_nodes
from zonemta_py.reception.http.keys import hashed

GOOD = {"from": "a@b.test", "to": ["c@d.test", "anna@example.org"], "subject": "x", "text": "y"}


def test_who_is_on_the_list_is_left_out(open_http: Any) -> None:
    """Of what comes, and told to the one who sends; taken from the list again, mail goes again."""
    door = open_http()
    rows = [{"address": "Anna@EXAMPLE.org", "kind": "manual", "reason": "form"}]
    assert door.client.post("/v1/suppressions", json={"rows": rows}).json() == {"added": 1, "known": 0}
    assert door.client.post("/v1/suppressions", json={"rows": rows}).json() == {"added": 0, "known": 1}
    answer = door.client.post("/v1/inject", json=GOOD).json()
    assert (answer["accepted"], answer["suppressed"]) == (1, 1)
    answer = door.client.post("/v1/inject", json=GOOD | {"to": ["anna@example.org"]})
    assert (answer.status_code, answer.json()["accepted"], answer.json()["suppressed"]) == (200, 0, 1)
    row = door.client.get("/v1/suppressions/anna@example.org").json()
    assert (row["kind"], row["reason"], row["by"]) == ("manual", "form", "local")
    assert door.client.delete("/v1/suppressions/anna@example.org").json() == {"removed": 1}
    assert door.client.delete("/v1/suppressions/anna@example.org").status_code == 404
    assert door.client.get("/v1/suppressions/anna@example.org").status_code == 404
    assert door.client.post("/v1/inject", json=GOOD).json()["accepted"] == 2


def test_who_unsubscribes_leaves_campaigns(open_http: Any) -> None:
    """Other mail still comes; each entry says its scope, is found by it, and taken off by it."""
    door = open_http()
    rows = [
        {"address": "anna@example.org", "kind": "unsubscribe"},
        {"address": "anna@example.org", "kind": "complaint", "scope": "tenant:acme"},
    ]
    assert door.client.post("/v1/suppressions", json={"rows": rows}).json() == {"added": 2, "known": 0}
    assert door.client.post("/v1/inject", json=GOOD).json()["accepted"] == 2
    for terms in ({"campaign": "spring"}, {"tenant": "acme"}):
        assert door.client.post("/v1/inject", json=GOOD | terms).json()["suppressed"] == 1
    row = door.client.get("/v1/suppressions/anna@example.org").json()
    assert (row["scope"], row["others"][0]["scope"]) == ("campaigns", "tenant:acme")
    page = door.client.get("/v1/suppressions", params={"scope": "tenant:acme"}).json()
    assert [row["kind"] for row in page["rows"]] == ["complaint"]
    at = "/v1/suppressions/anna@example.org"
    assert door.client.delete(at, params={"scope": "campaigns"}).json() == {"removed": 1}
    assert door.client.delete(at, params={"scope": "campaigns"}).status_code == 404
    assert door.client.post("/v1/inject", json=GOOD | {"campaign": "spring"}).json()["accepted"] == 2
    answer = door.client.delete(at, params={"scope": "news"})
    assert (answer.status_code, "is not a scope; use all, campaigns" in answer.text) == (422, True)


def test_the_list_comes_in_pages(open_http: Any) -> None:
    """In order, each page from where the last one ended; one kind alone if wanted."""
    door = open_http()
    kinds = ("hard-bounce", "complaint")
    rows = [{"address": f"p{n}@x.test", "kind": kinds[n % 2]} for n in range(7)]
    door.client.post("/v1/suppressions", json={"rows": rows})
    found, after = [], ""
    while after is not None:
        page = door.client.get("/v1/suppressions", params={"after": after, "limit": 3}).json()
        found += [row["address"] for row in page["rows"]]
        after = page["next"]
    assert found == [row["address"] for row in rows]
    some = door.client.get("/v1/suppressions", params={"kind": "complaint"}).json()["rows"]
    assert [row["address"] for row in some] == ["p1@x.test", "p3@x.test", "p5@x.test"]


def test_what_was_heard_of_a_person(open_http: Any) -> None:
    """Also of one who is not on the list; and nothing is held back anywhere."""
    door = open_http()
    found = door.client.get("/v1/suppressions/Anna@example.org/evidence").json()
    assert found == {"address": "anna@example.org", "entries": [], "heard": [], "standing": [], "guards": []}
    assert door.client.get("/v1/guards").json() == []
    answer = door.client.post("/v1/guards", json={"name": "p.test"})
    assert (answer.status_code, "nothing is held back at 'p.test'" in answer.text) == (404, True)


def test_a_person_is_forgotten(open_http: Any) -> None:
    """What waits for them goes; kept as erased, they are never mailed again."""
    door = open_http()
    assert door.client.post("/v1/inject", json=GOOD).json()["accepted"] == 2
    assert door.client.post("/v1/forget", json={"address": "anna@example.org", "keep": True}).json()["removed"] == 1
    assert door.client.get("/v1/suppressions/anna@example.org").json()["kind"] == "erased"
    assert door.client.post("/v1/inject", json=GOOD).json()["suppressed"] == 1


def test_a_campaign_leaves_out_who_is_on_any_nodes_list(open_http: Any) -> None:
    """Who complained at one node gets nothing from the others; what is of one tenant only is each node's own."""
    doors = [open_http(http={"keys": [{"name": "plan", "hash": hashed("k"), "role": "operate"}]}) for _ in range(2)]
    listed = ({"address": "ann@x.test", "kind": "complaint"}, {"address": "bob@x.test", "kind": "unsubscribe"})
    for door, row in zip(doors, listed, strict=True):
        other = {"address": "carl@x.test", "kind": "complaint", "scope": "tenant:acme"}
        assert door.client.post("/v1/suppressions", json={"rows": [row, other]}).json() == {"added": 2, "known": 0}
    target = NodeAccess(tuple(str(door.client.base_url) for door in doors), "k", 60)
    assert [row["address"] for page in of_nodes(target) for row in page] == ["ann@x.test", "bob@x.test"]
