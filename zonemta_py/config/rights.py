"""What gives clients their rights, in a form in which processes of two configurations can compare them. It has no
secrets."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from zonemta_py.config.root import Config

Rights = dict[str, Any]
"""users, keys, tokens: name → a digest of what their rights depend on; networks: listener → its relay networks."""


def rights(config: Config) -> Rights:
    """As this configuration gives them."""
    accounts = {name: one for one in config.accounts for name in one.keys}
    return {
        "users": {name: password_digest(hashed) for name, hashed in config.users.items()},
        "keys": {
            key.name: _digest(key.model_dump(), accounts[key.name].model_dump() if key.name in accounts else None)
            for key in config.http.keys
        },
        "tokens": {token.name: _digest(token.model_dump()) for token in config.pull.tokens},
        "networks": {one.name: list(one.relay_networks) for one in config.listeners},
    }


def password_digest(hashed: str) -> str:
    """Of a user's password."""
    return _digest(hashed)


def _digest(*parts: Any) -> str:
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
