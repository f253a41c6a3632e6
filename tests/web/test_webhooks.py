"""Webhooks that prove themselves by a signature: real keys, real requests; what is old, repeated, forged or cut."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from tests.web.conftest import HttpDoor
from tests.web.test_problems import problem
from zonemta_py.config import Config, ConfigError
from zonemta_py.plugin.host import Host
from zonemta_py.processes.checks import check_listeners
from zonemta_py.web.api.feedback import feedback
from zonemta_py.web.api.feedback.webhooks import FetchFailed

SECRET = "key-0123456789abcdef"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:bounces"
SNS = "https://sns.eu-west-1.amazonaws.com"
CERTIFICATE = "/SimpleNotificationService-0123456789abcdef.pem"
EC_KEY, OTHER_EC_KEY = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
RSA_KEY = rsa.generate_private_key(65537, 2048)
PUBLIC = base64.b64encode(EC_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
HOOKS = [
    {"name": "gun", "provider": "mailgun", "secrets": [SECRET]},
    {"name": "grid", "provider": "sendgrid", "public_keys": [PUBLIC]},
    {"name": "amazon", "provider": "ses", "topics": [TOPIC]},
]


def told(recorded: int, known: int, left_out: int = 0) -> dict[str, int]:
    return {"recorded": recorded, "known": known, "left_out": left_out}


def certificate(days: int = 1) -> bytes:
    """Of RSA_KEY, in PEM. days: until it ends."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    until = datetime.now(UTC) + timedelta(days)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(RSA_KEY.public_key())
    made = made.serial_number(1).not_valid_before(until - timedelta(2)).not_valid_after(until)
    return made.sign(RSA_KEY, SHA256()).public_bytes(Encoding.PEM)


@pytest.fixture(scope="module")
def signed_door(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """With all three providers; `fetched` says what was fetched."""
    fetched: list[str] = []

    async def fetch(host: str, path: str) -> bytes:
        fetched.append(f"https://{host}{path}")
        if "ffffffff" in path:
            raise FetchFailed("it cannot be reached")
        return certificate() if path.endswith(".pem") else b"<ConfirmSubscriptionResponse/>"

    door = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {"http": {"webhooks": HOOKS}, "fetch": fetch})
    yield door, fetched
    door.stop()


@pytest.fixture
def post(signed_door: Any) -> Any:
    """post(provider, body, headers): without a key."""
    door, _ = signed_door

    def posted(provider: str, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        with door.client_with("") as client:
            return client.post(
                f"/v1/feedback/{provider}", content=body, headers={"content-type": "application/json"} | (headers or {})
            )

    return posted


# -- Mailgun


def gun(number: str, secret: str = SECRET, ago_s: int = 0, who: str = "ann@x.test", **changed: Any) -> bytes:
    said = str(int(time.time()) - ago_s)
    mark = hmac.new(secret.encode(), f"{said}{number}".encode(), hashlib.sha256).hexdigest()
    event = {"event": "complained", "recipient": who, "id": f"event {number}"}
    return json.dumps(
        {"signature": {"timestamp": said, "token": number, "signature": mark} | changed, "event-data": event}
    ).encode()


def test_mailgun_signs_a_token_which_is_good_for_one_event(post: Any) -> None:
    body = gun("t1")
    assert post("mailgun", body).json() == told(1, 0)
    assert post("mailgun", body).json() == told(0, 1), "an answer may be lost"
    stolen = json.loads(body) | {"event-data": {"event": "complained", "recipient": "eve@x.test", "id": "new"}}
    sentence = problem(post("mailgun", json.dumps(stolen).encode()), 403)["detail"]
    assert "has come before, with another event" in sentence


def test_a_mailgun_token_is_remembered_by_the_queue_too(tmp_path: Path) -> None:
    """Another process does not know the tokens before it, but the journal does."""
    body = json.loads(gun("t2"))
    stolen = body | {"event-data": {"event": "complained", "recipient": "eve@x.test", "id": "new"}}
    for content, expected in (
        (body, told(1, 0)),
        (stolen, told(0, 1)),
    ):
        door = HttpDoor(tmp_path, Host.empty(), {"http": {"webhooks": HOOKS}})
        try:
            with door.client_with("") as client:
                assert client.post("/v1/feedback/mailgun", json=content).json() == expected
        finally:
            door.stop()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (gun("f1", secret="another key of somebody"), "not made with a key in secrets"),
        (gun("f2", token="f3"), "not made with a key in secrets"),
        (gun("f4", signature="é" * 64), "not made with a key in secrets"),
        (gun("f5", ago_s=90_000), "only 86,400 s are allowed (age_s)"),
        (gun("f6", ago_s=-90_000), "set this machine's clock"),
        (gun("f7", timestamp="17"), "has not its form"),
        (gun("f8", token=None), "lacks Mailgun's signature"),
        (gun("f9", signature=["x"]), "lacks Mailgun's signature"),
        (b'{"event-data": {"event": "complained", "recipient": "ann@x.test"}}', "lacks Mailgun's signature"),
        (b"[]", "lacks Mailgun's signature"),
    ],
)
def test_what_mailgun_has_not_signed_is_refused(post: Any, signed_door: Any, body: bytes, sentence: str) -> None:
    assert sentence in problem(post("mailgun", body), 403)["detail"]
    key = {"authorization": f"Bearer {signed_door[0].token}"}
    assert post("mailgun", body, key).status_code == 403, "a key does not replace it"


