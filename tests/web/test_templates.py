"""Templates as plain JSON: campaigns, messages with fields for each recipient, tests of a campaign to oneself."""

from __future__ import annotations

import base64
import email
import email.policy
from typing import Any

import httpx
import pytest

from zonemta_py.mail.addresses.link import UNKNOWN, decode
from zonemta_py.merge.compile import compile
from zonemta_py.merge.source import TemplateSource

TEMPLATE = {
    "from": "The Shop <news@src.test>",
    "subject": "Hello {{ name }}",
    "html": "<style>p { color: red }</style><p>Dear {{ name }}</p>",
}
PEOPLE = [
    {"to": {"address": "anna@example.org", "name": "Anna Ek"}, "fields": {"name": "Anna"}},
    {"to": "ben@example.net", "fields": {"name": "Bén"}},
]
PDF = base64.b64encode(b"%PDF- 17").decode()


def inject(door: Any, key: str = "", **content: Any) -> httpx.Response:
    body = {"template": TEMPLATE, "messages": PEOPLE, **content}
    return door.client.post("/v1/inject", json=body, headers={"idempotency-key": key} if key else {})


def letters(door: Any, count: int) -> dict[str, Any]:
    """Recipient → (delivery, message)."""
    found = {}
    for one in door.deliveries(count):
        message = email.message_from_bytes(one.body or door.body(one), policy=email.policy.default)
        found[one.recipients[0].address] = one, message
    return found


def wrong(answer: httpx.Response) -> list[tuple[str, str]]:
    assert answer.status_code == 422, answer.text
    return [(one["where"], one["what"]) for one in answer.json()["errors"]]


def test_a_campaign_is_created_from_plain_json(shared_door: Any) -> None:
    """Prepared here (CSS inlined, a text made), the same each time; other content under its name is a conflict."""
    inner = "<mj-section><mj-column><mj-text>Dear {{ name }}</mj-text></mj-column></mj-section>"
    mjml = f"<mjml><mj-body>{inner}</mj-body></mjml>"
    for name, template in (("html", TEMPLATE), ("mjml", TEMPLATE | {"html": None, "mjml": mjml})):
        made = {key: value for key, value in template.items() if value is not None}
        body = {"sender": "news@src.test", "template": made | {"attachments": [{"name": "a.pdf", "content": PDF}]}}
        for created in (True, False):
            answer = shared_door.client.put(f"/v1/campaigns/{name}", json=body)
            assert answer.json() == {"created": created}, answer.text
        packed = shared_door.do(lambda queue, name=name: queue.template(name))
        letter = compile(TemplateSource.unpack(packed)).render({"name": "Anna"}, "anna@example.org", name, "")
        message = email.message_from_bytes(letter, policy=email.policy.default)
        assert message["Subject"] == "Hello Anna"
        assert "Dear Anna" in message.get_body(("plain",)).get_content()
        assert "style=" in message.get_body(("html",)).get_content()
        assert [one.get_filename() for one in message.iter_attachments()] == ["a.pdf"]
    other = {"sender": "news@src.test", "template": TEMPLATE | {"subject": "Bye"}}
    assert shared_door.client.put("/v1/campaigns/html", json=other).status_code == 409


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ({"subject": "Hello {{ name"}, "template", "subject:1:"),
        ({"html": None}, "template", "there is neither text nor html nor mjml"),
        ({"mjml": "<mjml></mjml>"}, "template", "html is made from mjml"),
        ({"from": "nobody"}, "template", "is not an email address"),
        ({"subjct": "x"}, "template.subjct", "is not a key of this request"),
        ({"attachments": [{"name": "a", "content": "?"}]}, "template.attachments[0].content", "is not base64"),
        (
            {"attachments": [{"filename": "a", "content": ""}]},
            "template.attachments[0].filename",
            "it is called 'name'",
        ),
        ({"headers": {"Subject": "x"}}, "template.headers.Subject", "from a key of the request"),
        ({"headers": {"X-Deliver-After": "never"}}, "template", "X-Deliver-After"),
        ({"html": "<p>{% for a in range(10) %}{% for b in range(9) %}"}, "template", "html:1"),
    ],
)
def test_a_wrong_template_is_refused_with_its_place(
    shared_door: Any, change: dict[str, Any], where: str, what: str
) -> None:
    """For campaigns and messages alike, and nothing is stored."""
    template = {key: value for key, value in (TEMPLATE | change).items() if value is not None}
    for answer in (
        shared_door.client.put("/v1/campaigns/wrong", json={"sender": "news@src.test", "template": template}),
        inject(shared_door, "wrong", template=template),
    ):
        assert any(where in place and what in said for place, said in wrong(answer)), answer.text
    assert shared_door.client.get("/v1/campaigns/wrong").status_code == 404


