"""A key with a scope neither sees nor changes anything of another tenant: each operation is asked for it."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.admin.requests import OPERATIONS, Operation, ask, needed
from tests.web.conftest import HttpDoor
from zonemta_py.disk import identity
from zonemta_py.plugin.host import Host
from zonemta_py.queue import questions
from zonemta_py.queue.admin.answers import OF_QUEUE
from zonemta_py.queue.questions.question import AnsweredBy
from zonemta_py.web.keys import hashed
from zonemta_py.web.request_context import Cursors

SECRET = "zweig"
"""Part of everything that is the other's and that no request names."""
OTHERS = {"tenant": "beta", "campaign": "autumn", "name": "autumn"}
KEYS = [
    {"name": "alpha", "hash": hashed("alpha"), "role": "admin", "tenants": ["alpha"]},
    {"name": "spring", "hash": hashed("spring"), "role": "admin", "campaigns": ["spring"]},
    {"name": "both", "hash": hashed("both"), "role": "admin", "tenants": ["alpha"], "campaigns": ["spring"]},
    {"name": "two", "hash": hashed("two"), "role": "admin", "tenants": ["alpha", "gamma"]},
    {"name": "free", "hash": hashed("free"), "role": "operate", "rights": ["inject"]},
]
NAMES = [str(one["name"]) for one in KEYS]
ACCOUNTS = [{"name": "free", "keys": ["free"], "messages": ["100000/day"]}, {"name": "beta", "messages": ["1/s"]}]
"""One without a tenant: its keys see what is of none."""


class Site:
    """A door with things of two tenants; ids are those of the messages of `alpha` and `beta`."""

    def __init__(self, door: HttpDoor, template: bytes) -> None:
        self.door, self.clients = door, {name: door.client_with(name) for name in NAMES}
        good, held = base64.b64encode(template).decode(), {"x-deliver-after": "86400"}
        self.ids = {}
        for tenant, campaign, domain in (("alpha", "spring", "mine.test"), ("beta", "autumn", f"{SECRET}.test")):
            row = {"sender": f"news@{domain}", "template": good, "tenant": tenant}
            self.post("PUT", f"/v1/campaigns/{campaign}", row)
            mail = {"from": f"news@{domain}", "to": [f"ann@{domain}"], "subject": f"about {domain}", "text": "x"}
            said = self.post("POST", "/v1/inject", mail | {"tenant": tenant, "campaign": campaign, "headers": held})
            self.ids[tenant] = said["id"]
            rows = [{"address": f"bob@{domain}", "kind": "manual", "scope": scope}
                    for scope in (f"tenant:{tenant}", f"campaign:{tenant}/{campaign}")]  # fmt: skip
            self.post("POST", "/v1/suppressions", {"rows": rows})
            self.post("PUT", f"/v1/suspensions/tenant/{tenant}", {"cause": f"about {domain}"})
            self.post("PUT", f"/v1/attachments/{domain}.pdf?tenant={tenant}", {"about": domain})
        row = {"verb": "set", "set": {"priority": 3}, "cause": SECRET, "where": {"tenant": "beta"}}
        self.task = self.post("POST", "/v1/tasks", row)["id"]
        self.post("POST", "/v1/suppressions", {"rows": [{"address": f"all@{SECRET}.test", "kind": "manual"}]})

    def post(self, method: str, path: str, body: dict[str, Any]) -> Any:
        answer = self.door.client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> list[Any]:
        """All there is of the other, when its task has been done."""
        until = time.monotonic() + 60
        while self.door.client.get(f"/v1/tasks/{self.task}").json()["state"] == "running" and time.monotonic() < until:
            time.sleep(0.02)
        paths = (
            "/v1/campaigns/autumn", f"/v1/messages/{self.ids['beta']}", f"/v1/suppressions/bob@{SECRET}.test",
            f"/v1/suppressions/all@{SECRET}.test", "/v1/standing?kind=tenant", "/v1/size?tenant=beta",
            "/v1/attachments?tenant=beta",
        )  # fmt: skip
        found = [self.door.client.get(path).json() for path in paths]
        found[0].pop("history")
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, template: bytes) -> Iterator[Site]:
    door = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {"http": {"keys": KEYS}, "accounts": ACCOUNTS})
    assert identity.copied(door.folder, "") == ""
    yield Site(door, template)
    door.stop()


