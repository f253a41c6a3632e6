"""[[event_sinks]]: what is refused is refused in one sentence with the remedy, and no secret is in it."""

from pathlib import Path

import pytest

from zonemta_py.config import Config, ConfigError, load
from zonemta_py.reference import effective

WEBHOOK = "[[event_sinks]]\nname = 'w'\nkind = 'webhook'\n"
SECRET = "whsec_" + "c2VzYW1l" * 5


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "zonemta.toml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("", "event_sinks[w]: a webhook needs a url such as https://events.example.com/zonemta"),
        ("url = 'ftp://h.test/'", "needs a url such as"),
        ("url = 'https://'", "needs a url such as"),
        ("url = 'https://h.test:99999/'", "needs a url such as"),
        ("url = 'http://h.test/'", "http:// would carry addresses of people in the clear; use https://, or set"),
        ("url = 'https://h.test/'\nsecret = ['hush-1']", "a secret is whsec_ and 24 bytes or more in base64"),
        ("url = 'https://h.test/'\nsecret = ['whsec_hush-1']", "zonemta config secret --webhook"),
        ("url = 'https://h.test/'\ntypes = ['deliverd']", "'deliverd'"),
        ("url = 'https://h.test/'\ndomains = ['a b']", "'a b' is not a domain"),
        ("url = 'https://h.test/'\nretry_max_s = 0.1", "retry_max_s is less than retry_s"),
        ("url = 'https://h.test/'\npage_bytes = 13000", "page_bytes"),
        ("url = 'https://h.test/'\n" + WEBHOOK + "url = 'https://h.test/'", "two event_sinks are named 'w'"),
    ],
)
def test_mistakes(tmp_path: Path, lines: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, WEBHOOK + lines)
    said = str(caught.value)
    assert sentence in said
    assert "\n" not in said
    assert "hush" not in said


def test_types_that_do_not_exist_are_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'delivered'.*'configuration_changed'"):
        read(tmp_path, WEBHOOK + "url = 'https://h.test/'\ntypes = ['x']")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    lines = f"url = 'https://ann:hush-1@h.test/'\nsecret = ['{SECRET}']\nusername = 'ann'\npassword = 'hush-2'"
    shown = effective(read(tmp_path, WEBHOOK + lines))
    assert "hush" not in shown
    assert "c2VzYW1l" not in shown
    assert "https://***@h.test/" in shown


def test_loopback_and_consent_need_no_tls(tmp_path: Path) -> None:
    read(tmp_path, WEBHOOK + "url = 'http://127.0.0.1:8080/'")
    read(tmp_path, WEBHOOK + "url = 'http://[::1]:8080/'")
    read(tmp_path, WEBHOOK + "url = 'http://h.test/'\ncleartext = true")
