"""The section [pull]: nobody is let in from afar without a secret, and a token is for what it says."""

from __future__ import annotations

from typing import Any

import pytest

from zonemta_py.config.file import checked
from zonemta_py.config.section import ConfigError
from zonemta_py.config.services.pull import PullToken

HASH = "0" * 64


def test_a_token_is_for_its_queues_and_rights() -> None:
    token = PullToken(name="worker", hash=HASH, queues=["Jobs", "mail.*"], rights=["pop"])
    assert [token.may("pop", queue) for queue in ("jobs", "jobs2", "mail.in", "mail", "other")] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert not token.may("push", "jobs")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"pull": {"address": "192.0.2.1"}}, "is not loopback: set certificate"),
        ({"pull": {"address": "192.0.2.1", "certificate": "x.pem"}}, "add a [[pull.tokens]] table"),
        ({"pull": {"tokens": [{"name": "a", "hash": HASH}] * 2}}, "two tokens have 'a'"),
        ({"pull": {"tokens": [{"name": "a", "hash": HASH, "queues": ["a b"]}]}}, "'a b' is not the name of a queue"),
        ({"zones": [{"name": "a", "delivery": "pull", "host": "x"}]}, "delivery = 'pull' connects to nobody; remove"),
    ],
)
def test_what_cannot_be_meant_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"^x\.toml: ") as caught:
        checked(document, "x.toml")
    assert said in str(caught.value)
