"""Users, networks and keys are bound to senders: whom mail may come from, and what is signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from pydantic import ValidationError

from tests.reception.conftest import PASSWORD, OpenDoor
from tests.reception.test_session import plain, secured
from zonemta_py.config import Config, senders
from zonemta_py.reception.permission import Permissions

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
KEY: dict[str, Any] = {"domain": "bank.test", "selector": "a", "key": "/nowhere.pem"}


def mail(author: str) -> bytes:
    return f"From: {author}\r\nSubject: hi\r\n\r\nhi\r\n".encode()


@pytest.fixture
def bank(open_door: Any, certificate: Path) -> OpenDoor:
    """alice may be herself and the newsletter; ben has no senders; a network has its own."""
    door: OpenDoor = open_door(
        tls="starttls", certificate=str(certificate), auth=True, users={"alice": HASH, "ben": HASH},
        sections={"senders": {"alice": ["alice@bank.test", "news.test"]}, "dkim": [KEY]},
        relay_networks=["192.0.2.0/24"], relay_senders={"192.0.2.7/32": ["shop.test"]},
    )  # fmt: skip
    return door


@pytest.mark.parametrize(
    ("path", "author", "answer"),
    [
        ("alice@bank.test", "Alice <alice@bank.test>", "250"), ("x@news.test", "x@news.test", "250"),
        ("", "alice@bank.test", "250"), ("ceo@bank.test", "alice@bank.test", "550"),
        ("alice@bank.test", "ceo@bank.test", "550"), ("alice@bank.test", "alice@bank.test, ceo@bank.test", "550"),
        ("alice@bank.test", "alice@bank.test\r\nFrom: ceo@bank.test", "550"), ("alice@bank.test", "nobody", "550"),
    ],
)  # fmt: skip
def test_a_user_may_only_be_whom_he_is_bound_to(bank: OpenDoor, path: str, author: str, answer: str) -> None:
    """In MAIL FROM and in every From field: alice's mail as the chief executive was signed by the bank's key."""
    with secured(bank) as wire:
        wire.ask("EHLO x")
        wire.ask(f"AUTH PLAIN {plain('alice', PASSWORD)}")
        said = wire.mail(mail(author), sender=path)
    assert said[:3] == answer
    assert answer == "250" or ("5.7.1" in said and "senders in the configuration" in said)
    assert [envelope.unsigned for envelope, _ in bank.submission.kept] == ([False] if answer == "250" else [])


def test_mail_of_one_of_several_that_nothing_is_said_about_is_taken_but_not_signed(bank: OpenDoor, caplog: Any) -> None:
    """And the log says so."""
    with secured(bank) as wire:
        wire.ask("EHLO x")
        wire.ask(f"AUTH PLAIN {plain('ben', PASSWORD)}")
        assert wire.mail(mail("ceo@bank.test"), sender="ceo@bank.test")[:3] == "250"
    assert bank.submission.kept[0][0].unsigned
    assert any("user 'ben': mail is not signed" in line for line in caplog.messages)


def test_a_network_has_senders_too(open_door: Any) -> None:
    """This machine is not bound, unless its own network is named."""
    door = open_door(relay_senders={"127.0.0.1/32": ["shop.test"]})
    with door.greeted() as wire:
        assert wire.ask("MAIL FROM:<ceo@bank.test>")[:9] == "550 5.7.1"
        assert wire.mail(mail("ceo@bank.test"), sender="a@shop.test")[:9] == "550 5.7.1"
        assert wire.mail(mail("a@shop.test"), sender="a@shop.test")[:3] == "250"
    door = open_door()
    with door.greeted() as wire:
        assert wire.mail(mail("ceo@bank.test"))[:3] == "250"
    assert not door.submission.kept[0][0].unsigned


def configured(**sections: Any) -> Config:
    return Config.model_validate({"dkim": [KEY], **sections})


@pytest.mark.parametrize(
    ("sections", "unsigned"),
    [
        ({}, []),
        ({"users": {"ann": HASH}}, []),
        ({"users": {"ann": HASH, "ben": HASH}}, ["user 'ann'", "user 'ben'"]),
        ({"users": {"ann": HASH, "ben": HASH}, "senders": {"ann": ["*"]}}, ["user 'ben'"]),
        ({"listeners": [{"relay_networks": ["10.0.0.0/8"]}]}, []),
        ({"listeners": [{"relay_networks": ["10.0.0.0/8", "127.0.0.1/32"]}], "users": {"ann": HASH}},
         ["user 'ann'", "network 10.0.0.0/8"]),
        ({"http": {"keys": [{"name": "a", "hash": "0" * 64}, {"name": "b", "hash": "1" * 64, "senders": ["b.test"]}]}},
         ["HTTP key 'a'"]),
    ],
)  # fmt: skip
def test_one_owner_needs_to_say_nothing(sections: dict[str, Any], unsigned: list[str]) -> None:
    """Whoever is alone here (beside this machine) is signed for; of several, those that are bound. `config check`
    names the others."""
    config = configured(**sections)
    assert [party.name for party in senders.unsigned(config)] == unsigned
    permissions = Permissions(config, config.listeners[0])
    assert [f"user {name!r}" for name in config.users if not permissions.user(name).signed] == [
        name for name in unsigned if name.startswith("user")
    ]
    assert permissions.network("127.0.0.1").signed


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"senders": {"ann": ["*@bank.test"]}}, "is not a sender such as ann@example.com"),
        ({"senders": {"ann": ["a b@bank.test"]}}, "is not a sender such as"),
        ({"senders": {"ann": ["@bank.test"]}}, "is not a sender such as"),
        ({"listeners": [{"relay_senders": {"10.0.0.0/8": ["*"]}}]}, "may not relay; add it to relay_networks"),
        ({"listeners": [{"relay_senders": {"10.0.0.1/8": ["*"]}}]}, "is not a network"),
    ],
)
def test_mistakes_are_named(sections: dict[str, Any], sentence: str) -> None:
    """In one sentence."""
    with pytest.raises(ValidationError, match=sentence):
        configured(**sections)
