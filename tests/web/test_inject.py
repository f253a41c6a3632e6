"""Handing in messages: what is stored, and what the client hears."""

from __future__ import annotations

import base64
import email.policy
import json
import re
import textwrap
from email import message_from_bytes
from pathlib import Path
from typing import Any

import httpx
import pytest

from zonemta_py.config import Plugins
from zonemta_py.plugin.host import Host

MAIL = {"content-type": "message/rfc822"}
MESSAGE = b"From: a@b.test\r\nDate: x\r\nMessage-ID: <1@b.test>\r\nSubject: x\r\n\r\nhi\r\n"


def post(client: httpx.Client, body: bytes = MESSAGE, key: str = "", **query: Any) -> httpx.Response:
    headers = MAIL | ({"idempotency-key": key} if key else {})
    return client.post(
        "/v1/inject", params={"sender": "a@b.test", "to": "c@d.test"} | query, content=body, headers=headers
    )


def test_a_message_is_stored_as_it_is_behind_its_trace(open_http: Any) -> None:
    """What came comes out byte for byte; the Received field says how it came; 200 means it is in the queue."""
    door = open_http()
    answer = post(door.client, to=["c@d.test", "e@d.test", "c@D.test"], tenant="shop", priority="3")
    assert answer.status_code == 200
    (delivery,) = door.deliveries(1)
    assert answer.json() == {"id": delivery.id, "accepted": 2, "suppressed": 0, "repeated": False}
    trace, rest = delivery.body[: -len(MESSAGE)], delivery.body[-len(MESSAGE) :]
    assert rest == MESSAGE
    assert re.match(rb"Received: from \[127\.0\.0\.1\] \(\[127\.0\.0\.1\]\)\r\n by mx\.test with HTTP id \w+;", trace)
    assert delivery.sender == "a@b.test"
    assert [one.address for one in delivery.recipients] == ["c@d.test", "e@d.test"]
    assert (delivery.tenant, delivery.priority) == ("shop", 3)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (b"Subject: x\n\nhi", b"Subject: x\r\n\r\nhi\r\n"),
        (b"Subject: x\n\n.\n..dots\r\n", b"Subject: x\r\n\r\n.\r\n..dots\r\n"),
        (b"no header at all\r\n", b"\r\nno header at all\r\n"),
    ],
)
def test_lines_end_in_crlf(http_door: Any, given: bytes, stored: bytes) -> None:
    """Whatever they ended in; dots are nothing special here; Date and Message-ID are added."""
    assert post(http_door.client, given).status_code == 200
    (delivery,) = http_door.deliveries(1)
    assert delivery.body.endswith(stored[stored.find(b"\r\n\r\n") :] if b"Subject" in stored else stored)
    assert b"\r\nDate: " in delivery.body
    assert b"\r\nMessage-ID: <" in delivery.body


def test_a_large_message_travels_in_chunks(http_door: Any) -> None:
    """It is never whole in memory here, and whole in the queue."""
    body = MESSAGE + b"0123456789abcdef\r\n" * 20_000
    assert post(http_door.client, body, key="large").json()["accepted"] == 1
    assert post(http_door.client, body, key="large").json()["repeated"] is True
    (delivery,) = http_door.deliveries(1)
    assert delivery.chunks > 4
    assert http_door.body(delivery).endswith(body)
    assert http_door.messages() == 1


def test_fields_that_are_said_to_us_are_obeyed_and_taken_out(http_door: Any) -> None:
    """As by SMTP from a listener that trusts them."""
    assert post(http_door.client, b"X-Campaign: spring\r\nX-Tenant: shop\r\n" + MESSAGE).status_code == 200
    (delivery,) = http_door.deliveries(1)
    assert (delivery.campaign, delivery.tenant) == ("spring", "shop")
    assert b"X-Campaign" not in delivery.body


def test_a_message_is_made_of_its_parts(http_door: Any) -> None:
    """Names, texts and files come out as they went in, whatever script they are in."""
    request = {
        "sender": "bounce@b.test",
        "from": {"address": "a@b.test", "name": "Ä. Müller, GmbH"},
        "to": ["c@d.test", {"address": "e@münchen.test", "name": "Èva"}],
        "cc": ["f@d.test"],
        "bcc": ["g@d.test"],
        "reply_to": "r@b.test",
        "subject": "Grüße, " + "sehr lang " * 20,
        "text": "Grüße\n.\nEnde\n",
        "html": '<p>Grüße <img src="cid:logo"></p>',
        "headers": {"X-Order": "17", "List-ID": "<x.b.test>", "X-Unsubscribe": "no"},
        "attachments": [
            {"name": "Größe.txt", "type": "text/plain", "content": base64.b64encode(b"\0\1\2" * 100).decode()},
            {"name": "logo.png", "type": "image/png", "content": "aGk=", "content_id": "logo"},
        ],
        "campaign": "spring",
        "tenant": "shop",
        "priority": -2.0,
    }
    answer = http_door.client.post("/v1/inject", json=request)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 4), answer.text
    delivery, other = http_door.deliveries(2)
    assert sorted(one.address for one in (*delivery.recipients, *other.recipients)) == [
        "c@d.test", "e@xn--mnchen-3ya.test", "f@d.test", "g@d.test",
    ]  # fmt: skip
    assert delivery.sender == "bounce@b.test"
    assert (delivery.campaign, delivery.tenant, delivery.priority) == ("spring", "shop", -2)
    stored = delivery.body
    made: Any = message_from_bytes(stored, policy=email.policy.default)
    assert str(made["from"].addresses[0]) == '"Ä. Müller, GmbH" <a@b.test>'
    assert [one.addr_spec for one in made["to"].addresses] == ["c@d.test", "e@xn--mnchen-3ya.test"]
    assert (made["cc"], made["bcc"], made["reply-to"]) == ("f@d.test", None, "r@b.test")
    assert made["subject"] == request["subject"].strip()
    assert (made["x-order"], made["list-id"], made["x-unsubscribe"]) == ("17", "<x.b.test>", None)
    assert made.get_body(("plain",)).get_content().replace("\r\n", "\n") == request["text"]
    assert made.get_body(("html",)).get_content().strip() == request["html"]
    (attached,) = made.iter_attachments()
    assert (attached.get_filename(), attached.get_payload(decode=True)) == ("Größe.txt", b"\0\1\2" * 100)
    assert stored.isascii()
    assert all(len(line) <= 998 for line in stored.split(b"\r\n"))


