"""What stands in a log line, and in what shape."""

import json
import logging
import re
from pathlib import Path

import pytest

from zonemta_py.config import Config
from zonemta_py.logs import privacy, setup
from zonemta_py.logs.privacy import Persons, UserName
from zonemta_py.logs.shape import as_json, as_text, moment
from zonemta_py.logs.stream import LogStream
from zonemta_py.reception.log_throttle import LogThrottle

NASTY = ["a b", "", 'q"uote', "back\\slash", "new\nline", "esc\x1b[2J", "\x7f", "\x9b1m", "é@ü.test", "a=b", "\u2028"]


@pytest.mark.parametrize("value", NASTY)
def test_no_value_can_be_taken_for_another_line_or_field(value: str) -> None:
    """Text quotes it as JSON does; JSON has it as it is, on one line."""
    text = as_text(0, "info", "mail", "answered", {"id": "1", "text": value}).decode()
    assert text.startswith("1970-01-01T00:00:00.000Z INFO mail: answered id=1 text=")
    assert text.endswith("\n")
    shown = text[:-1].partition("text=")[2]
    assert shown.isascii()
    assert shown.isprintable()
    assert (json.loads(shown) if shown.startswith('"') else shown) == value
    assert " " not in shown or shown.startswith('"')
    line = as_json(0, "info", "mail", "answered", {"id": "1", "text": value})
    assert line.count(b"\n") == 1
    assert json.loads(line)["text"] == value


def test_messages_of_other_lines_cannot_steer_a_terminal() -> None:
    """A traceback keeps its lines."""
    assert as_text(0, "error", "x", "a\x1b[2J\nb", {}) == b"1970-01-01T00:00:00.000Z ERROR x: a\\x1b[2J\nb\n"


def test_what_cannot_be_json_is_shown_as_it_looks() -> None:
    """A plugin may put anything into an entry."""
    assert json.loads(as_json(0, "info", "mail", "m", {"what": {1, 2}, "big": 1 << 70}))["what"] == "{1, 2}"


def test_times_are_utc_to_the_millisecond() -> None:
    assert [moment(ms) for ms in (1_700_000_000_007, 1_700_000_000_999, 1_700_000_001_000)] == [
        "2023-11-14T22:13:20.007Z", "2023-11-14T22:13:20.999Z", "2023-11-14T22:13:21.000Z",
    ]  # fmt: skip


def test_a_hash_is_the_same_for_one_person_and_needs_the_key(tmp_path: Path) -> None:
    """In any case of letters; another key, another hash; the key is kept, and nobody else's to read."""
    one, again = (privacy.of("hashed", tmp_path) for _ in range(2))
    other = Persons.hashed(b"other")
    assert one is not None
    assert again is not None
    hidden = one.address("Ann@src.test")
    assert re.fullmatch(r"[0-9a-f]{12}@src\.test", hidden)
    assert hidden == again.address("ann@src.test") != other.address("ann@src.test")
    assert (tmp_path / "log.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["log.key"]


def test_what_is_cut_names_nobody() -> None:
    """Neither in the fields nor in a reply that repeats an address."""
    fields = {
        "sender": "ann@src.test", "to": "bob@a.test,eve@b.test", "user": "shop", "client": "192.0.2.77",
        "text": "550 <bob@a.test>: no such user", "size": 7, "recipient": '"bob, the builder"@a.test',
        "reason": 'ann "x y"@b.test asked for it',
    }  # fmt: skip
    Persons.cut().fields(fields)
    assert fields == {
        "sender": "…@src.test", "to": "…@a.test,…@b.test", "user": "…", "client": "192.0.2.0/24",
        "text": "550 <…@a.test>: no such user", "size": 7, "recipient": "…@a.test",
        "reason": "ann …@b.test asked for it",
    }  # fmt: skip


def test_other_lines_have_the_same_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what is printed, and tracebacks, as JSON; people are hidden in them too, and clients that were refused."""
    import sys

    monkeypatch.setattr(sys, "stderr", LogStream(sys.stderr))
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    config = Config.model_validate({"server": {"folder": tmp_path}, "log": {"format": "json", "personal": "cut"}})
    setup.begin(config, lambda entry: entry | {"message": entry["message"].replace("too", "very")})
    try:
        raise OSError("no bob@src.test")
    except OSError:
        logging.getLogger("zonemta_py.x").exception("too bad for %s", "ann@src.test")
    print("zonemta: ready", file=sys.stderr)
    notes = LogThrottle(logging.getLogger("zonemta_py.reception.smtp"))
    message = "listener %s, client %s: login of %.80r refused"
    for client in ("192.0.2.7", "2001:db8:1:2::3"):
        notes.warn("login", client, message, "shop", client, UserName("shop"))
    logging.getLogger("zonemta_py.delivery").warning("no answer from %s", "198.51.100.4")
    one, two, *refused, ours = map(json.loads, capsys.readouterr().err.splitlines())
    assert [row["message"] for row in refused] == [
        "listener shop, client 192.0.2.0/24: login of '…' refused",
        "listener shop, client 2001:db8:1::/48: login of '…' refused",
    ]
    assert ours["message"] == "no answer from 198.51.100.4", "a server is nobody"
    assert (one["level"], one["logger"], one["message"]) == ("error", "zonemta_py.x", "very bad for …@src.test")
    assert one["exception"].endswith("OSError: no …@src.test")
    assert (two["logger"], two["message"]) == ("zonemta", "ready")
