"""What came back, told over HTTP: by programs, by reports that they pass on, by webhooks; and the list of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.mail.reports import makers as reports
from zonemta_py.mail.addresses import verp
from zonemta_py.web.keys import hashed

SECRET = "a secret of twenty or so"
PATH = {"verp": "ret.src.test", "secret": SECRET}
HOOK = "zmta_hook"
KEYS = {"keys": [{"name": "hook", "hash": hashed(HOOK), "rights": ["feedback"]},
                 {"name": "shop", "hash": hashed("zmta_shop")}]}  # fmt: skip
MAIL = {"from": "a@src.test", "to": ["ann@x.test"], "subject": "x", "text": "y", "campaign": "spring"}
BOUNCE = b"""From: mailer-daemon@x.test
To: %s
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

no
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.x.test

Final-Recipient: rfc822; ann@x.test
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 no such user

--b--
"""


def test_rows_are_recorded_once_and_listed(open_http: Any) -> None:
    """They count for the campaign, suppress, and are shown, the newest first, in pages and by filters."""
    door = open_http(return_path=PATH, http=KEYS)
    one = door.client.post("/v1/inject", json=MAIL).json()["id"]
    rows = [
        {"kind": "complaint", "recipient": "ann@x.test", "message": one},
        {"kind": "bounce", "recipient": "bob@x.test", "code": 550, "enhanced": "5.1.1", "text": "no", "name": "7"},
        {"kind": "open", "recipient": "ann@x.test", "message": one},
    ]
    hook = door.client_with(HOOK)
    assert hook.post("/v1/feedback", json={"rows": rows}).json() == {"recorded": 3, "known": 0}
    assert hook.post("/v1/feedback", json={"rows": rows}).json() == {"recorded": 0, "known": 3}
    page = hook.get("/v1/feedback", params={"limit": 2}).json()
    assert [row["kind"] for row in page["rows"]] == ["open", "bounce"]
    rest = hook.get("/v1/feedback", params={"limit": 2, "after": page["next"]}).json()
    assert [(row["kind"], row["campaign"], row["genuine"]) for row in rest["rows"]] == [("complaint", "spring", "key")]
    for where in ({"kind": "complaint"}, {"message": one, "kind": "complaint"}, {"campaign": "spring", "limit": 5}):
        found = door.client.get("/v1/feedback", params={"recipient": "Ann@x.test", **where}).json()["rows"]
        assert found[-1]["kind"] == "complaint"
    assert hook.get("/v1/feedback", params={"since_ms": 1 << 44}).json() == {"rows": [], "next": None}
    assert door.client.get("/v1/campaigns/spring").json()["complaints"] == 1


def test_a_report_that_is_passed_on(open_http: Any) -> None:
    """By its address's token, or by the word of who passes it on; else nothing follows from it."""
    door = open_http(return_path=PATH, http=KEYS)
    one, hook = door.client.post("/v1/inject", json=MAIL).json()["id"], door.client_with(HOOK)
    mail = {"content-type": "message/rfc822"}
    answer = hook.post("/v1/feedback/report", content=BOUNCE, headers=mail).json()
    row = {"kind": "bounce", "recipient": "ann@x.test", "code": 550, "enhanced": "5.1.1", "text": "no such user"}
    assert answer == {"form": "rfc3464", "rows": [row | {"genuine": "", "recorded": True}]}
    today = door.queue.core.clock.ms() // 86_400_000
    path = verp.encode(one, "ann@x.test", "ret.src.test", SECRET, today)
    answer = hook.post("/v1/feedback/report", content=BOUNCE, headers=mail, params={"to": path}).json()
    assert (answer["rows"][0]["genuine"], answer["rows"][0]["recorded"]) == ("token", True)
    assert door.client.get("/v1/feedback", params={"message": one}).json()["rows"][0]["tied"] == "token"
    answer = hook.post("/v1/feedback/report", content=BOUNCE, headers=mail, params={"to": path.replace("ann", "eve")})
    assert (answer.status_code, "its tag is not ours" in answer.text) == (422, True)
    answer = hook.post("/v1/feedback/report", content=BOUNCE + b" ", headers=mail, params={"proven": True}).json()
    assert answer["rows"][0]["genuine"] == "key"