def test_a_raw_message_in_json(http_door: Any) -> None:
    """It goes as it is."""
    request = {"sender": "", "to": ["c@d.test"], "raw": "Subject: ü\n\nhi\n"}
    assert http_door.client.post("/v1/inject", json=request).status_code == 200
    (delivery,) = http_door.deliveries(1)
    assert (delivery.sender, delivery.eightbit) == ("", True)
    assert "Subject: ü\r\n".encode() in delivery.body


def test_a_request_that_is_sent_again_is_answered_again(http_door: Any) -> None:
    """The same Idempotency-Key and content: the first answer, nothing new; other content: refused."""
    first = post(http_door.client, key="order-1").json()
    again = post(http_door.client, key='"order-1"').json()
    assert again == first | {"repeated": True}
    assert post(http_door.client, key="order-1", to="x@d.test").status_code == 409
    other = {"from": "a@b.test", "to": ["c@d.test"], "text": "x"}
    assert http_door.client.post("/v1/inject", json=other, headers={"idempotency-key": "order-1"}).status_code == 409
    headers = {"idempotency-key": "k2", "content-type": "application/json"}
    texts = (json.dumps(other), json.dumps(dict(reversed(other.items())), indent=1))
    same = [http_door.client.post("/v1/inject", content=text, headers=headers) for text in texts]
    assert [one.json()["repeated"] for one in same] == [False, True]
    assert len(http_door.deliveries(2)) == 2
    assert http_door.messages() == 2


@pytest.fixture
def plugged(open_http: Any, tmp_path: Path) -> Any:
    """plugged(code) opens a listener with one plugin made of `code`."""

    def start(code: str) -> Any:
        path = tmp_path / "steer.py"
        path.write_text("from zonemta_py.plugin.verdicts import Defer, Drop, Reject\n" + textwrap.dedent(code))
        return open_http(host=Host.load(Plugins(enabled=[str(path)])))

    return start


def test_plugins_see_what_comes_by_http(plugged: Any) -> None:
    """api_mail first, then the same hooks as by SMTP; what they change is what is queued."""
    door = plugged("""
        async def api_mail(envelope, session):
            envelope.tenant = f"{session.user}.{session.protocol}.{session.listener}"
        async def message_headers(envelope, headers):
            headers.append(b"X-Seen: by me")
        async def message_queue(envelope, info):
            envelope.campaign = f"size{info.size > 50}"
    """)
    assert post(door.client, MESSAGE + b"x" * 200_000).status_code == 200
    (delivery,) = door.deliveries(1)
    assert (delivery.tenant, delivery.campaign) == ("local.HTTP.http", "sizeTrue")
    assert b"X-Seen: by me\r\n" in door.body(delivery)


@pytest.mark.parametrize(
    ("hook", "verdict", "status"),
    [
        ("api_mail(envelope, session)", 'Reject(550, "not you")', 422),
        ("api_mail(envelope, session)", 'Defer(7, "not now")', 503),
        ("message_headers(envelope, headers)", 'Reject(554, "not this")', 422),
        ("message_queue(envelope, info)", 'Drop("spam")', 200),
        ("message_queue(envelope, info)", "ValueError(1)", 503),
    ],
)
def test_a_plugin_may_refuse(plugged: Any, hook: str, verdict: str, status: int) -> None:
    """Never with its own traceback; if a plugin fails, the client may try again."""
    door = plugged(f"""
        async def {hook}:
            raise {verdict}
    """)
    answer = post(door.client)
    assert answer.status_code == status, answer.text
    assert door.messages() == 0
    if status == 503:
        assert int(answer.headers["retry-after"]) >= 1
    if status == 200:
        assert answer.json() == {"id": "", "accepted": 0, "suppressed": 0, "repeated": False}


def test_plugins_hear_what_became_of_it(plugged: Any, tmp_path: Path) -> None:
    """The id that the client gets; and what was refused, with who did it."""
    said = tmp_path / "said"
    door = plugged(f"""
        from pathlib import Path
        def _say(text):
            with Path({str(said)!r}).open("a") as file:
                file.write(text + "\\n")
        async def message_queue(envelope, info):
            if envelope.sender == "bad@b.test":
                raise Reject(554, "no")
        async def message_stored(envelope, session, stored):
            _say(f"{{stored.id}} {{stored.accepted}} {{stored.repeated}} {{session.protocol}}")
        async def message_refused(envelope, session, refusal):
            _say(f"{{refusal.stage}} {{refusal.reply.code}} {{refusal.plugin}} {{refusal.hook}}")
    """)
    ids = [post(door.client, key="k1").json()["id"] for _ in range(2)]
    mail = {"from": "bad@b.test", "to": ["c@d.test"], "text": "x"}
    assert door.client.post("/v1/inject", json=mail).status_code == 422
    assert said.read_text().splitlines() == [
        f"{ids[0]} 1 False HTTP", f"{ids[0]} 1 True HTTP", "message 554 steer message_queue"
    ]  # fmt: skip
