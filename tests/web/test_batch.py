"""Batches of a campaign, and the campaign's own requests."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.cli.campaign.orders import text as correct
from zonemta_py.cli.terminal.errors import CommandError
from zonemta_py.merge.source import File, TemplateSource, Text
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.nodes.nodes import AnnouncedOtherwise, Announcement, bind, keep, stored
from zonemta_py.queue.api import template_name
from zonemta_py.web.documents import batch
from zonemta_py.web.documents.problem import RequestProblem

ROWS = [["anna@example.org", "Anna"], ["Ben@EXAMPLE.net", "Bén"]]


def put(door: Any, template: bytes, name: str = "spring", **more: Any) -> httpx.Response:
    body = {"sender": "news@src.test", "template": base64.b64encode(template).decode(), **more}
    return door.client.put(f"/v1/campaigns/{name}", json=body)


def send(door: Any, rows: Any, key: str = "1", campaign: str = "spring", **more: Any) -> httpx.Response:
    body = {"campaign": campaign, "columns": ["name"], "recipients": rows, **more}
    return door.client.post("/v1/inject", json=body, headers={"idempotency-key": key})


def test_a_batch_is_one_delivery_for_each_with_its_values(open_http: Any, template: bytes) -> None:
    """Each recipient gets its own, from the campaign's sender; sent again, nothing is stored again."""
    door = open_http()
    assert put(door, template, tenant="shop").json() == {"created": True}
    assert put(door, template, tenant="shop").json() == {"created": False}
    answer = send(door, ROWS)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["accepted"], answer.json()["repeated"]) == (2, False)
    assert send(door, ROWS).json() == answer.json() | {"repeated": True}
    deliveries = sorted(door.deliveries(2), key=lambda one: one.recipients[0].address)
    assert [one.recipients[0].address for one in deliveries] == ["Ben@example.net", "anna@example.org"]
    assert [one.values for one in deliveries] == [[["Bén"]], [["Anna"]]]
    assert {(one.sender, one.campaign, one.tenant, *one.columns) for one in deliveries} == {
        ("news@src.test", "spring", "shop", "name")
    }
    assert door.messages() == 1
    row = door.client.get("/v1/campaigns/spring").json()
    assert (row["accepted"], row["waiting"], row["state"]) == (2, 2, "running")
    assert [one["name"] for one in door.client.get("/v1/campaigns").json()] == ["spring"]


def test_a_batch_without_a_field_of_the_template_is_refused(open_http: Any, template: bytes) -> None:
    """With the name that is missing, before anybody waits for a message that cannot be made."""
    door = open_http()
    put(door, template)
    answer = send(door, ROWS, columns=["other"])
    assert answer.status_code == 422
    assert "name" in answer.json()["errors"][0]["what"]
    assert door.client.get("/v1/campaigns/spring").json()["accepted"] == 0
    assert send(door, ROWS).status_code == 200


def test_a_campaign_with_hours(open_http: Any, template: bytes) -> None:
    """Put by its fields, shown with it; each recipient waits for their own time; what makes no sense says what does."""
    door = open_http()
    hours = {"at": "2035-01-01 09:00", "time_zone": "DE", "time_zone_column": "zone"}
    for wrong, said in (
        ({"window": "9-17"}, "there is no window '9-17'; write hours such as 09:00-17:00"),
        ({"until": "18:00"}, "names no day"),
    ):
        answer = put(door, template, **wrong)
        assert (answer.status_code, said in answer.json()["detail"]) == (422, True)
    answer = put(door, template, **hours)
    assert (answer.status_code, "held for 30 days at most" in answer.json()["detail"]) == (409, True)
    hours["at"] = "00:00"
    assert put(door, template, **hours).json() == {"created": True}
    answer = send(door, ROWS)
    assert "goes by the column 'zone', which this batch lacks" in answer.text
    assert send(door, [[*ROWS[0], "US"]], columns=["name", "zone"]).json()["accepted"] == 1
    row = door.client.get("/v1/campaigns/spring").json()
    assert row["hours"] == hours | {"window": "", "until": "", "at_column": ""}
    assert row["waiting"] == 1
    scheduled = door.client.get("/v1/campaigns/spring", params={"hours": True}).json()["scheduled"]
    assert [(one["time_zone"], one["waiting"]) for one in scheduled["zones"]] == [("America/New_York", 1)]
    changed = door.client.patch("/v1/campaigns/spring", json={"at": "", "window": "mon-fri 09:00-17:00"})
    assert (changed.status_code, changed.json()["hours"]["window"]) == (200, "mon-fri 09:00-17:00")
    assert door.client.patch("/v1/campaigns/spring", json={"until": "2020-01-01"}).status_code == 409
    assert door.client.patch("/v1/campaigns/summer", json={"at": ""}).status_code == 404