def asked(one: Operation, ids: dict[str, str], task: str) -> Iterator[tuple[dict[str, str], dict[str, Any], Any]]:
    """Places in the path, query and body of requests that mean the other's things, or name nothing at all. Each query
    is asked with one of the bodies, the next one of them each time; with ZONEMTA_ALL_PAIRS=1 with all of them."""
    places = {"id": ids["beta"], "name": "autumn", "kind": "campaign", "address": f"bob@{SECRET}.test"}
    where = {"tenant": "beta", "id": ids["beta"], "campaign": "autumn", "all": True}
    bodies: list[Any] = [{}, {"kind": "tenant", "name": "beta"}, {"kind": "campaign", "name": "autumn"}]
    bodies += [{"verb": "set", "set": {"priority": 1}, "where": {name: value}} for name, value in where.items()]
    bodies += [{"rows": [{"address": "x@mine.test", "kind": "manual", "scope": scope}]}
               for scope in ("all", "tenant:beta", "campaign:beta/autumn", "campaign:spring", "campaigns")]  # fmt: skip
    bodies += [{"address": f"all@{SECRET}.test"}, {"action": "pause"}]
    queries = [needed(one)]
    for row in one.row.get("parameters", []):
        if row["in"] == "query":
            queries += [needed(one) | {row["name"]: value} for value in ("beta", "autumn", "*", ids["beta"], "default")]
    if "requestBody" not in one.row:
        bodies = [None]
    for number, query in enumerate(queries):
        every = number == 0 or "ZONEMTA_ALL_PAIRS" in os.environ
        for body in bodies if every else [bodies[number % len(bodies)]]:
            yield places, query, body
    yield places | {"kind": "tenant", "name": "beta", "id": task}, needed(one), {}
    yield places | {"kind": "zone", "name": "default"}, needed(one), {}


@pytest.mark.parametrize("name", ["alpha", "spring", "both", "free"])
def test_nothing_of_another_is_seen_or_changed(site: Site, name: str) -> None:
    """Whatever is asked with the other's names, or with none."""
    before = site.state()
    for one in OPERATIONS:
        for places, query, body in asked(one, site.ids, site.task):
            found, text = ask(site.clients[name], one, query, body, **places)
            assert found < 500, (one.id, query, body, text)
            said = text.replace(f"bob@{SECRET}.test", "") if "{address}" in one.path else text
            assert SECRET not in said, (one.id, query, body, text)
            assert not one.whole or found in ((403,) if query == needed(one) else (403, 422)), (one.id, found, text)
            if found == 200 and one.path == "/v1/recipients":
                own = "" if name == "free" else "alpha"
                assert {row["tenant"] for row in json.loads(text)["rows"]} <= {own}, (query, text)
            assert name != "free" or "mine.test" not in text or "mine.test" in str(body), (one.id, query, body, text)
            if "{id}" in one.path or "{name}" in one.path:
                assert found != 200, (one.id, places)
    assert site.state() == before


@pytest.mark.parametrize("name", ["alpha", "both", "two"])
def test_its_own_is_all_there(site: Site, name: str) -> None:
    """A message, its content, its campaign, and why it waits."""
    client, id = site.clients[name], site.ids["alpha"]
    assert client.get(f"/v1/messages/{id}").json()["recipients"][0]["recipient"] == "ann@mine.test"
    assert client.get(f"/v1/messages/{id}/content").content.endswith(b"\r\n\r\nx\r\n")
    assert [row["name"] for row in client.get("/v1/campaigns").json()] == ["spring"]
    assert client.get("/v1/campaigns/spring").json()["tenant"] == "alpha"
    assert client.get("/v1/explain", params={"what": id}).json()["rows"][0]["id"] == id
    assert [row["id"] for row in client.get("/v1/recipients", params={"id": id}).json()["rows"]] == [id]
    assert client.get("/v1/size", params={"campaign": "spring"}).json()["deferred"] == 1
    assert [row["name"] for row in client.get("/v1/sizes", params={"by": "campaign"}).json()["rows"]] == ["spring"]
    assert client.get(f"/v1/messages/{id}").json()["story"]["rows"][0]["what"] == "accepted"