def test_a_providers_webhook(open_http: Any) -> None:
    """The key comes as a password, which is all that they can send; the message is found by its Message-ID."""
    door = open_http(return_path=PATH, http=KEYS)
    own = {"headers": {"Message-ID": "<one@src.test>"}}
    one = door.client.post("/v1/inject", json=MAIL | own).json()["id"]
    event = {"email": "ann@x.test", "event": "spamreport", "smtp-id": "<one@src.test>", "sg_event_id": "e1"}
    hook = door.client_with("")
    hook.headers.pop("authorization", None)
    answer = hook.post("/v1/feedback/sendgrid", json=[event], auth=("any", HOOK))
    assert answer.json() == {"recorded": 1, "known": 0, "left_out": 0}
    row = door.client.get("/v1/feedback", params={"message": one}).json()["rows"][0]
    assert (row["kind"], row["tied"], row["form"]) == ("complaint", "message-id", "sendgrid")
    asked = {"Type": "SubscriptionConfirmation", "SubscribeURL": "https://sns.example/confirm", "TopicArn": "arn:x"}
    assert hook.post("/v1/feedback/ses", json=asked, auth=("any", HOOK)).json()["recorded"] == 0
    answer = hook.post("/v1/feedback/mailgun", json=[event], auth=("any", HOOK))
    assert (answer.status_code, "not of the form that mailgun documents" in answer.text) == (422, True)
    assert hook.post("/v1/feedback/sendgrid", json=[event], auth=("any", "wrong")).status_code == 401
    assert hook.get("/v1/campaigns", auth=("any", door.token)).status_code == 401, "a password is for webhooks alone"


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/feedback/report", "/v1/feedback/ses"])
def test_who_may_not(open_http: Any, path: str) -> None:
    """A key needs the right."""
    door = open_http(http=KEYS)
    answer = door.client_with("zmta_shop").post(path, json={"rows": []})
    assert (answer.status_code, "lacks the right feedback" in answer.text) == (403, True)


SCOPED = {"keys": [
    {"name": "acme", "hash": hashed("zmta_acme"), "rights": ["feedback"], "tenants": ["acme"]},
    {"name": "both", "hash": hashed("zmta_both"), "rights": ["feedback"], "tenants": ["acme", "beta"]},
    {"name": "spring", "hash": hashed("zmta_spring"), "rights": ["feedback"], "campaigns": ["spring"]},
]}  # fmt: skip
UNKNOWN = {"kind": "bounce", "code": 550, "enhanced": "5.1.1", "text": "no such user"}


@pytest.fixture
def site(open_http: Any) -> Any:
    """Keys with a scope; a message of each of two tenants, of a campaign of each, by their names in `ids`."""
    door = open_http(return_path=PATH, http=SCOPED)
    door.ids = {}
    for tenant, campaign in (("acme", "spring"), ("beta", "autumn")):
        own = {"tenant": tenant, "campaign": campaign, "headers": {"Message-ID": f"<{tenant}@src.test>"}}
        door.ids[tenant] = door.client.post("/v1/inject", json=MAIL | own).json()["id"]
    return door


