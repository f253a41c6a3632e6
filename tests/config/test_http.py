"""The section [http]: what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from zonemta_py.config import Config

HASH = "0" * 64


def test_it_is_closed_unless_it_is_opened() -> None:
    """Mail comes in by the SMTP listeners alone; if enabled, HTTP is one more."""
    assert Config().all_listeners == Config().listeners
    all_listeners = Config.model_validate({"http": {"enabled": True}}).all_listeners
    assert [(one.name, one.address, one.port, one.tls) for one in all_listeners[1:]] == [
        ("http", "127.0.0.1", 8525, "none")
    ]
    http = {"enabled": True, "address": "0.0.0.0", "certificate": Path("/c.pem")}
    assert Config.model_validate({"http": http}).all_listeners[-1].tls == "implicit"


@pytest.mark.parametrize(
    ("http", "sentence"),
    [
        ({"address": "0.0.0.0"}, "keys must not travel in the clear"),
        ({"address": "::"}, "keys must not travel in the clear"),
        ({"keys": [{"name": "a", "hash": HASH}, {"name": "a", "hash": "1" * 64}]}, "two keys have 'a'"),
        ({"keys": [{"name": "a", "hash": HASH}, {"name": "b", "hash": HASH}]}, "give each its own name and hash"),
        ({"keys": [{"name": "local", "hash": HASH}]}, "reserved for the file http.token"),
        ({"keys": [{"name": "a", "hash": "secret"}]}, "hash"),
        ({"keys": [{"name": "a", "hash": HASH, "rights": []}]}, "rights"),
        ({"keys": [{"name": "a", "hash": HASH, "rights": ["all"]}]}, "rights"),
    ],
)
def test_mistakes(http: dict[str, object], sentence: str) -> None:
    """Each says what is wrong, and what to do."""
    with pytest.raises(ValidationError, match=sentence):
        Config.model_validate({"http": http})