# -- SendGrid


def grid(body: bytes, key: Any = EC_KEY, ago_s: int = 0) -> dict[str, str]:
    said = str(int(time.time()) - ago_s)
    mark = base64.b64encode(key.sign(said.encode() + body, ec.ECDSA(SHA256()))).decode()
    return {"X-Twilio-Email-Event-Webhook-Signature": mark, "X-Twilio-Email-Event-Webhook-Timestamp": said}


def event(number: str) -> bytes:
    return b'[{"email": "bob@x.test",  "event": "spamreport", "sg_event_id": "%s"}]\r\n' % number.encode()


def test_sendgrid_signs_the_bytes_of_the_body(post: Any) -> None:
    body = event("g1")
    assert post("sendgrid", body, grid(body)).json() == told(1, 0)
    assert post("sendgrid", body, grid(body)).json() == told(0, 1)
    assert post("sendgrid", body.replace(b"  ", b" "), grid(body)).status_code == 403
    sentence = problem(post("sendgrid", event("g2"), grid(body)), 403)["detail"]
    assert "not made with a key in public_keys, or the body was changed" in sentence


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({}, "enable the signed event webhook"),
        (grid(event("g3"), key=OTHER_EC_KEY), "not made with a key in public_keys"),
        (grid(event("g3"), ago_s=90_000), "only 86,400 s are allowed"),
        (grid(event("g3")) | {"X-Twilio-Email-Event-Webhook-Signature": "@@"}, "not base64"),
        (grid(event("g3")) | {"X-Twilio-Email-Event-Webhook-Signature": "MEUCIQ=="}, "not made with a key"),
        (grid(event("g3")) | {"X-Twilio-Email-Event-Webhook-Timestamp": "1e9"}, "not UNIX time"),
        (grid(event("g3")) | {"X-Twilio-Email-Event-Webhook-Timestamp": "1700000000"}, "not made with a key"),
    ],
)
def test_what_sendgrid_has_not_signed_is_refused(post: Any, headers: dict[str, str], sentence: str) -> None:
    assert sentence in problem(post("sendgrid", event("g3"), headers), 403)["detail"]


def test_a_giant_body_is_not_read_before_it_is_proven(post: Any) -> None:
    body = b"[" + b" " * 1_100_000 + b"]"
    assert post("sendgrid", body, grid(body)).status_code == 413


