"""What operators see and change by HTTP, on a real queue."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.web.conftest import SHOP, HttpDoor
from zonemta_py.cli.app import main as command
from zonemta_py.cli.campaign.planning import joined
from zonemta_py.mail.rules.rule import STAGES
from zonemta_py.schedule.admin_orders import LIFTED, STOPPED
from zonemta_py.web.api.admin import bodies, rules
from zonemta_py.web.keys import hashed

REQUEST = re.compile(r"`(GET|POST|PUT|DELETE) (/[^`]+)`")
MAIL = {"from": "a@b.test", "to": ["c@d.test"], "subject": "hello", "text": "x"}
LATER = MAIL | {"headers": {"x-deliver-after": "86400"}}


def test_who_is_in_doubt_is_acknowledged(open_http: Any) -> None:
    """Those of some messages, or seen until a moment, or all; by who may give orders. The list is what is left."""
    keys = [{"name": name, "hash": hashed(name), "role": name} for name in ("read", "operate")]
    door = open_http(http={"keys": keys})
    for number in range(3):
        mail = {"from": "a@b.test", "to": [f"r{number}@c.test"], "text": "x"}
        door.client.post("/v1/inject", json=mail).raise_for_status()
    door.deliveries(3)

    async def lose(queue: Any) -> None:
        queue.lost("")
        await queue.core.disk.journal.stable()
        await queue.core.disk.lines.stable()

    door.do(lose)
    rows = door.client.get("/v1/in-doubt").json()["rows"]
    assert len(rows) == 3
    path, first = "/v1/in-doubt/acknowledge", min(row["since_ms"] for row in rows)
    assert door.client_with("read").post(path, json={}).status_code == 403
    hand = door.client_with("operate")
    assert hand.post(path, json={"ids": []}).status_code == 422
    for order, count in (
        ({"until_ms": first - 1}, 0), ({"ids": [rows[0]["id"], "0" * 16]}, 1), ({}, 2), ({"ids": [rows[1]["id"]]}, 0)
    ):  # fmt: skip
        assert hand.post(path, json=order).json() == {"acknowledged": count}, order
    assert door.client.get("/v1/in-doubt").json()["rows"] == []


def test_names_are_those_of_the_queue() -> None:
    """The document lists them."""
    assert set(get_args(bodies.Standing)) == {*LIFTED}
    assert set(get_args(bodies.Suspendable)) == {*STOPPED}
    assert set(get_args(rules.Stage)) == {*STAGES}


def test_there_is_a_cluster_or_none(open_http: Callable[..., HttpDoor]) -> None:
    answer = open_http().client.get("/v1/cluster")
    assert (answer.status_code, "[cluster]" in answer.json()["detail"]) == (409, True)


def test_ready_says_why_not(open_http: Callable[..., HttpDoor]) -> None:
    """503 for a load balancer, without a key, with sentences; health is another question."""
    good, full = open_http(), open_http(queue={"reserve_bytes": 1 << 60})
    assert good.client_with("").get("/v1/ready").json() == {"status": "ok"}
    answer = full.client_with("").get("/v1/ready")
    assert (answer.status_code, "no mail is accepted" in answer.json()["detail"]) == (503, True)
    assert int(answer.headers["retry-after"]) > 0
    assert full.client.get("/v1/health").status_code == 200
    assert full.client.get("/v1/status").json()["problems"]

    async def stop(queue: object) -> None:
        queue.core.stopping = True  # type: ignore[attr-defined]  # as `zonemta drain` does

    good.do(stop)
    assert "draining" in good.client.get("/v1/ready").json()["detail"]


def test_a_large_message_comes_back_as_it_was(http_door: HttpDoor) -> None:
    """Several chunks, one after another, while it is in the queue."""
    lines = b"".join(b"%06d %s\r\n" % (number, b"x" * 60) for number in range(30_000))
    sent = b"Subject: large\r\nX-Deliver-After: 86400\r\n\r\n" + lines
    to = {"sender": "a@b.test", "to": "c@d.test"}
    id = http_door.client.post(
        "/v1/inject", params=to, content=sent, headers={"content-type": "message/rfc822"}
    ).json()["id"]
    answer = http_door.client.get(f"/v1/messages/{id}/content")
    assert (answer.headers["content-type"], answer.content.partition(b"\r\n\r\n")[2]) == ("message/rfc822", lines)


def test_what_a_campaign_is_planned_by(open_http: Callable[..., HttpDoor]) -> None:
    """Zones that send, with their sources; what is left of the day where one warms up; whose domains are whose. The
    client of the pipeline reads it as it is."""
    door = open_http(
        zones=[{"name": "default", "default": True, "pool": "new"}, {"name": "taken", "delivery": "pull"}],
        pools=[{"name": "new", "sources": [{"address": "127.0.0.2", "weight": 3, "warmup": "slow"}]}],
        warmups=[{"name": "slow", "caps": [50, 100]}],
    )

    async def sent(queue: Any) -> None:
        days = queue.core.schedule.policy.warmups.of("127.0.0.2", "google")
        days.room(queue.core.clock.steady_ms())  # the day begins
        days.take(20)

    door.do(sent)
    found = door.client.get("/v1/planning").json()
    zone = {"name": "default", "default": True, "sources": [{"address": "127.0.0.2", "weight": 3.0}]}
    assert found["zones"] == [zone]
    assert found["warming"] == [
        {"source": "127.0.0.2", "provider": "*", "per_day": [50, 100]},
        {"source": "127.0.0.2", "provider": "google", "per_day": [30, 100]},
    ]
    assert found["providers"]["gmail.com"] == "google"
    assert joined([found]).zones == {"default": {"127.0.0.2": 3.0}}


def test_a_zone_is_suspended_and_resumed(http_door: HttpDoor) -> None:
    """Its mail says so, and so do the zone and the list; what is not suspended cannot be resumed."""
    client = http_door.client
    id = client.post("/v1/inject", json=MAIL).json()["id"]
    said = client.put("/v1/suspensions/zone/default", json={"cause": "a leak", "seconds": 600}).json()
    assert (said["standing"][0]["cause"], said["standing"][0]["until_ms"] > 0) == ("a leak", True)
    reasons = client.get("/v1/explain", params={"what": id}).json()["rows"][0]["reasons"]
    assert "a leak" in {row["cause"] for row in reasons} or "a leak" in reasons[0]["cause"]
    assert client.get("/v1/zones/default").json()["suspended"]["cause"] == "a leak"
    assert client.get("/v1/zones").json()[0]["counts"]["queued"] == 1
    assert client.delete("/v1/suspensions/zone/default").json() == {"lifted": True}
    assert client.delete("/v1/suspensions/zone/default").status_code == 404
    assert client.get("/v1/standing").json()["rows"] == []


def test_the_configuration_has_no_secrets_and_a_tag(open_http: Callable[..., HttpDoor]) -> None:
    """304 as long as nothing has changed."""
    secret = "not-to-be-seen-16"
    door = open_http(return_path={"secret": secret}, users={"ann": "scrypt:" + secret})
    answer = door.client.get("/v1/configuration")
    assert answer.json()["settings"]["server"]["hostname"] == "mx.test"
    assert not any(one in answer.text for one in (secret, door.config.http.keys[0].hash, SHOP))
    again = door.client.get("/v1/configuration", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert door.client.get("/v1/configuration", headers={"if-none-match": '"x"'}).status_code == 200


def test_rules_say_what_a_reply_means(shared_door: HttpDoor) -> None:
    """The first that matches decides."""
    params = {"reply": "550 5.1.1 No such user", "stage": "rcpt"}
    rows = shared_door.client.get("/v1/rules/explain", params=params).json()
    listed = shared_door.client.get("/v1/rules", params={"class": rows[0]["class"]}).json()
    assert rows[0]["rule"] in {row["rule"] for row in listed}


@pytest.mark.parametrize("reply", ["550 5.1.1 No such user", "550 5.1.1 sender: no such user", "550 zxqv wvut"])
def test_rules_are_explained_as_by_the_command(
    shared_door: HttpDoor, tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: str
) -> None:
    """Of whom it speaks, whether it suppresses, what a model makes of it, who disagrees, who has no say."""
    rows = shared_door.client.get("/v1/rules/explain", params={"reply": reply}).json()
    (tmp_path / "none.toml").write_text("")
    assert command(["rules", "explain", reply, "--json", "--config", str(tmp_path / "none.toml")]) == 0
    assert rows == json.loads(capsys.readouterr().out)
    assert rows[0].keys() >= {"judged", "about", "suppresses", "opinion", "disagree"}


def test_what_is_found_by_filters(http_door: HttpDoor) -> None:
    """By any key, several values, a header field; a misspelt one is refused, and pages follow one another."""
    client = http_door.client
    ids = [client.post("/v1/inject", json=LATER | {"subject": f"no {one}", "tenant": f"t{one}"}).json()["id"]
           for one in range(3)]  # fmt: skip

    def found(**query: object) -> list[str]:
        return sorted(row["id"] for row in client.get("/v1/recipients", params=query).json()["rows"])

    assert found() == sorted(ids)
    assert found(tenant=["t0", "t2"]) == sorted([ids[0], ids[2]])
    assert found(subject="NO 1") == found(header="Subject: no 1") == [ids[1]]
    assert found(domain="nowhere.test") == []
    assert client.get("/v1/recipients", params={"tennant": "t0"}).status_code == 422
    page = client.get("/v1/recipients", params={"limit": 2}).json()
    rest = client.get("/v1/recipients", params={"limit": 2, "after": page["next"]}).json()
    assert [row["id"] for row in page["rows"] + rest["rows"]] == ids
    aged = client.get("/v1/recipients", params={"limit": 2, "after": page["next"], "order": "age"}).json()
    assert [row["id"] for row in aged["rows"]] == ids[2:]
    assert client.get("/v1/recipients", params={"order": "size"}).status_code == 422
    assert client.get("/v1/size", params={"tenant": "t1"}).json()["deferred"] == 1
    assert {row["name"] for row in client.get("/v1/sizes", params={"by": "tenant"}).json()["rows"]} == {
        "t0",
        "t1",
        "t2",
    }
    assert client.get("/v1/ages").json()["rows"][0]["name"] == "d.test"


def test_without_a_supervisor_nothing_is_reloaded(shared_door: HttpDoor) -> None:
    """A sentence says so."""
    answer = shared_door.client.post("/v1/configuration/reload", json={"check": True})
    assert (answer.status_code, "zonemta run" in answer.json()["detail"]) == (409, True)


def test_which_tls_a_domain_gets(open_http: Callable[..., HttpDoor]) -> None:
    """By smart hosts in their order, the tables of destinations, and DNS for what MX records decide."""
    zones = [
        {"name": "default", "hosts": ["127.0.0.1:2525", {"host": "127.0.0.2", "tls": "required"}, "mx"]},
        {"name": "direct", "tls": "none"}, {"name": "fetched", "delivery": "pull"},
    ]  # fmt: skip
    table = {"name": "partner", "domains": ["part.test"], "tls": "required", "tls_min": "1.3", "hosts": ["127.0.0.3"]}
    client = open_http(zones=zones, destinations=[table]).client

    def asked(domain: str, zone: str = "") -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        row = client.get("/v1/tls", params={"domain": domain, "zone": zone}).json()
        names = ("host", "port", "mx", "tls", "certificate")
        return row, [tuple(host[name] for name in names) for host in row["hosts"]]

    row, hosts = asked("x.test")
    assert hosts == [
        ("127.0.0.1", 2525, False, "opportunistic", "none"), ("127.0.0.2", 25, False, "required", "pkix"),
        ("", 25, True, None, None),
    ]  # fmt: skip
    assert (row["problem"], row["destinations"], row["hosts"][2]["problem"] != "") == ("", [], True)
    row, hosts = asked("Part.Test.")
    assert hosts == [("127.0.0.3", 25, False, "required", "pkix")]
    assert (row["domain"], row["destinations"], row["tls"], row["tls_min"]) == (
        "part.test",
        ["partner"],
        "required",
        "1.3",
    )
    assert asked("x.test", "direct")[0]["problem"].startswith("no route to x.test: ")
    assert "waits to be taken" in asked("x.test", "fetched")[0]["problem"]
    for query in ({"domain": "x.test", "zone": "no"}, {"domain": "*"}, {"domain": "a b"}, {"domain": "a@b.test"}):
        assert client.get("/v1/tls", params=query).status_code == 422, query


def test_long_lists_come_in_pages(http_door: HttpDoor) -> None:
    """Each row once, however many there are: flow queues, recipients, sizes."""
    client, domains = http_door.client, {f"d{number}.test" for number in range(310)}
    client.post("/v1/inject", json=MAIL | {"to": [f"c@{domain}" for domain in sorted(domains)]}).raise_for_status()

    def every(path: str, name: str, **query: object) -> list[str]:
        found, after = list[str](), None
        for _ in range(20):
            page = client.get(path, params={"limit": 100, **query} | ({} if after is None else {"after": after})).json()
            found += [row[name] for row in page["rows"]]
            if (after := page["next"]) is None:
                return found
        raise AssertionError(found)

    assert sorted(every("/v1/lanes", "site")) == sorted(domains)
    assert sorted(every("/v1/sizes", "name", by="domain")) == sorted(domains)
    assert sorted(every("/v1/recipients", "recipient")) == sorted(f"c@{domain}" for domain in domains)


def test_what_zonemta_answers_is_answered_here(http_door: HttpDoor) -> None:
    """Each request that the table of docs/API.md names instead of one of ZoneMTA's is made."""
    client = http_door.client
    client.post("/v1/inject", json=MAIL).raise_for_status()
    id = client.post("/v1/inject", json=LATER).json()["id"]
    places = {
        "{id}": id,
        "{name}": "d.test",
        "{address}": "x@y.test",
        "zone=…": "zone=default",
        "state=…": "state=queued",
    }
    bodies: dict[str, Any] = {
        "POST /v1/inject": {"json": MAIL},
        "POST /v1/tasks": {"json": {"verb": "flush", "where": {"id": id, "recipient": "c@d.test"}}},
        "POST /v1/suppressions": {"json": {"rows": [{"address": "x@y.test", "kind": "manual"}]}},
        "PUT /v1/suspensions/destination/{name}": {"json": {}},
    }
    table = (Path(__file__).parents[3] / "docs" / "API.md").read_text().partition("## From ZoneMTA's API")[2]
    asked = [found for line in table.splitlines() for found in REQUEST.findall(line.partition(" | ")[2])]
    assert len(asked) >= 20
    for method, path in asked:
        row = f"{method} {path}"
        at = path
        for name, value in places.items():
            at = at.replace(name, value)
        if path.startswith("/v1/events"):
            with client.stream(method, at) as stream:
                assert stream.status_code == 200, row
            continue
        answer = client.request(method, at, **bodies.get(row, {}))
        assert answer.status_code == 200, (row, answer.text)
    gone = client.post("/v1/tasks", json={"verb": "delete", "where": {"id": id, "recipient": "c@d.test"}})
    assert gone.status_code == 200