def test_orders_to_a_campaign(open_http: Any, template: bytes) -> None:
    """They are obeyed before they are answered; one that makes no sense any more is a conflict."""
    door = open_http()
    put(door, template)

    def order(action: str, **said: str) -> httpx.Response:
        return door.client.post(f"/v1/campaigns/spring/{action}", json=said)

    assert order("pause", cause="wait").json() | {"cause": "wait"} == order("pause", cause="wait").json()
    assert order("pause").json()["state"] == "paused"
    assert order("resume", cause="on").json()["state"] == "running"
    assert order("complete").json()["state"] in ("complete", "ended")
    assert order("cancel").status_code in (200, 409)
    assert order("resume").status_code == 409
    assert order("explode").status_code == 422
    assert door.client.post("/v1/campaigns/none/pause", json={}).status_code == 404
    assert send(door, ROWS).status_code == 409


def test_a_suspended_campaigns_text_is_corrected(open_http: Any, template: bytes, tmp_path: Path) -> None:
    """By the command, which also corrects the plan; what is refused changes neither the plan nor the campaign."""
    door, plan = open_http(), tmp_path / "spring.plan"
    access = NodeAccess((str(door.client.base_url),), door.token)
    first = Announcement("spring", "news@src.test", template)
    (tmp_path / "key").write_text(door.token)
    plan.mkdir()
    (plan / "report.json").write_text('{"fields": ["name"]}')

    def written(text: str) -> Path:
        file = tmp_path / "t.toml"
        file.write_text(f'subject = "Hi"\nfrom = "news@src.test"\ntext = """\n{text}\n"""\n')
        return file

    def corrected(text: str) -> None:
        correct("spring", written(text), plans=tmp_path, nodes=access.nodes[0], key_file=tmp_path / "key", json=True)

    for announced in (replace(first, template=b"never sent"), first):  # none of it is anywhere yet
        keep(announced, plan, access)
    bind(plan, access, "spring")
    put(door, template)
    send(door, ROWS)
    other = replace(first, template=b"another", planned=5)
    with pytest.raises(
        AnnouncedOtherwise, match="sent with another template, planned, and nothing has changed; `zonem"
    ):
        keep(other, plan, access)
    with pytest.raises(AnnouncedOtherwise, match="`zonemta campaign text spring -t TEMPLATE` correct it"):
        keep(replace(first, template=b"another"), plan, None)
    with pytest.raises(CommandError, match=r"spring is running, not suspended; `zonemta campaign suspend spring`"):
        corrected("Dear {{ name }}")
    door.client.post("/v1/campaigns/spring/suspend", json={})
    with pytest.raises(CommandError, match="city"):
        corrected("{{ city }}")
    answer = door.client.post(
        "/v1/campaigns/spring/text", json={"template": {"from": "n@src.test", "subject": "x", "text": "{{ city }}"}}
    )
    assert answer.status_code == 422
    assert "asks for 'city', which the present one does not" in answer.json()["errors"][0]["what"]
    assert stored(plan) == first
    assert door.do(lambda queue: queue.ask("campaign-templates", name="spring")) == [
        ["spring", template_name(template)]
    ]
    corrected("Dear {{ name }}")
    after = stored(plan)
    assert after == replace(first, template=after.template)
    assert door.do(lambda queue: queue.ask("campaign-templates", name="spring")) == [
        ["spring", template_name(after.template)]
    ]
    assert put(door, template).json() == put(door, after.template).json() == {"created": False}
    assert send(door, [["carl@example.org", "Carl"]], "2").json()["accepted"] == 1