def test_a_body_that_trickles_does_not_keep_a_place(signed_door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may begin one; those who have a key are held by a rate."""
    monkeypatch.setattr(feedback, "SIGNED_BODY_S", 0.1)
    with socket.create_connection(("127.0.0.1", signed_door[0].port), timeout=60) as client:
        client.sendall(
            b"POST /v1/feedback/sendgrid HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n["
        )
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")


# -- Amazon SNS


def sns(version: str = "2", key: Any = RSA_KEY, ago_s: float = 0, **changed: Any) -> dict[str, Any]:
    """changed: before it is signed."""
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    mail = {"commonHeaders": {"messageId": "<one@src.test>"}, "destination": ["cat@x.test"]}
    told = {"notificationType": "Complaint", "mail": mail,
            "complaint": {"complainedRecipients": [{"emailAddress": "cat@x.test"}]}}  # fmt: skip
    content: dict[str, Any] = {
        "Type": "Notification", "MessageId": "165545c9", "TopicArn": TOPIC, "Message": json.dumps(told),
        "Timestamp": f"{at:%Y-%m-%dT%H:%M:%S.000Z}", "SignatureVersion": version,
        "SigningCertURL": f"{SNS}{CERTIFICATE}", "UnsubscribeURL": f"{SNS}/?Action=Unsubscribe",
    } | changed  # fmt: skip
    names = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
    if content["Type"] != "Notification":
        names = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
    signed = "".join(f"{name}\n{content[name]}\n" for name in names if name in content)
    made = SHA1() if version == "1" else SHA256()
    return content | {"Signature": base64.b64encode(key.sign(signed.encode(), PKCS1v15(), made)).decode()}


def asking(**changed: Any) -> dict[str, Any]:
    url = f"{SNS}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336412f"
    rows = {"Type": "SubscriptionConfirmation", "Message": "You have chosen", "Token": "2336412f", "SubscribeURL": url}
    return sns(**(rows | changed))


def test_amazon_signs_in_two_versions_and_its_certificate_is_fetched_once(post: Any, signed_door: Any) -> None:
    del signed_door[1][:]
    text = {"content-type": "text/plain; charset=UTF-8"}
    assert post("ses", json.dumps(sns("1")).encode(), text).json() == told(1, 0)
    assert post("ses", json.dumps(sns("2", Subject="Amazon SES")).encode(), text).json()["known"] == 1
    row = signed_door[0].client.get("/v1/feedback", params={"recipient": "cat@x.test"}).json()["rows"][0]
    assert (row["kind"], row["genuine"], row["message_id"]) == ("complaint", "key", "<one@src.test>")
    assert signed_door[1] == [f"{SNS}{CERTIFICATE}"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (sns() | {"Message": "{}"}, "not made with Amazon's certificate"),
        (sns() | {"SignatureVersion": "1"}, "not made with Amazon's certificate"),
        (sns() | {"SignatureVersion": "3"}, "of version 1 or 2"),
        (sns() | {"Signature": "AAAA"}, "not made with Amazon's certificate"),
        (sns() | {"Signature": ""}, "lacks Amazon's signature"),
        (sns(key=rsa.generate_private_key(65537, 2048)), "not made with Amazon's certificate"),
        (sns(ago_s=90_000), "only 86,400 s are allowed"),
        (sns(Timestamp="yesterday"), "is not a time"),
        (sns(TopicArn="arn:aws:sns:eu-west-1:999999999999:theirs"), "is not in topics"),
        ({"notificationType": "Bounce"}, "turn raw message delivery off"),
        ([], "turn raw message delivery off"),
        *(
            (sns(SigningCertURL=url), "nothing was fetched")
            for url in (
                "", f"http{SNS[5:]}{CERTIFICATE}", f"https://sns.eu-west-1.amazonaws.com.evil.example{CERTIFICATE}",
                f"https://evil.example/{CERTIFICATE}", f"https://sns.us-east-1.amazonaws.com{CERTIFICATE}",
                f"https://u@sns.eu-west-1.amazonaws.com{CERTIFICATE}", f"{SNS}:8443{CERTIFICATE}",
                f"{SNS}/any{CERTIFICATE}", f"{SNS}{CERTIFICATE}?x", f"{SNS}{CERTIFICATE}#x", f"{SNS}/..{CERTIFICATE}",
                f"{SNS}\\@evil.example{CERTIFICATE}", f"{SNS}{CERTIFICATE}\n", "https://s3.amazonaws.com/evil/x.pem",
            )
        ),
        (asking(SubscribeURL="https://evil.example/?Action=ConfirmSubscription"), "is not Amazon's, to confirm"),
        (asking(SubscribeURL=f"{SNS}/?Action=DeleteTopic&TopicArn={TOPIC}"), "is not Amazon's, to confirm"),
        (asking() | {"Token": "other"}, "not made with Amazon's certificate"),
    ],
)  # fmt: skip
def test_what_amazon_has_not_signed_is_refused(post: Any, content: Any, sentence: str) -> None:
    assert sentence in problem(post("ses", json.dumps(content).encode()), 403)["detail"]


def test_a_subscription_of_our_topic_is_confirmed(post: Any, signed_door: Any) -> None:
    content = asking()
    assert post("ses", json.dumps(content).encode()).json() == told(0, 0)
    assert signed_door[1][-1] == content["SubscribeURL"]
    count = len(signed_door[1])
    gone = asking(Type="UnsubscribeConfirmation")
    assert post("ses", json.dumps(gone).encode()).json() == told(0, 0)
    assert len(signed_door[1]) == count, "somebody may have meant it"


def test_a_certificate_that_cannot_be_had_is_not_asked_for_again_and_again(post: Any, signed_door: Any) -> None:
    del signed_door[1][:]
    content = sns(SigningCertURL=f"{SNS}/SimpleNotificationService-ffffffffffffffff.pem")
    for _ in range(3):
        assert "eu-west-1.amazonaws.com" in problem(post("ses", json.dumps(content).encode()), 503)["detail"]
    assert len(signed_door[1]) == 1


def test_with_a_certificate_of_ours_nothing_is_fetched(
    open_http: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds as long as it is valid; an operator confirms subscriptions. The door's own way out has no DNS here."""
    for name, days in (("good", 1), ("old", -1)):
        (tmp_path / f"{name}.pem").write_bytes(certificate(days))
        hook = HOOKS[2] | {"certificates": [str(tmp_path / f"{name}.pem")]}
        with open_http(http={"webhooks": [hook]}).client_with("") as client:
            status = client.post("/v1/feedback/ses", json=sns()).status_code
            assert status == (200 if name == "good" else 403)
            if name == "good":
                assert client.post("/v1/feedback/ses", json=asking()).json() == {
                    "recorded": 0,
                    "known": 0,
                    "left_out": 0,
                }
                assert f"open {SNS}/?Action=ConfirmSubscription" in caplog.text
                assert client.post("/v1/feedback/sendgrid", content=b"[]").status_code == 401, "others need a key"
    with open_http(http={"webhooks": HOOKS[2:]}).client_with("") as client:
        assert "failed" in problem(client.post("/v1/feedback/ses", json=sns()), 503)["detail"]


def test_a_webhook_with_tenants_is_about_their_mail_alone(open_http: Any) -> None:
    door = open_http(
        http={"webhooks": [HOOKS[1] | {"tenants": ["acme"]}]}, return_path={"verp": "r.src.test", "secret": "s" * 16}
    )
    for tenant in ("acme", "beta"):
        mail = {"from": "a@src.test", "to": ["ann@x.test"], "subject": "x", "text": "y", "tenant": tenant}
        door.client.post(
            "/v1/inject", json=mail | {"headers": {"Message-ID": f"<{tenant}@src.test>"}}
        ).raise_for_status()
    rows = [{"email": "ann@x.test", "event": "spamreport", "smtp-id": f"<{one}@src.test>"} for one in ("beta", "acme")]
    body = json.dumps(rows).encode()
    with door.client_with("") as client:
        answer = client.post(
            "/v1/feedback/sendgrid", content=body, headers={"content-type": "application/json", **grid(body)}
        )
    assert answer.json() == told(1, 0, 1)
    (row,) = door.client.get("/v1/feedback").json()["rows"]
    assert (row["tenant"], row["scope"]) == ("acme", "tenant:acme")


# -- configuration


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    """`zonemta config check` and a reload say so before anything begins."""
    (tmp_path / "wrong.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for name, sentence in (
        ("none", "none.pem: no such file or directory"),
        ("wrong", "wrong.pem: it is not"),
    ):
        hook = HOOKS[2] | {"certificates": [str(tmp_path / f"{name}.pem")]}
        with pytest.raises(ConfigError, match=f"^http.webhooks.amazon: certificates: {tmp_path}/{sentence}"):
            check_listeners(Config.model_validate({"http": {"webhooks": [hook]}}), Host.empty())


@pytest.mark.parametrize(
    ("hook", "sentence"),
    [
        ({"provider": "postmark"}, "Postmark does not sign its webhooks"),
        ({"provider": "mailgun"}, "add secrets"),
        ({"provider": "mailgun", "secrets": [SECRET], "topics": [TOPIC]}, "remove topics"),
        ({"provider": "sendgrid", "public_keys": ["AAAA"]}, "copy SendGrid's verification key"),
        ({"provider": "ses", "topics": ["bounces"]}, "is not an ARN"),
        ({"provider": "sendgrid", "public_keys": [PUBLIC], "certificates": ["x.pem"]}, "remove certificates"),
    ],
)
def test_a_webhook_that_could_prove_nothing(hook: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Config.model_validate({"http": {"webhooks": [{"name": "x", **hook}]}})