@pytest.mark.parametrize(
    ("key", "row", "sentence"),
    [
        ("acme", {"message": "beta"}, "its message is not in this key's scope"),
        ("acme", {"message_id": "<beta@src.test>"}, "its message is not in this key's scope"),
        ("acme", {"message_id": "<beta@src.test>", "tenant": "acme"}, "its message is not in this key's scope"),
        ("acme", {"message": "0199aabbccddeeff"}, "its message is not in this key's scope"),
        ("acme", {"tenant": "beta"}, "the tenant 'beta' is not in this key's scope"),
        ("acme", {"campaign": "autumn"}, "the campaign 'autumn' is not in this key's scope"),
        ("acme", {"message": "acme", "scope": "all"}, "the scope 'all' is not its own; use one of tenant:acme"),
        ("acme", {"scope": "tenant:beta"}, "the scope 'tenant:beta' is not its own"),
        ("acme", {"scope": "list:beta/weekly"}, "use one of tenant:acme, campaigns:acme, list:acme/NAME, or none"),
        ("acme", {"scope": "list:weekly"}, "the scope 'list:weekly' is not its own"),
        ("spring", {"scope": "list:acme/weekly"}, "use one of campaign:acme/spring"),
        ("both", {}, "neither a message that is known nor a tenant; name one of acme, beta"),
        ("spring", {"message": "beta"}, "its message is not in this key's scope"),
        ("spring", {"message": "acme", "scope": "tenant:acme"}, "use one of campaign:acme/spring"),
    ],
)
def test_a_key_with_a_scope_tells_nothing_of_others(site: Any, key: str, row: dict[str, str], sentence: str) -> None:
    """Then nothing at all is recorded, and the sentence says which row it is."""
    row = row | {"message": site.ids.get(row.get("message", ""), row.get("message", ""))}
    own = {"kind": "delay", "recipient": "ann@x.test", "tenant": "acme", "campaign": "spring"}
    answer = site.client_with(f"zmta_{key}").post(
        "/v1/feedback", json={"rows": [own, UNKNOWN | {"recipient": "eve@x.test"} | row]}
    )
    assert (answer.status_code, "rows[1]: " in answer.text) == (403, True)
    assert sentence in answer.json()["detail"]
    assert site.client.get("/v1/feedback").json()["rows"] == []


def test_what_a_key_with_a_scope_tells_is_for_its_own_lists(site: Any) -> None:
    """A customer who invents bounces of everybody harms himself alone; he sees what came back about his mail."""
    rows = [
        UNKNOWN | {"recipient": "ann@x.test", "message": site.ids["acme"]},
        UNKNOWN | {"recipient": "bob@x.test"},
        {"kind": "complaint", "recipient": "cat@x.test", "message_id": "<acme@src.test>", "campaign": "autumn"},
        {"kind": "unsubscribe", "recipient": "dan@x.test", "message": site.ids["acme"]},
        {"kind": "unsubscribe", "recipient": "eve@x.test", "message": site.ids["acme"], "scope": "list:acme/weekly"},
    ]
    acme = site.client_with("zmta_acme")
    assert acme.post("/v1/feedback", json={"rows": rows}).json() == {"recorded": 5, "known": 0}
    assert acme.post("/v1/feedback", json={"rows": rows}).json() == {"recorded": 0, "known": 5}
    spring = [UNKNOWN | {"recipient": "fay@x.test"}]
    assert site.client_with("zmta_spring").post("/v1/feedback", json={"rows": spring}).json()["recorded"] == 1
    beta = {"kind": "delay", "recipient": "gus@x.test", "message": site.ids["beta"]}
    assert site.client.post("/v1/feedback", json={"rows": [beta]}).json()["recorded"] == 1
    found = acme.get("/v1/feedback").json()["rows"]
    assert {(row["recipient"], row["campaign"], row["scope"]) for row in found} == {
        ("ann@x.test", "spring", "tenant:acme"), ("bob@x.test", "", "tenant:acme"),
        ("cat@x.test", "spring", "tenant:acme"), ("dan@x.test", "spring", "campaigns:acme"),
        ("eve@x.test", "spring", "list:acme/weekly"),
    } | {
        ("fay@x.test", "spring", "campaign:acme/spring") for row in found if row["recipient"] == "fay@x.test"
    }  # fmt: skip
    assert acme.get("/v1/feedback", params={"message": site.ids["beta"]}).json()["rows"] == []
    expected = {("ann", "tenant:acme"), ("bob", "tenant:acme"), ("cat", "tenant:acme"), ("dan", "campaigns:acme"),
                ("fay", "campaign:acme/spring"), ("eve", "list:acme/weekly")}  # fmt: skip
    end, listed = time.monotonic() + 60, set[tuple[str, str]]()
    while listed != expected and time.monotonic() < end:
        listed = {(row["address"][:3], row["scope"]) for row in _suppressions(site)}
    assert listed == expected


