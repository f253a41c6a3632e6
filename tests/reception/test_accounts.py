"""Accounts over SMTP: users and networks get their tenant, zone, senders and trust, and nothing of others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from pydantic import ValidationError

from tests.reception.conftest import PASSWORD, OpenDoor
from tests.reception.test_session import plain, secured
from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope
from zonemta_py.reception.permission import Accounts

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)


@pytest.fixture
def two(open_door: Any, certificate: Path) -> OpenDoor:
    """shop has a tenant, a zone, senders and no trust; press is trusted, and may send 2,000 bytes."""
    accounts = [
        {"name": "shop", "users": ["anna"], "tenant": "shop", "zone": "bulk", "senders": ["shop.test"]},
        {"name": "press", "users": ["ben"], "tenant": "press", "trust_headers": True, "message_bytes": 2000},
    ]
    door: OpenDoor = open_door(
        tls="starttls", certificate=str(certificate), auth=True, users={"anna": HASH, "ben": HASH, "cleo": HASH},
        sections={"accounts": accounts, "zones": [{"name": "default"}, {"name": "bulk"}]}, relay_networks=[],
    )  # fmt: skip
    return door


def send(door: OpenDoor, user: str, fields: str = "", sender: str = "a@shop.test", body: str = "hi") -> str:
    with secured(door) as wire:
        wire.ask("EHLO x")
        wire.ask(f"AUTH PLAIN {plain(user, PASSWORD)}")
        content = f"From: {sender}\r\nSubject: hi\r\n{fields}\r\n{body}\r\n".encode()
        return str(wire.mail(content, sender=sender))


def taken(door: OpenDoor) -> Envelope:
    [(envelope, _)] = door.submission.kept
    return envelope


def test_mail_gets_the_tenant_and_the_zone_of_its_account(two: OpenDoor) -> None:
    assert send(two, "anna")[:3] == "250"
    assert (taken(two).account, taken(two).tenant, taken(two).sending_zone) == ("shop", "shop", "bulk")


def test_headers_of_those_not_trusted_say_nothing(two: OpenDoor) -> None:
    """They are taken out, and not obeyed: no foreign tenant, zone, campaign or priority."""
    fields = "X-Tenant: press\r\nX-Sending-Zone: default\r\nX-Campaign: spring\r\nX-Priority-Level: 9\r\n"
    assert send(two, "anna", fields)[:3] == "250"
    envelope, body = two.submission.kept[0]
    assert (envelope.tenant, envelope.sending_zone, envelope.campaign) == ("shop", "bulk", None)
    assert not envelope.priority
    assert b"X-Tenant" not in body


def test_only_those_trusted_raise_priorities(two: OpenDoor) -> None:
    """By no parameter of MAIL either."""
    for user, sender, level, code in (
        ("anna", "a@shop.test", 4, 550),
        ("anna", "a@shop.test", -4, 250),
        ("ben", "b@p.test", 4, 250),
    ):
        with secured(two) as wire:
            wire.ask("EHLO x")
            wire.ask(f"AUTH PLAIN {plain(user, PASSWORD)}")
            assert wire.ask(f"MAIL FROM:<{sender}> MT-PRIORITY={level}")[:3] == str(code)


def test_those_trusted_may_name_a_campaign_but_no_other_tenant(two: OpenDoor) -> None:
    assert send(two, "ben", "X-Campaign: spring\r\n", sender="b@press.test")[:3] == "250"
    assert (taken(two).tenant, taken(two).campaign) == ("press", "spring")
    said = send(two, "ben", "X-Tenant: shop\r\n", sender="b@press.test")
    assert "550 5.7.1 account 'press' is for the tenant 'press', not 'shop'; leave it out" in said


def test_whom_an_account_may_send_as(two: OpenDoor) -> None:
    assert send(two, "anna", sender="a@elsewhere.test")[:3] == "550"
    assert not two.submission.kept


def test_its_largest_message(two: OpenDoor) -> None:
    said = send(two, "ben", sender="b@press.test", body="some words\r\n" * 300)
    assert "552 5.3.4 Message is larger than the 2,000 bytes of its account" in said


def test_clients_of_no_account_are_as_before(two: OpenDoor) -> None:
    assert send(two, "cleo", "X-Tenant: free\r\nX-Sending-Zone: bulk\r\n")[:3] == "250"
    assert (taken(two).account, taken(two).tenant, taken(two).sending_zone) == ("", "free", "bulk")


def test_the_smallest_network_counts() -> None:
    """A user's own account comes before that of the network."""
    accounts = [
        {"name": "office", "networks": ["10.0.0.0/8", "2001:db8::/32"]},
        {"name": "lab", "networks": ["10.9.0.0/16"], "users": ["anna"]},
    ]
    found = Accounts(Config.model_validate({"accounts": accounts, "users": {"anna": HASH}}))
    assert [found.of(one) for one in ("10.1.1.1", "10.9.1.1", "2001:db8::5", "192.0.2.1", "")] == [
        "office", "lab", "office", "", "",
    ]  # fmt: skip
    assert found.of("10.1.1.1", user="anna") == "lab"
    assert found.of("10.1.1.1", user="ben") == "office"