def test_what_a_campaign_may_not_be(open_http: Any, template: bytes) -> None:
    """Another one of the same name, or one whose template could not be filled."""
    door = open_http()
    put(door, template)
    assert put(door, template, planned=7).status_code == 409
    assert put(door, template, zone="nowhere").json()["errors"][0]["where"] == "zone"
    for wrong in (b"", b"\x93\x01\x02\x03", template[:-1], template.replace(b"{{ name }}", b"{{ name {}")):
        answer = put(door, wrong, name="other")
        assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, "template"), answer.text
    assert put(door, template, name="other", sender="x\r\ny").json()["errors"][0]["where"] == "sender"
    assert put(door, template, name="o%0Dther").status_code == 422
    assert put(door, template, name="other", bounds={"bounced": 2}).json()["errors"][0]["where"] == "bounds.bounced"


def test_a_batch_needs_a_key_that_names_it(shared_door: Any) -> None:
    """Or it could not be sent again."""
    body = {"campaign": "spring", "columns": [], "recipients": [["a@b.test"]]}
    answer = shared_door.client.post("/v1/inject", json=body)
    assert (answer.status_code, "Idempotency-Key" in answer.json()["detail"]) == (400, True)
    assert send(shared_door, ROWS, campaign="none").status_code == 409


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ([["a@b.test", "x\r\nBcc: y"]], "recipients[0][1]"),
        ([["a@b.test", "x\0"]], "recipients[0][1]"),
        ([["a@b.test", "x\u2028y"]], "recipients[0][1]"),
        ([["a@b.test", 7]], "recipients[0][1]"),
        ([["a@b.test", None]], "recipients[0][1]"),
        ([["a@b.test\r\nX: y", ""]], "recipients[0][0]"),
        ([["a@b.test> NOTIFY=NEVER <c@d.test", ""]], "recipients[0][0]"),
        ([["Anna <a@b.test>", ""]], "recipients[0][0]"),
        ([["postmaster", ""]], "recipients[0][0]"),
        ([["", ""]], "recipients[0][0]"),
        ([["a@b.test", ""], ["c@d.test", ""], ["A@B.test", ""]], "recipients[2][0]"),
        ([["a@b.test", "", ""]], "recipients[0]"),
        ([["a@b.test"]], "recipients[0]"),
        ([["a@b.test", "x" * 100_000]], "recipients[0][1]"),
        (["ab"], "recipients[0]"),
        ([[]], "recipients[0]"),
        ([{"a@b.test": 1}], "recipients[0]"),
        ([], "recipients"),
        ("ab", "recipients"),
        (None, "recipients"),
        ([["a@b.test", ""]] * 1001, "recipients"),
    ],
)
def test_a_row_that_is_wrong_is_named(shared_door: Any, rows: Any, where: str) -> None:
    """Nothing of the batch is taken, and the answer says which row, which value, and why."""
    answer = send(shared_door, rows)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["where"] == where


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"columns": ["a b"]}, "columns[0]"),
        ({"columns": ["a", "a"]}, "columns[1]"),
        ({"columns": "ab"}, "columns"),
        ({"campaign": "a\nb"}, "campaign"),
        ({"campaign": ""}, "campaign"),
        ({"zone": "nowhere"}, "zone"),
        ({"source": "127.0.0.1\r\n"}, "source"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_head_that_is_wrong_is_named(shared_door: Any, more: dict[str, Any], where: str) -> None:
    """As are the rows."""
    answer = shared_door.client.post(
        "/v1/inject",
        json={"campaign": "c", "columns": ["a"], "recipients": [["a@b.test", "x"]]} | more,
        headers={"idempotency-key": "1"},
    )
    assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, where), answer.text


