"""[[event_sinks]] at message brokers: what is refused is refused in one sentence with the remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zonemta_py.config import Config, ConfigError, load
from zonemta_py.config.services.events import EventSink
from zonemta_py.events.sinks import kinds
from zonemta_py.events.sinks.base import SinkClient


def read(tmp_path: Path, kind: str, lines: str) -> Config:
    path = tmp_path / "zonemta.toml"
    path.write_text(f"[[event_sinks]]\nname = 'w'\nkind = '{kind}'\n{lines}")
    return load(path)


@pytest.mark.parametrize(
    ("kind", "lines", "sentence"),
    [
        ("amqp", "", "event_sinks[w]: an amqp needs a url such as amqps://rabbit.example.com/vhost"),
        ("amqp", "url = 'amqp://h.test/'", "amqp:// would carry addresses of people in the clear; use amqps://, or"),
        ("nats", "url = 'nats://h.test'", "use tls://, or set"),
        ("redis", "url = 'redis://h.test'", "use rediss://, or set"),
        ("amqp", "url = 'amqps://ann:hush-1@h.test/'", "url must not contain a login; write username and password"),
        (
            "amqp",
            "url = 'amqps://h.test/?heartbeat=1'",
            "must be such as amqps://rabbit.example.com/vhost, and nothing",
        ),
        ("nats", "url = 'tls://h.test/stream'", "the url of nats must be such as tls://nats.example.com, and nothing"),
        ("redis", "url = 'rediss://h.test/mail'", "'mail' is not the number of a database; write a url such as"),
        ("nats", "url = 'tls://h.test'\nsubject = 'mail.*'", "'mail.*' must not be empty, nor have blanks, *, > or"),
        ("amqp", "url = 'amqps://h.test'\nrouting_key = '{campaign}'", "other placeholders than {type} and {zone}"),
        (
            "kafka",
            "url = 'kafka://h.test'",
            "kafka:// would carry addresses of people in the clear; use tls://, or set",
        ),
        (
            "kafka",
            "url = 'kafka://127.0.0.1'\nbootstrap = ['h.test:9092']",
            "addresses of people in the clear; use tls",
        ),
        ("kafka", "url = 'tls://h.test/topic'", "the url of kafka must be such as tls://kafka.example.com:9093, and"),
        ("kafka", "url = 'tls://h.test'\ntopic = 'mail/{type}'", "'mail/{type}' is no topic: A-Z a-z 0-9 . _ - and"),
        ("kafka", "url = 'tls://h.test'\nbootstrap = ['h2.test']", "'h2.test' must be host:port, such as kafka2."),
        ("redis", "url = 'rediss://h.test'\nstream = ''", "write a name such as zonemta.{type}"),
    ],
)
def test_mistakes(tmp_path: Path, kind: str, lines: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, kind, lines)
    said = str(caught.value)
    assert sentence in said
    assert "\n" not in said
    assert "hush" not in said


@pytest.mark.parametrize(
    ("kind", "library", "url"),
    [
        ("amqp", "aio_pika", "amqps://h.test/v"),
        ("nats", "nats", "tls://h.test"),
        ("redis", "redis", "rediss://h.test/1"),
        ("kafka", "aiokafka", "tls://h.test:9093"),
    ],
)
def test_each_kind_has_its_sink_and_says_what_is_not_installed(
    kind: str, library: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EventSink.model_validate({"name": "w", "kind": kind, "url": url})
    client: SinkClient = kinds.client(settings, "urn:zonemta:x")
    assert type(client).__name__.lower() == f"{kind}sink"
    monkeypatch.delitem(sys.modules, f"zonemta_py.events.sinks.{kind}")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as caught:
        kinds.client(settings, "urn:zonemta:x")
    assert f"{kind} needs the Python package {library}, which is not installed" in str(caught.value)
    assert "pip install 'zonemta-py[events]'" in str(caught.value)


def test_no_password_in_the_settings_as_text() -> None:
    """Wherever an exception or a debugger shows them."""
    lines = {"name": "w", "kind": "nats", "url": "tls://h.test", "username": "ann", "password": "hush-1"}
    assert "hush" not in repr(EventSink.model_validate(lines))


def test_a_file_with_certificates_that_is_not_there(tmp_path: Path) -> None:
    lines = {"name": "w", "kind": "redis", "url": "rediss://h.test", "ca_file": tmp_path / "none.pem"}
    with pytest.raises(ConfigError, match=r"event sink 'w': ca_file .* cannot be used .*; name a readable PEM file"):
        kinds.client(EventSink.model_validate(lines), "urn:zonemta:x")
