"""The suppression list, and people who want to be forgotten."""

from __future__ import annotations

from typing import Any

from zonemta_py.mail.addresses.entries import hash_of
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.prepare.suppressed import of_nodes, scopes_of
from zonemta_py.web.keys import hashed

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
    assert len(answer.json()["id"]) == 16, "by which events name it"
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


def test_a_tenants_key_and_the_lists_of_its_tenant(open_http: Any) -> None:
    """It puts people on them, sees them, whatever they are called, and takes them off; others' lists are not there."""
    keys = [{"name": "acme", "hash": hashed("a"), "role": "operate", "tenants": ["acme"]}]
    door = open_http(http={"keys": keys})
    own, at = door.client_with("a"), "/v1/suppressions/ann@x.test"

    def add(client: Any, *scopes: str) -> Any:
        rows = [{"address": f"{name}@x.test", "kind": "unsubscribe", "scope": scope}
                for scope in scopes for name in ("ann", "bob")]  # fmt: skip
        return client.post("/v1/suppressions", json={"rows": rows})

    others = ("list:beta/weekly", "list:weekly", "list:acme-2/weekly", "campaign:beta/weekly", "campaign:weekly")
    assert add(door.client, *others).json() == {"added": 10, "known": 0}
    assert add(own, "campaign:acme/weekly").json() == {"added": 2, "known": 0}
    assert own.delete(at).json() == own.delete("/v1/suppressions/bob@x.test").json() == {"removed": 1}
    assert add(own, "list:acme/Weekly", "list:acme/products", "campaigns:acme").json() == {"added": 6, "known": 0}
    for scope in others:
        answer = add(own, scope)
        assert (
            answer.status_code,
            "use one of campaign:acme/NAME, campaigns:acme, list:acme/NAME, tenant:acme" in answer.text,
        ) == (
            403,
            True,
        )
        assert own.get("/v1/suppressions", params={"scope": scope}).json()["rows"] == []
    found, after = list[tuple[str, str]](), ""
    while after is not None:
        page = own.get("/v1/suppressions", params={"after": after, "limit": 1}).json()
        found += [(row["scope"], row["address"]) for row in page["rows"]]
        after = page["next"]
    theirs = ("campaigns:acme", "list:acme/products", "list:acme/weekly")
    assert found == [(scope, f"{name}@x.test") for scope in theirs for name in ("ann", "bob")]
    some = own.get("/v1/suppressions", params={"scope": "list:acme/weekly"}).json()["rows"]
    assert [row["address"] for row in some] == ["ann@x.test", "bob@x.test"]
    assert own.get("/v1/suppressions", params={"after": "ann@x.test list:beta/weekly"}).status_code == 422
    assert own.delete(at, params={"scope": "list:beta/weekly"}).status_code == 404
    assert own.delete(at, params={"scope": "list:acme/weekly"}).json() == {"removed": 1}
    assert own.delete(at).json() == {"removed": 2}
    assert own.get(at).status_code == 404
    row = door.client.get(at).json()
    assert {row["scope"], *(one["scope"] for one in row["others"])} == set(others)


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
    """Who complained at one node gets nothing from the others, nor who left its tenant's mail, or its list, there; what
    is of another tenant or list is each node's own."""
    doors = [open_http(http={"keys": [{"name": "plan", "hash": hashed("k"), "role": "operate"}]}) for _ in range(2)]
    listed = ({"address": "ann@x.test", "kind": "complaint"}, {"address": "bob@x.test", "kind": "unsubscribe"})
    for door, row in zip(doors, listed, strict=True):
        other = {"address": "carl@x.test", "kind": "complaint", "scope": "tenant:acme"}
        assert door.client.post("/v1/suppressions", json={"rows": [row, other]}).json() == {"added": 2, "known": 0}
    target = NodeAccess(tuple(str(door.client.base_url) for door in doors), "k", 60)

    def found(tenant: str, *list_ids: str) -> list[str]:
        return [row["address"] for page in of_nodes(target, scopes_of(tenant, list_ids)) for row in page]

    assert found("") == found("", "") == ["ann@x.test", "bob@x.test"]
    left = [{"address": f"{scope[5:9]}@x.test", "kind": "unsubscribe", "scope": scope}
            for scope in ("list:acme/weekly", "list:beta/weekly", "list:weekly", "list:acme/other")]  # fmt: skip
    assert doors[1].client.post("/v1/suppressions", json={"rows": left}).json()["added"] == 4
    assert found("", "Weekly <WEEKLY>") == ["ann@x.test", "bob@x.test", "week@x.test"]
    assert found("acme", "weekly") == ["ann@x.test", "carl@x.test", "bob@x.test", "acme@x.test", "carl@x.test"]


