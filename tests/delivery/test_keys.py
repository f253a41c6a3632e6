"""Keys from files: read, read again when they change, and what happens when they cannot be."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from zonemta_py.config import Config, ConfigError
from zonemta_py.delivery.message.dkim_keys import CHECK_S, DkimKeys, check
from zonemta_py.mail.dkim.signature import KeyUnusable

Configure = Callable[..., Config]


def write(path: Path) -> None:
    """Replaces the file by one with a new key, as careful operators do."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    new = path.with_suffix(".new")
    new.write_bytes(pem)
    new.replace(path)


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """configure(a="d.example", b="e.example", third_party="…"): selector → domain, each with a key file."""

    def make(third_party: str = "", state: str = "active", **domains: str) -> Config:
        for selector in domains:
            write(tmp_path / selector)
        rows: list[Any] = [
            {"domain": domain, "selector": selector, "key": tmp_path / selector, "state": state}
            for selector, domain in domains.items()
        ]
        return Config.model_validate({"dkim": rows, "signing": {"third_party": third_party}})

    return make


def selectors(keys: DkimKeys, domain: str, now: float = 0) -> list[str]:
    return [key.selector for key in keys.of(domain, now)]


def test_the_longest_domain_signs(configure: Configure) -> None:
    """Every key of it, and none of a shorter one; whole labels count, not letters."""
    keys = DkimKeys(configure(a="d.example", b="d.example", c="news.d.example"))
    assert selectors(keys, "d.example") == ["a", "b"]
    assert selectors(keys, "shop.d.example") == ["a", "b"]
    assert selectors(keys, "x.news.d.example") == ["c"]
    assert selectors(keys, "bad.example") == selectors(keys, "xd.example") == selectors(keys, "") == []


def test_third_party(configure: Configure) -> None:
    """It signs all mail once more, also what nobody else signs, and its own only once."""
    keys = DkimKeys(configure(a="d.example", esp="esp.example", third_party="esp.example"))
    assert selectors(keys, "d.example") == ["a", "esp"]
    assert selectors(keys, "esp.example") == selectors(keys, "other.example") == selectors(keys, "") == ["esp"]


def test_who_may_not_be_the_author_gets_no_signature_of_his(configure: Configure) -> None:
    """Only a third party's, and not where that is whom the mail claims to be from."""
    keys = DkimKeys(configure(a="bank.test", esp="esp.test", third_party="esp.test"))
    for domain, wanted in {"bank.test": ["esp"], "esp.test": [], "x.esp.test": [], "xesp.test": ["esp"]}.items():
        assert [key.selector for key in keys.of(domain, 0, own=False)] == wanted
    keys = DkimKeys(configure(a="bank.test"))
    assert not keys.of("bank.test", 0, own=False)


@pytest.mark.parametrize("state", ["published", "retired"])
def test_only_active_keys_sign(state: str, configure: Configure) -> None:
    """The others are there to be compared with DNS."""
    assert not DkimKeys(configure(state=state, a="d.example"))


def test_a_changed_file_is_read_again(configure: Configure, tmp_path: Path) -> None:
    """Within a second, and not looked at more often."""
    keys = DkimKeys(configure(a="d.example"))
    [before] = keys.of("d.example", 0)
    write(tmp_path / "a")
    assert keys.of("d.example", CHECK_S / 2) == (before,)
    [after] = keys.of("d.example", CHECK_S)
    assert after.record() != before.record()
    assert keys.of("d.example", 10 * CHECK_S) == (after,)


def test_a_broken_file_is_said_once(configure: Configure, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks hears it every time, the log once; when the file is mended it is used."""
    keys = DkimKeys(configure(a="d.example"))
    (tmp_path / "a").write_text("no key")
    for now in range(5):
        with pytest.raises(KeyUnusable, match=r"/a cannot be used: it is not a private key in PEM"):
            keys.of("d.example", now)
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    assert "mail of that domain is deferred" in caplog.text
    write(tmp_path / "a")
    assert selectors(keys, "d.example", 6) == ["a"]


def test_a_good_key_survives_its_file(configure: Configure, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Removed or half written: the one that was read goes on signing, and the log says so."""
    keys = DkimKeys(configure(a="d.example"))
    [before] = keys.of("d.example", 0)
    os.unlink(tmp_path / "a")
    assert keys.of("d.example", 2) == keys.of("d.example", 4) == (before,)
    assert caplog.text.count("cannot be read (no such file or directory)") == 1
    assert "keeps signing" in caplog.text


def test_check(configure: Configure, tmp_path: Path) -> None:
    """A start with a key that cannot be used is refused with one sentence that names it."""
    config = configure(a="d.example")
    check(config)
    (tmp_path / "a").unlink()
    with pytest.raises(ConfigError, match=r"dkim: a\._domainkey\.d\.example: .*cannot be read.*; check the path"):
        check(config)