def test_wishes_wait_for_somebody_to_decide(open_http: Any) -> None:
    """And not for a key with a scope."""
    scoped = {"name": "acme", "hash": hashed("zmta_acme"), "rights": ["feedback"], "tenants": ["acme"]}
    door = open_http(return_path=PATH, http={"keys": [*KEYS["keys"], scoped]})
    hook, mail = door.client_with(HOOK), {"content-type": "message/rfc822"}
    for who in ("ann", "bob"):
        letter = f"From: {who}@x.test\r\nSubject: Hats\r\n\r\nCould you at last stop sending me this nonsense?\r\n"
        assert hook.post("/v1/feedback/report", content=letter.encode(), headers=mail).json()["form"] == "wish"
    bob, ann = hook.get("/v1/feedback", params={"wishes": True}).json()["rows"]
    about = {"leave": [ann["seq"], 4711], "forget": [bob["seq"]]}
    assert door.client_with("zmta_acme").post("/v1/feedback/wishes", json=about).status_code == 403
    assert hook.post("/v1/feedback/wishes", json=about).json() == {"unsubscribed": 1, "forgotten": 1}
    assert hook.get("/v1/feedback", params={"wishes": True}).json()["rows"] == []
    assert hook.get("/v1/feedback", params={"kind": "unsubscribe"}).json()["rows"][0]["recipient"] == "ann@x.test"


def _suppressions(site: Any) -> list[dict[str, str]]:
    scopes = (
        "all",
        "tenant:acme",
        "campaigns:acme",
        "campaign:acme/spring",
        "campaigns",
        "tenant:beta",
        "list:acme/weekly",
    )
    own = [site.client.get("/v1/suppressions", params={"scope": one}).json()["rows"] for one in scopes]
    return [row for rows in own for row in rows]


def test_a_report_that_a_key_with_a_scope_passes_on(site: Any) -> None:
    """By the token of the address it came to, about its own mail alone."""
    today = site.queue.core.clock.ms() // 86_400_000
    mail, acme = {"content-type": "message/rfc822"}, site.client_with("zmta_acme")
    for tenant, status in (("acme", 200), ("beta", 403)):
        path = verp.encode(site.ids[tenant], "ann@x.test", "ret.src.test", SECRET, today)
        answer = acme.post("/v1/feedback/report", content=BOUNCE, headers=mail, params={"to": path})
        assert answer.status_code == status, answer.text
    (row,) = site.client.get("/v1/feedback").json()["rows"]
    assert (row["message"], row["scope"], row["genuine"]) == (site.ids["acme"], "tenant:acme", "token")


def test_reports_on_our_mail(open_http: Any) -> None:
    """Read like those that come by mail; summed up for keys without a scope."""
    acme = {"name": "acme", "hash": hashed("zmta_acme"), "rights": ["feedback"], "tenants": ["acme"]}
    door = open_http(return_path=PATH, http=KEYS | {"keys": [*KEYS["keys"], acme]})
    hook, mail = door.client_with(HOOK), {"content-type": "message/rfc822"}
    begin = door.queue.core.clock.ms() // 86_400_000 * 86_400 - 86_400
    text = reports.report("Provider", "1", reports.row(), reports.row("203.0.113.7", 3, "fail", "fail"), begin=begin)
    message = reports.mixed("dmarc@provider.test", "Report", "application/gzip", reports.gzipped(text))
    for proven, recorded in ((True, True), (True, False), (False, True)):
        answer = hook.post("/v1/feedback/report", content=message, headers=mail, params={"proven": proven}).json()
        assert (answer["form"], answer["rows"][0]["recorded"]) == ("dmarc", recorded)
    found = hook.get("/v1/reports", params={"days": 2}).json()
    assert sorted((row["proof"], row["messages"], row["passed"]) for row in found["dmarc"]) == [
        ("", 13, 10),
        ("key", 13, 10),
    ]
    assert [(row["ip"], row["ours"], row["failed"]) for row in found["sources"]] == [
        ("203.0.113.7", False, 3), ("192.0.2.9", False, 0)
    ]  # fmt: skip
    assert hook.get("/v1/reports", params={"domain": "other.test"}).json()["dmarc"] == []
    assert hook.get("/v1/reports", params={"days": 0}).status_code == 422
    refused = door.client_with("zmta_acme").get("/v1/reports")
    assert (refused.status_code, "has a scope" in refused.text) == (403, True)
    answer = door.client_with("zmta_acme").post("/v1/feedback/report", content=message, headers=mail)
    assert "dmarc" not in answer.text