def test_a_session_counts_for_the_account_of_its_network_and_then_of_its_user(
    open_door: Any, certificate: Path
) -> None:
    """One that is too many is refused when it connects, or logs in; one of an account without such a quota is not even
    asked about."""
    accounts = [
        {"name": "office", "networks": ["127.0.0.0/8"], "sessions": 1},
        {"name": "shop", "users": ["anna"], "sessions": 1},
        {"name": "press", "users": ["ben"]},
    ]
    door = open_door(
        tls="starttls", certificate=str(certificate), auth=True, users={"anna": HASH, "ben": HASH},
        sections={"accounts": accounts},
    )  # fmt: skip
    counted = door.submission.sessions
    with secured(door) as first:
        assert list(counted.values()) == ["office"]
        with door.wire() as late:
            assert (late.banner, late.reply()) == ("421 4.7.0 account 'office' has its session", "")
        first.ask("EHLO x")
        assert first.ask(f"AUTH PLAIN {plain('anna', PASSWORD)}")[:3] == "235"
        assert list(counted.values()) == ["shop"]
        with secured(door) as second:
            second.ask("EHLO x")
            assert second.ask(f"AUTH PLAIN {plain('anna', PASSWORD)}") == "421 4.7.0 account 'shop' has its session"
            assert second.reply() == ""
        until(lambda: list(counted.values()) == ["shop"])
        with secured(door) as third:
            third.ask("EHLO x")
            assert third.ask(f"AUTH PLAIN {plain('ben', PASSWORD)}")[:3] == "235"
            assert list(counted.values()) == ["shop"]
    until(lambda: not counted)


def until(found: Callable[[], bool]) -> None:
    """The listener hears of the end of a connection soon."""
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        ([{"name": "a", "users": ["nobody"]}], "there is no user 'nobody' in \\[users\\]"),
        ([{"name": "a", "keys": ["k"]}], "there is no key 'k' in \\[\\[http.keys\\]\\]"),
        ([{"name": "a", "zone": "none"}], "no zone that sends is named 'none'"),
        ([{"name": "a", "networks": ["10.0.0.0/8"]}, {"name": "b", "networks": ["10.0.0.0/8"]}], "keep it in one"),
        (
            [{"name": "a", "networks": ["2001:DB8::/32"]}, {"name": "b", "networks": ["2001:db8:0::/32"]}],
            "keep it in one",
        ),
        ([{"name": "a", "networks": ["::ffff:10.0.0.0/104"]}], "is IPv4, mapped into IPv6; write 10.0.0.0/8"),
        ([{"name": "a", "messages": ["10MB/s"]}], "is not a quota"),
        ([{"name": "a", "recipients": ["0.5/s"]}], "is not a quota"),
        ([{"name": "a"}, {"name": "a"}], "two accounts are named 'a'"),
        ([{"name": "a", "keys": ["other"], "tenant": "t"}], "but has other tenants; remove its tenants"),
        ([{"name": "a", "keys": ["push"], "tenant": "t"}], "the right push is about things of no tenant"),
    ],
)
def test_wrong_accounts_are_refused(accounts: list[dict[str, Any]], words: str) -> None:
    keys = [
        {"name": "other", "hash": "0" * 64, "tenants": ["x"]}, {"name": "push", "hash": "1" * 64, "rights": ["push"]},
    ]  # fmt: skip
    with pytest.raises(ValidationError, match=words):
        Config.model_validate({"accounts": accounts, "http": {"keys": keys}})