def test_each_gets_a_message_of_its_own(open_http: Any) -> None:
    """With fields and files of its own; sent again with the same key, nothing is stored again."""
    door = open_http()
    own = [PEOPLE[0] | {"attachments": [{"name": "17.pdf", "type": "application/pdf", "content": PDF}]}, PEOPLE[1]]
    template = TEMPLATE | {"headers": {"X-Order": "{{ name }}"}}
    answer = inject(door, "k", template=template, messages=own, tenant="shop")
    assert answer.status_code == 200, answer.text
    rows = answer.json()["messages"]
    assert [(row["to"], row["accepted"], row["repeated"]) for row in rows] == [
        ("anna@example.org", 1, False),
        ("ben@example.net", 1, False),
    ]
    again = inject(door, "k", template=template, messages=own, tenant="shop").json()["messages"]
    assert again == [row | {"repeated": True} for row in rows]
    assert door.messages() == 2
    found = letters(door, 2)
    (one, anna), (_, ben) = found["anna@example.org"], found["ben@example.net"]
    assert (one.sender, one.tenant, one.campaign) == ("news@src.test", "shop", "")
    assert (anna["To"], anna["Subject"], ben["Subject"]) == ("Anna Ek <anna@example.org>", "Hello Anna", "Hello Bén")
    assert ben["To"] == "ben@example.net"
    assert (anna["X-Order"], anna["Message-ID"] != ben["Message-ID"]) == ("Anna", True)
    assert [(file.get_filename(), file.get_content()) for file in anna.iter_attachments()] == [("17.pdf", b"%PDF- 17")]
    assert list(ben.iter_attachments()) == []


def test_what_the_template_asks_of_this_server_is_done(open_http: Any) -> None:
    """As in any mail, and its field is in no message."""
    door = open_http()
    template = TEMPLATE | {"headers": {"X-Deliver-After": "3600"}}
    assert inject(door, template=template, messages=PEOPLE[:1]).status_code == 200
    row = door.do(lambda queue: queue.ask("list"))["rows"][0]
    assert row["state"] == "deferred"


def test_mistakes_name_the_message(shared_door: Any) -> None:
    """Before anything is stored."""
    before = shared_door.messages()
    assert wrong(inject(shared_door, "a", messages=[PEOPLE[0], {"to": "b@x.test"}])) == [
        ("messages[1].fields", "has no 'name', which the template asks for (subject:1:10); give it")
    ]
    assert inject(shared_door).status_code == 400  # several, and no key
    template = TEMPLATE | {"from": "{{ name }} <{{ name }}@src.test>"}
    assert wrong(inject(shared_door, "b", template=template)) == [
        ("sender", "is missing: the template's from is another for each recipient; give the return path")
    ]
    people = [{"to": "c@x.test", "fields": {"name": "no address"}}]
    ((place, said),) = wrong(inject(shared_door, "c", template=template, messages=people, sender="news@src.test"))
    assert (place, "is not an email address" in said) == ("messages[0]", True)
    many = [{"to": f"u{n}@x.test", "fields": {"name": "x"}} for n in range(1001)]
    assert "send 1,000 at most" in str(wrong(inject(shared_door, "d", messages=many)))
    assert shared_door.messages() == before


def test_a_key_speaks_only_for_its_senders(open_http: Any) -> None:
    """In the template's From, too."""
    door = open_http(http={"keys": [{"name": "shop", "hash": _hash(), "senders": ["other.test"]}]})
    with door.client_with("zmta_shop") as client:
        body = {"template": TEMPLATE, "messages": PEOPLE[:1], "sender": "a@other.test"}
        assert "this key" in str(wrong(client.post("/v1/inject", json=body)))


def _hash() -> str:
    from zonemta_py.web.keys import hashed

    return hashed("zmta_shop")