def test_an_account_without_a_tenant_has_what_is_of_none(site: Site, template: bytes) -> None:
    """Its mail, campaigns and their suppressions; whoever else has none shares them. It makes nothing of a tenant."""
    own, good = site.clients["free"], base64.b64encode(template).decode()
    assert own.put("/v1/campaigns/open", json={"sender": "a@free.test", "template": good}).status_code == 200
    assert own.put("/v1/campaigns/shut", json={"sender": "a@free.test", "template": good, "tenant": "beta"}).is_error
    mail = {"from": "a@free.test", "to": ["b@free.test"], "text": "x", "campaign": "open"}
    id = own.post("/v1/inject", json=mail).json()["id"]
    assert own.post("/v1/inject", json=mail | {"tenant": "beta"}).is_error
    assert [row["name"] for row in own.get("/v1/campaigns").json()] == ["open"]
    assert own.get(f"/v1/messages/{id}").json()["envelope"]["campaign"] == "open"
    assert [row["id"] for row in own.get("/v1/recipients").json()["rows"]] == [id]
    assert (
        own.get("/v1/size").json()["queued"] == own.get("/v1/size", params={"campaign": "open"}).json()["queued"] == 1
    )
    assert [row["name"] for row in own.get("/v1/sizes", params={"by": "campaign"}).json()["rows"]] == ["open"]
    assert own.put("/v1/suspensions/campaign/open", json={}).status_code == 200
    assert [row["name"] for row in own.get("/v1/standing").json()["rows"]] == ["open"]
    assert own.post("/v1/campaigns/open/resume", json={}).status_code == 200
    row = {"address": "c@free.test", "kind": "unsubscribe"}
    assert own.post("/v1/suppressions", json={"rows": [row]}).json()["added"] == 1
    assert own.get("/v1/suppressions/c@free.test").json()["scope"] == "campaign:open"
    assert own.post("/v1/suppressions", json={"rows": [row | {"scope": "all"}]}).status_code == 403
    task = own.post("/v1/tasks", json={"verb": "delete", "where": {"all": True}}).json()
    assert task["where"]["tenant"] == [""]
    until = time.monotonic() + 60
    while own.get(f"/v1/tasks/{task['id']}").json()["state"] == "running" and time.monotonic() < until:
        time.sleep(0.02)
    assert own.get(f"/v1/tasks/{task['id']}").json()["done"] == 1
    assert {row["account"] for row in own.get("/v1/accounts").json()} == {"free"}
    assert site.clients["alpha"].get("/v1/accounts").json() == []
    assert {row["account"] for row in site.door.client.get("/v1/accounts").json()} == {"free", "beta"}


def test_suppressions_are_those_of_the_scope(site: Site) -> None:
    """Added, listed, and removed without touching those of others."""
    own = site.clients["alpha"]
    row = {"address": f"all@{SECRET}.test", "kind": "complaint"}
    assert own.post("/v1/suppressions", json={"rows": [row | {"scope": "tenant:alpha"}]}).json()["added"] == 1
    found = [(one["address"], one["scope"]) for one in own.get("/v1/suppressions").json()["rows"]]
    mine = "bob@mine.test"
    assert found == [(mine, "campaign:alpha/spring"), (f"all@{SECRET}.test", "tenant:alpha"), (mine, "tenant:alpha")]
    page = own.get("/v1/suppressions", params={"limit": 2}).json()
    rest = own.get("/v1/suppressions", params={"limit": 2, "after": page["next"]}).json()
    assert [len(page["rows"]), len(rest["rows"]), rest["next"]] == [2, 1, None]
    assert own.delete(f"/v1/suppressions/all@{SECRET}.test").json() == {"removed": 1}
    assert site.door.client.get(f"/v1/suppressions/all@{SECRET}.test").json()["scope"] == "all"
    assert own.delete(f"/v1/suppressions/all@{SECRET}.test").status_code == 404


