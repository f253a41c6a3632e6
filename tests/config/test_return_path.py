"""[return_path]: what is wrong is said with its remedy."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from zonemta_py.config import Config
from zonemta_py.config.secret import HIDDEN, hidden

SECRET = "0123456789abcdef"
TAKING = [{"feedback": True}]


@pytest.mark.parametrize(
    ("path", "listeners", "said"),
    [
        ({}, TAKING, "has feedback = true, but [return_path] has no address"),
        ({"bounces": ["bounce@a.example"]}, [{}], "set feedback = true in one of"),
        ({"bounces": ["bounce"]}, TAKING, "'bounce' is not an address such as bounce@example.com"),
        ({"bounces": ["A@B.example"], "complaints": ["a@b.example"]}, TAKING, "keep it in one"),
        ({"unsubscribe_domain": "u.example"}, TAKING, "needs a secret"),
        ({"verp": "b.example", "secret": SECRET, "earlier_secrets": [SECRET]}, TAKING, "or the one in force; remove"),
        ({"verp": "b.example", "secret": SECRET, "earlier_secrets": ["short"]}, TAKING, "at least 16 characters"),
        ({"verp": "b.example", "secret": SECRET, "forward_zone": "x"}, TAKING, "no zone that sends is named 'x'"),
        ({"reporters": [{"domain": "x.example", "dkim": False}]}, [{}], "can prove nothing; set dkim = true"),
        ({"reporters": [{"domain": "x.example"}, {"domain": "X.example"}]}, [{}], "two reporters have the same domain"),
    ],
)  # fmt: skip
def test_refused(path: dict[str, Any], listeners: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Config.model_validate({"return_path": path, "listeners": listeners})
    assert said in str(refused.value)


def test_secrets() -> None:
    """The first signs, all are taken; none is shown."""
    path = {"verp": "b.example", "secret": SECRET, "earlier_secrets": ["f" * 16]}
    config = Config.model_validate({"return_path": path, "listeners": TAKING})
    assert config.return_path.secrets == (SECRET, "f" * 16)
    assert hidden("return_path", path)["earlier_secrets"] == HIDDEN