def test_a_campaign_is_tried_on_oneself(open_http: Any) -> None:
    """At once, though it is paused, with a mark in the subject; it is in none of its figures."""
    door = open_http()
    assert door.client.put("/v1/campaigns/spring", json={"sender": "news@src.test", "template": TEMPLATE}).is_success
    assert door.client.post("/v1/campaigns/spring/pause", json={}).is_success
    answer = door.client.post("/v1/campaigns/spring/test", json={"messages": PEOPLE[:1]})
    assert answer.status_code == 200, answer.text
    ((delivery, message),) = letters(door, 1).values()
    assert (message["Subject"], message["To"]) == ("[test] Hello Anna", "anna@example.org")
    assert (delivery.campaign, delivery.sender) == ("", "news@src.test")
    assert door.client.get("/v1/campaigns/spring").json()["accepted"] == 0
    lacking = door.client.post("/v1/campaigns/spring/test", json={"messages": [{"to": "me@x.test"}]})
    assert "has no 'name'" in str(wrong(lacking))
    marked = door.client.post("/v1/campaigns/spring/test", json={"messages": PEOPLE[:1], "subject": "{{ 1 }} "})
    assert marked.is_success
    ((_, message),) = letters(door, 1).values()
    assert message["Subject"] == "{{ 1 }} Hello Anna"
    assert door.client.post("/v1/campaigns/none/test", json={"messages": PEOPLE[:1]}).status_code == 404


def test_links_in_messages_of_their_own(open_http: Any) -> None:
    """Each is its recipient's; where there is no [links], the field is missing."""
    secret = "0123456789abcdef"
    links = {"enabled": True, "url": "https://mail.example.com", "secrets": [secret], "port": 8599}
    template = TEMPLATE | {"html": "<a href='{{ preferences_url }}'>{{ name }}</a>"}
    template |= {"headers": {"List-Id": "News <weekly.shop.example>", "X-Unsubscribe": "list"}}
    door = open_http(links=links)
    assert inject(door, "1", template=template, tenant="acme").status_code == 200
    for address, (_, message) in letters(door, 2).items():
        token = message.get_body(("html",)).get_content().partition("/p/")[2].partition("'")[0]
        link = decode(token, [secret])
        assert (link.purpose, link.id, link.recipient, link.tenant) == ("preferences", UNKNOWN, address, "acme")
        assert link.entry_scope == "list:acme/weekly.shop.example"
    assert wrong(inject(open_http(), "1", template=template))[0][0] == "messages[0].fields"


def test_a_template_is_chosen_between_variants(open_http: Any) -> None:
    """Batches need the fields of all of them; what waits goes with the chosen one."""
    door = open_http()
    lists = [{"headers": {"List-Id": f"<{name}.shop.example>"}} for name in ("a", "b")]
    other = TEMPLATE | {"subject": "Dear {{ title }} {{ name }}"} | lists[1]
    for name, template in (("spring.a", TEMPLATE), ("spring.b", other)):
        assert door.client.put(
            f"/v1/campaigns/{name}", json={"sender": "news@src.test", "template": template}
        ).is_success
    choice = {"of": ["spring.a", "spring.b"], "after_h": 0}
    made = {"sender": "news@src.test", "template": TEMPLATE | lists[0], "choice": choice}
    assert door.client.put("/v1/campaigns/spring", json=made).json() == {"created": True}
    assert door.client.put("/v1/campaigns/late", json=made | {"choice": {"of": ["spring", "none"]}}).status_code == 404
    batch = {"campaign": "spring", "columns": ["name"], "recipients": [["anna@example.org", "Anna"]]}
    lacking = door.client.post("/v1/inject", json=batch, headers={"idempotency-key": "1"})
    assert "title" in str(wrong(lacking))
    batch |= {"columns": ["name", "title"], "recipients": [["anna@example.org", "Anna", "Dr"]]}
    assert door.client.post("/v1/inject", json=batch, headers={"idempotency-key": "2"}).is_success
    assert door.client.post("/v1/campaigns/spring/resume", json={}).status_code == 409
    assert door.client.post("/v1/campaigns/spring/decide", json={"winner": "other"}).status_code == 409
    answer = door.client.post("/v1/campaigns/spring/decide", json={"winner": "spring.b"})
    assert answer.status_code == 200, answer.text
    (delivery,) = door.deliveries(1)
    assert (delivery.campaign, delivery.list_name) == ("spring", "")
    packed = door.do(lambda queue: queue.template("spring"))
    letter = compile(TemplateSource.unpack(packed)).render({"name": "Anna", "title": "Dr"}, "anna@example.org", "x", "")
    assert b"Subject: Dear Dr Anna\r\n" in letter
    assert door.client.get("/v1/campaigns/spring").json()["variants"]["winner"] == "spring.b"