def test_mail_is_rerouted_and_back(open_http: Any) -> None:
    keys = [{"name": name, "hash": hashed(name), "role": name} for name in ("read", "operate")]
    door = open_http(http={"keys": keys})
    asked = {"destination": "There.Test", "to": "host relay.test:26", "seconds": 600, "cause": "as agreed"}
    assert door.client_with("read").post("/v1/reroutes", json=asked).status_code == 403
    hand = door.client_with("operate")
    row = hand.post("/v1/reroutes", json=asked).json()
    assert (row["destination"], row["to"]) == ("there.test", "host relay.test:26")
    assert row["cause"] == "by the key operate: as agreed"
    assert hand.get("/v1/reroutes").json() == [row]
    refused = hand.post("/v1/reroutes", json={"destination": "there.test", "to": "pool none"})
    assert (refused.status_code, "there is no pool 'none'" in refused.json()["detail"]) == (409, True)
    assert hand.post("/v1/reroutes", json={"to": "host a.test", "where": "x"}).status_code == 422
    assert hand.delete("/v1/reroutes", params={"destination": "there.test"}).json() == {"removed": True}
    assert hand.delete("/v1/reroutes", params={"destination": "there.test"}).status_code == 404


def test_what_waits_is_edited(open_http: Any) -> None:
    """By who sees all mail; a key of a tenant edits its header fields only."""
    keys = [
        {"name": "operate", "hash": hashed("operate"), "role": "operate"},
        {"name": "shop", "hash": hashed("shop"), "role": "operate", "tenants": ["shop"]},
    ]
    door = open_http(http={"keys": keys})
    door.client.post("/v1/inject", json=LATER).raise_for_status()
    change = {"sender": "new@b.test", "header": {"Subject": "other", "X-Old": None}, "tenant": "shop"}
    order = {"verb": "set", "where": {"all": True}, "set": change}
    row = door.client_with("operate").post("/v1/tasks", json=order).json()
    assert row["set"] == change
    assert row["words"].startswith("set return path new@b.test, Subject: other, no X-Old, tenant shop")
    hand = door.client_with("shop")
    refused = hand.post("/v1/tasks", json=order | {"set": {"tenant": "other"}})
    assert (refused.status_code, "cannot set tenant" in refused.json()["detail"]) == (403, True)
    assert hand.post("/v1/tasks", json=order | {"set": {"header": {"X-A": "b"}}}).status_code == 200