def test_mail_is_of_the_scope(site: Site, template: bytes) -> None:
    """What names no tenant is the key's; what names another's tenant or campaign is refused, in its header too."""
    mail = {"from": "a@mine.test", "to": ["b@mine.test"], "text": "x", "headers": {"x-deliver-after": "86400"}}
    own = site.clients["alpha"]
    said = own.post("/v1/inject", json=mail).json()
    assert site.door.client.get(f"/v1/messages/{said['id']}").json()["envelope"]["tenant"] == "alpha"
    for more in ({"tenant": "beta"}, {"headers": {"x-tenant": "beta"}}):
        answer = own.post("/v1/inject", json=mail | more)
        assert (answer.status_code, "this key's scope" in answer.json()["detail"]) == (422, True), more
    answer = site.clients["two"].post("/v1/inject", json=mail)
    assert "alpha, gamma" in answer.json()["detail"]
    good = base64.b64encode(template).decode()
    site.post("PUT", "/v1/campaigns/shared", {"sender": "news@x.test", "template": good, "tenant": "beta"})
    same = own.post(
        "/v1/inject", json=mail | {"campaign": "shared"}
    )  # a name is its tenant's: this is another campaign
    assert site.door.client.get(f"/v1/messages/{same.json()['id']}").json()["envelope"]["tenant"] == "alpha"
    assert site.door.client.get("/v1/campaigns/shared").json()["accepted"] == 0
    alone = site.clients["spring"]  # of whatever tenant its campaign is
    said = alone.post("/v1/inject", json=mail | {"campaign": "spring"}).json()
    assert site.door.client.get(f"/v1/messages/{said['id']}").json()["envelope"]["tenant"] == "alpha"
    answer = alone.post("/v1/inject", json=mail | {"campaign": "spring", "tenant": "beta"})
    assert (answer.status_code, "is not of the tenant 'beta'" in answer.json()["detail"]) == (422, True)
    batch = {"campaign": "autumn", "columns": ["name"], "recipients": [["b@mine.test", "Ben"]]}
    assert own.post("/v1/inject", json=batch, headers={"idempotency-key": "1"}).status_code == 404


def test_pages_go_on_although_their_cursors_say_nothing(site: Site) -> None:
    """A cursor is a key of the queue, maybe somebody else's; it is sealed, for one key."""
    mail = {"from": "a@mine.test", "to": ["b@mine.test"], "text": "x", "headers": {"x-deliver-after": "86400"}}
    own, found, after = site.clients["alpha"], set[str](), ""
    wanted = {own.post("/v1/inject", json=mail).json()["id"] for _ in range(3)}
    for _ in range(20):
        page = own.get("/v1/recipients", params={"limit": 1, "after": after}).json()
        found |= {row["id"] for row in page["rows"]}
        if page["next"] is None:
            break
        after = page["next"]
        local = site.door.token
        assert Cursors(local).opened("alpha", after), "also in the process after a reload, or after the next start"
        assert b"deferred" not in base64.urlsafe_b64decode(after)
    assert wanted <= found
    again = Cursors(site.door.token)
    assert again.opened("alpha", after), "of the process before a reload"
    assert site.clients["two"].get("/v1/recipients", params={"after": after}).status_code == 422


def test_a_task_is_for_its_own_whatever_it_says(site: Site) -> None:
    """The filter is narrowed, so `all` is all of its own."""
    own = site.clients["alpha"]
    row = own.post("/v1/tasks", json={"verb": "set", "set": {"priority": 5}, "where": {"all": True}}).json()
    assert row["where"]["tenant"] == ["alpha"]
    assert {tuple(one["where"]["tenant"]) for one in own.get("/v1/tasks").json()} == {("alpha",)}
    assert own.post("/v1/tasks", json={"verb": "delete", "where": {"tenant": "beta"}}).status_code == 403
    assert row["id"] in [one["id"] for one in site.door.client.get("/v1/tasks").json()]


def test_suspending_is_for_its_own(site: Site) -> None:
    """Its tenant and campaigns, and nothing else."""
    own = site.clients["alpha"]
    assert [row["name"] for row in own.get("/v1/standing").json()["rows"]] == ["alpha"]
    assert own.put("/v1/suspensions/campaign/spring", json={"cause": "wait"}).json()["standing"][0]["cause"] == "wait"
    assert own.delete("/v1/suspensions/campaign/spring").json() == {"lifted": True}
    assert own.put("/v1/suspensions/zone/default", json={}).status_code == 404
    assert own.put("/v1/suspensions/domain/example.org", json={}).status_code == 404