_CELLS = st.one_of(st.sampled_from(["a@b.test", "A@b.test", "é@x.test", "x", ""]), st.text(max_size=9), st.none())
_ROWS = st.lists(st.one_of(st.lists(_CELLS, max_size=3), st.none(), st.integers(), st.text(max_size=3)), max_size=5)


@given(_ROWS, st.sampled_from([[], ["a"], ["a", "b"]]))
def test_what_is_read_quickly_is_what_is_read_slowly(rows: Any, columns: list[str]) -> None:
    """A batch is refused if, and only if, one of its rows can be named; what is taken can harm no line or key."""
    content = {"campaign": "c", "columns": columns, "recipients": rows}
    try:
        envelope = batch.read(json.loads(json.dumps(content)), 1000)
    except RequestProblem as problem:
        assert (problem.status, bool(problem.errors)) == (422, True)  # noqa: PT017 (either end is right)
        return
    assert [one.values for one in envelope.recipients] == [row[1:] for row in rows]
    assert not list(batch._faults(rows, len(columns) + 1))
    for one in envelope.recipients:
        assert "@" in one.address
        assert not any(character < " " for character in one.address + "".join(one.values or ()))


def test_the_same_content_has_the_same_digest() -> None:
    """However the JSON was written; any change of it gives another."""

    def digest(**more: Any) -> bytes:
        return batch.read({"campaign": "c", "columns": ["a"], "recipients": [["a@b.test", "x"]], **more}, 10).digest

    assert digest() == digest(zone="", source="")
    others = [digest(campaign="d"), digest(columns=["b"]), digest(recipients=[["a@b.test", "y"]]), digest(zone="z")]
    assert len({digest(), *others}) == 5


def packed(**given: Any) -> bytes:
    fields = {"text": Text("Dear {{ name }}\n"), "prepared": True} | given
    return TemplateSource("t", Text("Hello"), Text("news@src.test"), **fields).pack()


def test_what_a_templates_header_says_is_done(open_http: Any) -> None:
    """Held until then, in the hours it names; the fields are in no message."""
    door = open_http(windows=[{"name": "office", "hours": "00:00-24:00"}])
    headers = (("X-Deliver-After", Text("3600")), ("X-Window", Text("office")), ("X-Time-Zone", Text("Asia/Tokyo")))
    assert put(door, packed(headers=headers)).status_code == 200
    assert send(door, ROWS).status_code == 200
    sizes = door.do(lambda queue: queue.ask("size"))["total"]
    assert (sizes["deferred"], sizes["queued"]) == (2, 0)
    for value, said in (("nowhere", "not a window of this server"), ("{{ name }}", "the same for all recipients")):
        answer = put(door, packed(headers=(("X-Window", Text(value)),)), "other")
        assert answer.status_code == 422
        assert said in answer.json()["detail"]


