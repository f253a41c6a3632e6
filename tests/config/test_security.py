"""Signing and return paths in the configuration: what is refused, and with which sentence."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from zonemta_py.config import Config, DkimKey

KEY = {"domain": "d.example", "selector": "s", "key": "/k"}
SECRET = "0123456789abcdef"


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"dkim": [KEY | {"domain": "d example"}]}, "is not a domain such as"),
        ({"dkim": [KEY | {"selector": "a;b"}]}, "is not a selector such as 2026a"),
        ({"dkim": [KEY | {"identity": "@other.example"}]}, "must be at d.example or below it"),
        ({"dkim": [KEY | {"identity": "@xd.example"}]}, "must be at d.example or below it"),
        ({"dkim": [KEY, KEY | {"key": "/l"}]}, r"two keys are named s\._domainkey\.d\.example"),
        ({"dkim": [KEY], "signing": {"third_party": "e.example"}}, "no active .* key is for e.example"),
        ({"signing": {"headers": ["From", "To:"]}}, "not the name of a header field"),
        ({"signing": {"oversign": ["DKIM-Signature"]}}, "not the name of a header field"),
        ({"return_path": {"verp": "b.example"}}, "needs a secret"),
        ({"return_path": {"secret": "short"}}, "at least 16 characters"),
        ({"return_path": {"secret": SECRET, "srs": "no domain"}}, "is not a domain"),
        ({"return_path": {"feedback_id": "{campaign}:{password}"}}, "which is none of {campaign}, {id}"),
        ({"return_path": {"feedback_id": "{campaign.__class__}"}}, "which is none of"),
        ({"return_path": {"feedback_id": "{campaign!r:>99}"}}, "which is none of"),
        ({"return_path": {"feedback_id": "{campaign"}}, "a brace too many or too few"),
        ({"return_path": {"feedback_id": "a\r\nX: y"}}, "a header field must not contain"),
        ({"return_path": {"list_unsubscribe": "http://u.example/"}}, "does not begin with https://"),
        ({"return_path": {"list_unsubscribe": "https://u.example/> <"}}, "blanks or angle brackets"),
        ({"return_path": {"list_unsubscribe_zones": ["x"]}}, "there is no zone 'x'"),
        (
            {
                "return_path": {"list_unsubscribe": "https://u.example/", "secret": SECRET},
                "dkim": [KEY],
                "signing": {"headers": ["From", "List-Unsubscribe"]},
            },
            "lacks List-Unsubscribe or List-Unsubscribe-Post",
        ),
    ],
)
def test_refused(sections: dict[str, Any], says: str) -> None:
    """Every mistake is found when the file is read, not when mail is sent."""
    with pytest.raises(ValidationError, match=says):
        Config.model_validate(sections)


def test_names_are_as_dns_has_them() -> None:
    """Lower case, A-labels, no final dot."""
    key = DkimKey.model_validate(KEY | {"domain": "Bücher.Example.", "selector": "S1.News", "identity": ""})
    assert (key.domain, key.selector) == ("xn--bcher-kva.example", "s1.news")


@pytest.mark.parametrize(
    ("path", "zone", "asked", "alone"),
    [
        ({}, "z", True, False),
        ({"verp": "b.example"}, "z", False, True),
        ({"srs": "b.example"}, "z", True, False),
        ({"list_unsubscribe": "https://u/{token}"}, "z", True, True),
        ({"list_unsubscribe": "https://u/{recipient}"}, "z", False, False),
        ({"list_unsubscribe": "https://u/{recipient}", "list_unsubscribe_zones": ["z"]}, "z", False, True),
        ({"list_unsubscribe": "https://u/{id}"}, "z", True, False),
    ],
)
def test_who_needs_a_delivery_of_his_own(path: dict[str, Any], zone: str, asked: bool, alone: bool) -> None:
    """Where return path or link name the recipient."""
    config = Config.model_validate({"return_path": path | {"secret": SECRET}, "zones": [{"name": "z"}]})
    assert config.unsubscribing.alone(zone, asked) is alone


@pytest.mark.parametrize(("state", "form"), [("active", "simple"), ("published", None), ("retired", None)])
def test_bodies_are_hashed_only_if_somebody_signs(state: str, form: str | None) -> None:
    """And in the form that the signatures need."""
    config = Config.model_validate({"dkim": [KEY | {"state": state}], "signing": {"body_canonicalization": "simple"}})
    assert config.body_form == form