def test_a_scope_has_no_right_to_what_is_nobodys() -> None:
    """The configuration says so."""
    from pydantic import ValidationError

    from zonemta_py.config import HttpKey

    with pytest.raises(ValidationError, match="of no tenant; remove one"):
        HttpKey.model_validate({"name": "x", "hash": hashed("x"), "tenants": ["a"], "rights": ["push"]})


def test_an_operators_campaign_is_no_tenants(site: Site, template: bytes) -> None:
    """One made without a tenant by somebody without a scope is about all mail: only such a one sees and orders it.
    A suspension by others is about their own mail."""
    good = base64.b64encode(template).decode()
    site.post("PUT", "/v1/campaigns/whole", {"sender": f"news@{SECRET}.test", "template": good})
    for name in ("alpha", "free"):
        client = site.clients[name]
        assert "whole" not in client.get("/v1/campaigns").text
        assert client.get("/v1/campaigns/whole").status_code == 404
        assert client.post("/v1/campaigns/whole/cancel", json={}).status_code == 404
        assert client.put("/v1/suspensions/campaign/whole", json={}).status_code == 404
    assert site.door.client.get("/v1/campaigns/whole").json()["of_all"]
    row = site.clients["alpha"].put("/v1/suspensions/campaign/spring", json={}).json()["standing"][0]
    assert row["tenants"] == ["alpha"]
    assert site.clients["alpha"].delete("/v1/suspensions/campaign/spring").status_code == 200


@pytest.mark.parametrize(("name", "tenant"), [("alpha", "alpha"), ("free", "")])
def test_events_are_those_of_its_mail(site: Site, name: str, tenant: str) -> None:
    """From the beginning: nothing of others, and nothing that is of nobody's mail."""
    mail = {"from": "a@own.test", "to": [f"last-{name}@own.test"], "text": "x"}
    site.clients[name].post("/v1/inject", json=mail).raise_for_status()
    told = []
    with site.clients[name].stream("GET", "/v1/events", params={"since": "2020-01-01T00:00:00Z"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                told.append(json.loads(line[5:])["data"])
            if f"last-{name}@" in line:
                break
    assert len(told) > 1
    assert SECRET not in str([event for event in told if "message" in event]), "it has suppressed one there itself"
    assert {event.get("tenant", "") for event in told} == {tenant}


@pytest.mark.parametrize(
    ("path", "other", "nobodys"),
    [
        ("/v1/explain?what={}", "autumn", "wintry"),
        ("/v1/explain?what={}", f"{SECRET}.test", "never.test"),
        ("/v1/explain?what={}", f"ann@{SECRET}.test", "ann@never.test"),
        ("/v1/explain?what={}", "beta", "nobody"),
        ("/v1/recipients?campaign={}", "autumn", "wintry"),
        ("/v1/campaigns/{}", "autumn", "wintry"),
        ("/v1/suppressions/{}", f"bob@{SECRET}.test", "bob@never.test"),
        ("/v1/size?campaign={}", "autumn", "wintry"),
    ],
)
def test_what_is_anothers_is_as_if_it_were_not_there(site: Site, path: str, other: str, nobodys: str) -> None:
    """No sentence and no count tells them apart."""
    answers = [site.clients["alpha"].get(path.format(name)) for name in (other, nobodys)]
    told = [answer.json() for answer in answers]
    for one, name in zip(told, (other, nobodys), strict=True):
        one.pop("instance", None)
        one["detail"] = one.get("detail", "").replace(name, "it")
    assert told[0] == told[1]
    assert answers[0].status_code == answers[1].status_code


@pytest.mark.parametrize(
    "what", ["autumn", "wintry", f"{SECRET}.test", "never.test", f"ann@{SECRET}.test", "beta", "default"]
)
def test_the_queue_is_not_asked_why_the_mail_of_others_waits(
    site: Site, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """To walk over it would take longer the more there is."""
    asked = list[str]()

    async def explain(*_: Any, **__: Any) -> Any:
        asked.append(what)

    monkeypatch.setitem(OF_QUEUE, questions.explain, AnsweredBy(questions.explain, explain))
    assert site.clients["alpha"].get("/v1/explain", params={"what": what}).status_code == 404
    assert asked == []