def test_a_campaign_is_of_the_list_that_its_template_names(open_http: Any) -> None:
    """Who has left it is left out of this issue, and taken out of the last one, which waits; another tenant's list of
    that name, and another list, still come. Which it is goes with each delivery, for its link, and chooses its zone."""
    lists = {"name": "lists", "headers": {"List-Id": "*<products.shop.example>"}}
    kinds = {"name": "kinds", "headers": {"X-Kind": "sale*"}}
    door = open_http(zones=[{"name": "default", "default": True}, lists, kinds])
    weekly, products = ((("List-Id", Text(f"News <{name}.shop.example>")),) for name in ("Weekly", "products"))
    for name, tenant, headers in (
        ("weekly-7", "acme", weekly), ("weekly-8", "acme", weekly), ("products-3", "acme", products),
        ("weekly-b", "beta", (*weekly, ("X-Kind", Text("Sale of May")))),
    ):  # fmt: skip
        assert put(door, packed(headers=headers), name, tenant=tenant).status_code == 200
    assert send(door, ROWS[:1], campaign="weekly-7").json()["accepted"] == 1
    left = {"address": "anna@example.org", "kind": "unsubscribe", "scope": "list:acme/weekly.shop.example"}
    assert door.client.post("/v1/suppressions", json={"rows": [left]}).json()["added"] == 1
    for name, suppressed in (("weekly-8", 1), ("products-3", 0), ("weekly-b", 0)):
        assert send(door, ROWS, campaign=name, key=name).json()["suppressed"] == suppressed, name
    sizes = door.do(lambda queue: queue.ask("size"))["zones"]  # any field of a template counts
    assert [sizes[zone]["queued"] for zone in ("default", "lists", "kinds")] == [2, 2, 2]
    named = {one.campaign: one.list_name for one in door.deliveries(2)}
    assert named.items() <= {
        "weekly-8": "weekly.shop.example", "products-3": "products.shop.example", "weekly-b": "weekly.shop.example",
    }.items()  # fmt: skip
    waiting = {row["name"]: row["waiting"] for row in door.client.get("/v1/campaigns").json()}
    assert waiting == {"weekly-7": 0, "weekly-8": 1, "products-3": 2, "weekly-b": 2}


@pytest.mark.parametrize("list_id", ["", "<{{ name }}.shop.example>"])
def test_a_list_that_nobody_could_leave(open_http: Any, list_id: str) -> None:
    """A template that asks for it has to name one that is the same for all; without that wish it may do as it likes,
    and is of no list that is known."""
    door = open_http()
    headers = (("List-Id", Text(list_id)),) if list_id else ()
    answer = put(door, packed(headers=(*headers, ("X-Unsubscribe", Text("list")))))
    assert answer.status_code == 422
    assert "X-Unsubscribe: list needs a List-Id that is the same for all recipients; add it" in answer.json()["detail"]
    assert put(door, packed(headers=headers)).status_code == 200
    assert send(door, ROWS[:1]).json()["accepted"] == 1
    (delivery,) = door.deliveries(1)
    assert delivery.list_name == ""


@pytest.mark.parametrize(
    "given",
    [
        {"text": Text("{{ name }}" * 3_400)},
        {"html": Text("(cid:" * 20_000), "text": Text("{% set a = [" + "1," * 200_000 + "] %}")},
        {"attachments": (File("a", "text/plain\n.\nQUIT", b""),)},
        {"text": Text("x" * 1_048_577)},
    ],
)
def test_a_dear_template_stops_nobody(shared_door: Any, given: dict[str, Any]) -> None:
    """It is checked in another process, and refused; meanwhile other requests are answered."""
    with shared_door.others_are_served():  # what is loaded with the first request is no matter of this one
        assert put(shared_door, packed(text=Text("{{")), "cheap").status_code == 422
    with shared_door.rounds() as rounds, shared_door.others_are_served():
        answer = put(shared_door, packed(**given), "dear")
    assert answer.status_code == 422, answer.text
    assert rounds.longest < 50_000


def test_links_need_a_listener_for_them(open_http: Any) -> None:
    """A template may print them where [links] is enabled, or the list has a column of that name; else it is refused
    before anybody waits."""
    source = TemplateSource(
        "t", Text("x"), Text("News <n@src.test>"), text=Text("{{ unsubscribe_url }}"), prepared=True
    )
    links = {"enabled": True, "url": "https://mail.example.com", "secrets": ["0123456789abcdef"], "port": 8599}
    for door, columns, status in (
        (open_http(), ["name"], 422), (open_http(), ["unsubscribe_url"], 200), (open_http(links=links), ["name"], 200),
    ):  # fmt: skip
        put(door, source.pack())
        answer = send(door, ROWS, columns=columns)
        assert (answer.status_code, "enable [links]" in answer.text) == (status, status == 422)
