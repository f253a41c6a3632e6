"""Verdicts: what each tells the client, and that no text can break the SMTP dialogue."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.verdicts import REST_S_MAX, Defer, Drop, Hold, PluginFailed, Reject, Verdict

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_reject_replies() -> None:
    """The enhanced code is the given one, the one the text begins with, or x.7.1."""
    assert Reject(550, "No").reply == Reply(550, "5.7.1", "No")
    assert Reject(451, "Busy").reply == Reply(451, "4.7.1", "Busy")
    assert Reject(550, "No", "5.1.1").reply == Reply(550, "5.1.1", "No")
    assert Reject(550, "5.1.1 No").reply == Reply(550, "5.1.1", "No")


@pytest.mark.parametrize(("code", "enhanced"), [(250, ""), (600, ""), ("550", ""), (550, "4.1.1"), (550, "no")])
def test_reject_needs_a_refusing_code(code: int, enhanced: str) -> None:
    """A Reject that would accept, or contradict itself, is a mistake of the plugin."""
    with pytest.raises(ValueError, match=r"needs a code|not an enhanced"):
        Reject(code, "No", enhanced)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_defer_needs_a_time(seconds: float) -> None:
    """Defer by a negative or endless time is a mistake of the plugin."""
    with pytest.raises(ValueError, match="seconds"):
        Defer(seconds)


def test_other_replies() -> None:
    """Defer, Hold and a failure are temporary; Drop looks like success and keeps its reason to itself."""
    assert Defer(60, "Later").reply == Reply(451, "4.7.1", "Later")
    assert Defer(60).seconds == 60.0
    assert Drop("unwanted").reply == Reply(250, "2.0.0", "OK")
    assert Hold("look at it").reply.code == 451
    assert PluginFailed("p", "h", "secret").reply == Reply(451, "4.3.0", "Local processing failed, try again later")
    assert str(PluginFailed("p", "h", "x")) == "plugin p, hook h: x"
    assert all(issubclass(kind, Verdict) for kind in (Reject, Defer, Drop, Hold, PluginFailed))


@given(st.text())
def test_no_text_breaks_the_dialogue(text: str) -> None:
    """Whatever a plugin writes, the reply is short printable ASCII on one line."""
    for reply in (Reject(550, text).reply, Defer(1, text).reply, Hold(text).reply):
        assert reply.text.isascii()
        assert reply.text.isprintable()
        assert len(reply.text) <= 500


@pytest.mark.parametrize("until", [NOW.timestamp() + 90, NOW + timedelta(seconds=90)])
def test_defer_until_a_moment(monkeypatch: pytest.MonkeyPatch, until: float | datetime) -> None:
    """UNIX time, or a datetime of any time zone; what is past is now."""
    monkeypatch.setattr(time, "time", NOW.timestamp)
    assert Defer(until=until).seconds == pytest.approx(90)
    assert Defer(until=NOW.astimezone(timezone(timedelta(hours=5)))).seconds == 0
    assert Defer(until=1.0, text="Later").reply.text == "Later"


@pytest.mark.parametrize(
    "given",
    [
        {}, {"seconds": 5, "until": 5}, {"until": datetime(2030, 1, 1)}, {"until": "tomorrow"}, {"until": -1},
        {"until": NOW.timestamp() * 1000}, {"until": float("nan")}, {"until": True}, {"seconds": "5"},
        {"seconds": 5, "rest_s": -1}, {"seconds": 5, "rest_s": REST_S_MAX + 1}, {"seconds": 5, "rest_s": "5"},
    ],
)  # fmt: skip
def test_defer_needs_one_time_that_can_be_meant(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Defer (takes seconds|needs)"):
        Defer(**given)