def test_domains_patterns_and_hashes(open_http: Any) -> None:
    """Put on the list, shown by what they cover, and taken off; what is wrong is said, and nothing is taken then."""
    door = open_http()
    entries = ["@Example.org", "@*.example.org", "NoReply@*", hash_of("bob@d.test").upper()]
    rows = [{"address": one, "kind": "manual"} for one in entries]
    assert door.client.post("/v1/suppressions", json={"rows": rows}).json() == {"added": 4, "known": 0}
    assert door.client.post("/v1/suppressions", json={"rows": rows}).json() == {"added": 0, "known": 4}
    stored = ["@*.example.org", "@example.org", "pattern:noreply@*", hash_of("bob@d.test")]
    assert [row["address"] for row in door.client.get("/v1/suppressions").json()["rows"]] == stored
    to = ["anna@example.org", "a@sub.example.org", "noreply@d.test", "Bob@d.test", "c@d.test"]
    answer = door.client.post("/v1/inject", json=GOOD | {"to": to}).json()
    assert (answer["accepted"], answer["suppressed"]) == (1, 4)
    assert door.client.get("/v1/suppressions/anna@example.org").json()["address"] == "@example.org"
    assert door.client.get("/v1/suppressions/noreply@*").json()["address"] == "pattern:noreply@*"
    answer = door.client.delete("/v1/suppressions/anna@example.org")
    assert (answer.status_code, "has no entry of its own; @example.org covers it" in answer.text) == (404, True)
    evidence = door.client.get("/v1/suppressions/@example.org/evidence").json()
    assert [row["address"] for row in evidence["entries"]] == ["@example.org"]
    for wrong, sentence in (("example.org", "write @example.org for all of a domain"), ("*@*", "stops everybody"),
                            ("sha256:1", "give sha256: and 64 hexadecimal digits")):  # fmt: skip
        answer = door.client.post(
            "/v1/suppressions",
            json={"rows": [{"address": "fine@d.test", "kind": "manual"}, rows[0] | {"address": wrong}]},
        )
        assert (answer.status_code, sentence in answer.text) == (422, True), answer.text
    for one in entries:
        assert door.client.delete(f"/v1/suppressions/{one}").json() == {"removed": 1}
    assert door.client.get("/v1/suppressions").json()["rows"] == []
    assert door.client.post("/v1/inject", json=GOOD | {"to": to}).json()["accepted"] == 5


def test_a_tenants_key_and_a_whole_domain(open_http: Any) -> None:
    """It is of that tenant's mail only, and an operator's domain is not the tenant's to see or to take off."""
    keys = [{"name": "acme", "hash": hashed("a"), "role": "operate", "tenants": ["acme"]}]
    door = open_http(http={"keys": keys})
    own = door.client_with("a")
    rows = [{"address": "@d.test", "kind": "manual"}]
    assert door.client.post("/v1/suppressions", json={"rows": rows}).json() == {"added": 1, "known": 0}
    assert own.get("/v1/suppressions/c@d.test").status_code == 404
    assert own.delete("/v1/suppressions/@d.test").status_code == 404
    assert (
        own.post("/v1/suppressions", json={"rows": [{"address": "@example.org", "kind": "manual"}]}).json()["added"]
        == 1
    )
    row = own.get("/v1/suppressions/anna@example.org").json()
    assert (row["address"], row["scope"]) == ("@example.org", "tenant:acme")
    answer = door.client.post("/v1/inject", json=GOOD).json()
    assert (answer["accepted"], answer["suppressed"]) == (1, 1)
    assert door.client.post("/v1/inject", json=GOOD | {"tenant": "acme"}).json()["suppressed"] == 2
    assert own.delete("/v1/suppressions/@example.org").json() == {"removed": 1}
