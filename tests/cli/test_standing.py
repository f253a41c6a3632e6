"""`zonemta suspend`, `resume` and `standing` against a real queue; spans of time as people write them."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

Told = Callable[..., Any]


@pytest.mark.parametrize("of", ["zone default", "domain later.org"])
def test_a_suspension_says_how_much_waits(served: Callable[..., Any], told: Told, of: str) -> None:
    """All that is in the queue for it, deferred, too; what is deleted waits for nothing."""
    body = b"Subject: hello\r\n\r\n"
    addresses = [Recipient(f"{name}@later.org") for name in "abc"]

    async def put(queue: LocalQueue) -> None:
        envelope = Envelope("ann@example.com", addresses, len(body))
        envelope.received_ms = time.time_ns() // 1_000_000
        await queue.accept(envelope, body)

    served().do(put)
    told("queue", "set", "--set-at", "2h", "--all", "--yes")
    told("queue", "delete", "--recipient", "c@later.org", "--yes")
    assert "(2 recipients waiting); undo: " in told("suspend", *of.split()).out


def test_a_provider_is_a_destination(served: Callable[..., Any], told: Told) -> None:
    """It may be called what it is; it stands there as what it stops, and either word ends it."""
    served()
    assert "destination google is suspended until it is resumed" in told("suspend", "provider", "google").out
    (row,) = json.loads(told("standing", "--json").out)
    assert (row["kind"], row["name"]) == ("destination", "google")
    assert told("resume", "provider", "google").code == Exit.OK
    assert json.loads(told("standing", "--json").out) == []


def test_stop_standing_lift(served: Callable[..., Any], told: Told) -> None:
    """An order, the list with its cause, its end and the command that undoes it; that command, run as it stands."""
    served(shares={"campaigns": {"spring-sale": 1}})
    ran = told("suspend", "campaign", "spring-sale", "--for", "2h", "--because", "complaints")
    assert ran.code == Exit.OK
    assert "campaign spring-sale is suspended until" in ran.out
    assert "in 2 h" in ran.out
    assert "nothing is waiting now" in ran.out
    out = told("standing").out
    assert "campaign suspended" in out
    assert "complaints" in out
    (row,) = json.loads(told("standing", "--json").out)
    assert (row["kind"], row["name"], row["undo"]) == (
        "campaign",
        "spring-sale",
        "zonemta resume campaign spring-sale",
    )
    assert abs(row["until_ms"] - row["since_ms"] - 7_200_000) <= 1  # two clocks, each rounded
    assert row["undo"] in out
    assert "is resumed" in told(*row["undo"].split()[1:]).out
    assert "Nothing is suspended" in told("standing").out


def test_former_names_go_on_working(served: Callable[..., Any], told: Told) -> None:
    """Hidden, but there: scripts have them."""
    served()
    assert told("stop", "zone", "default").out.startswith("zone default is suspended until it is resumed")
    assert told("lift", "zone", "default").out == "zone default is resumed\n"


def test_orders_for_programs(served: Callable[..., Any], told: Told) -> None:
    """What was ordered, and what undoes it, as JSON."""
    served()
    row = json.loads(told("suspend", "zone", "default", "--for", "1h", "--json").out)
    assert (row["kind"], row["held"], row["undo"]) == ("zone", 0, "zonemta resume zone default")
    assert json.loads(told("resume", "zone", "default", "--json").out) == {"kind": "zone", "name": "default"}


def test_the_end_of_a_day_is_midnight() -> None:
    """What ends a fraction of a second before the hour is over at the hour: 00:00:00, not 23:59:59."""
    hour_ms = 1_780_002_000_000
    for short_ms in (0, 1, 999):
        assert when.until(hour_ms - short_ms, hour_ms - 60_000) == when.until(hour_ms, hour_ms - 60_000)
    assert when.until(hour_ms - 1000, hour_ms - 60_000) != when.until(hour_ms, hour_ms - 60_000)


def test_without_an_end_it_is_until_lifted(served: Callable[..., Any], told: Told) -> None:
    """And a shorter order does not end it sooner."""
    served()
    assert "until it is resumed" in told("suspend", "zone", "default").out
    assert "until it is resumed" in told("suspend", "zone", "default", "--for", "1h").out
    assert "by an operator" in told("standing").out


def test_a_source_that_there_is_not(served: Callable[..., Any], told: Told) -> None:
    """An order that would do nothing is refused, with those that there are."""
    served(zones=[{"name": "default", "pool": "p"}], pools=[{"name": "p", "sources": [{"address": "127.0.0.2"}]}])
    for name in ("foo", "300.1.1.1"):
        ran = told("suspend", "source", name)
        assert (ran.code, ran.out) == (Exit.DATA, "")
        assert ran.err == f"zonemta: there is no source '{name}'; there are 127.0.0.2\n"
    assert told("suspend", "source", "127.0.0.2").code == Exit.OK


def test_everything_that_stands_can_be_undone(served: Callable[..., Any], told: Told) -> None:
    """A rest by rule, a learned rate, fewer connections, a destination that cannot be reached: each by its command."""
    queue = served(
        zones=[{"name": "default", "pool": "p"}], pools=[{"name": "p", "sources": [{"address": "127.0.0.2"}]}]
    )

    async def teach(queue: LocalQueue) -> None:
        schedule = queue.core.schedule
        zone = schedule.zones["default"]
        standing = schedule.policy
        standing.stop("rest", "127.0.0.2 x.org", 600, "blocked-ip: 550 on a list")
        standing.stop("no-tls", "z.org", 3600, "tls-broken: 454 TLS not now")
        for _ in range(6):
            standing.learned_concurrency.failed(zone.zone, "y.org", "127.0.0.2", "421 busy")
        standing.apply(
            ["rate", ["127.0.0.2", "google"],
             {"rate": 0.5, "ceiling": 1.0, "first": 1.0, "cut": schedule.now(), "next": 0.0, "step": 0.02, "tat": 0.0,
              "cause": "1/s → 30/min: 421 slow down"}, ""]
        )  # fmt: skip

    queue.do(teach)
    rows = json.loads(told("standing", "--json").out)
    assert sorted(row["kind"] for row in rows) == ["concurrency", "no-tls", "rate", "rest"]
    out = told("standing").out
    for words in ("550 on a list", "dead", "30/min", "421 slow down", "source rests", "fewer connections"):
        assert words in out
    for row in rows:
        assert row["undo"] in out
        assert told(*row["undo"].split()[1:]).code == Exit.OK
    assert json.loads(told("standing", "--json").out) == []


def test_what_any_command_prints_is_resumed(served: Callable[..., Any], told: Told) -> None:
    """The site alone, or the whole name of a flow queue, as JSON of trace and lanes has it; a domain as a destination,
    too. A campaign is only meant by its whole name."""
    queue = served(
        zones=[{"name": "default", "host": "127.0.0.1", "port": 9}], shares={"campaigns": {"spring-sale": 1}}
    )

    async def teach(queue: LocalQueue) -> None:
        for source in ("127.0.0.2", "127.0.0.3"):
            queue.core.schedule.policy.stop("rest", f"{source} x.org", 600, "blocked-ip: 550 on a list")
        queue.core.schedule.policy.stop("no-tls", "z.org", 3600, "tls-broken: 454 TLS not now")

    queue.do(teach)
    for suspended, resumed in (
        (("destination", "X.org."), ("destination", "x.org")),
        (("destination", "x.org"), ("domain", "x.org")),
        (("destination", "x.org"), ("destination", "@x.org>127.0.0.1:9~127.0.0.2~0~~")),
        (("destination", "127.0.0.1:9"), ("destination", "127.0.0.1:9~~1~t~c")),
        (("destination", "127.0.0.1:9"), ("domain", "127.0.0.1:9")),
    ):
        assert told("suspend", *suspended).code == Exit.OK
        assert told("resume", *resumed).code == Exit.OK, resumed
    assert len(json.loads(told("standing", "--json").out)) == 3
    assert told("resume", "rest", "y.org").code == Exit.DATA
    assert told("resume", "rest", "x.org~127.0.0.2~0~~").code == Exit.OK
    assert told("resume", "no-tls", "z.org").code == Exit.OK
    assert json.loads(told("standing", "--json").out) == []
    assert told("suspend", "campaign", "spring-sale").code == Exit.OK
    assert told("resume", "campaign", "spring").code == Exit.DATA


def test_tls_that_was_switched_off_stops_no_mail(served: Callable[..., Any], told: Told) -> None:
    """The list says that mail goes there without TLS, why and until when; not that nothing goes."""
    queue = served()

    async def switch_off(queue: LocalQueue) -> None:
        queue.core.schedule.policy.stop("no-tls", "z.org", 7200, "tls-broken: 454 TLS not now")

    queue.do(switch_off)
    out = told("standing").out
    for words in ("TLS is switched off", "z.org", "mail is sent without TLS", "tls-broken: 454 TLS not now", "in 2 h"):
        assert words in out
    assert "nothing goes" not in out
    assert "undo: zonemta resume no-tls z.org" in out


def test_nothing_to_lift(served: Callable[..., Any], told: Told) -> None:
    """One sentence that names the list; a kind there is not, too."""
    served()
    ran = told("resume", "campaign", "spring")
    assert ran.code == Exit.DATA
    assert "there is no campaign 'spring' to resume; `zonemta standing`" in ran.err
    assert "there is no 'colour' to resume" in told("resume", "colour", "red").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["campaign", "c", "--for", "soon"],
            "--for: 'soon' is not a length of time; write it like 90s, 15min, 2h, 3d or 1d12h",
        ),
        (["campaign", "c", "--for", "2 moons"], "--for: '2 moons' is not a length of time"),
        (["campaign", "c", "--for", "0s"], "--for: '0s' is not between a second and a year"),
        (["campaign", "c", "--for", "9999d"], "is not between a second and a year"),
        (["colour", "red"], "value for 'KIND': 'colour' is not one of"),
    ],
)
def test_orders_that_are_wrong(told: Told, arguments: list[str], said: str) -> None:
    """One sentence with how it is written."""
    ran = told("suspend", *arguments)
    assert ran.code == Exit.USAGE
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_zone_that_is_not_there(served: Callable[..., Any], told: Told) -> None:
    """It cannot be stopped: a slip of the pen is not to look like an order."""
    served()
    ran = told("suspend", "zone", "defualt")
    assert ran.code == Exit.DATA
    assert "there is no zone 'defualt'; there are default" in ran.err


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15min", 900),
        ("15m", 900),
        ("2h", 7200),
        ("3d", 259_200),
        ("1.5 h", 5400),
        ("2 days", 172_800),
        ("1d12h", 129_600),
        ("1 day, 12 hours", 129_600),
        ("2w", 1_209_600),
    ],
)
def test_spans(text: str, seconds: float) -> None:
    """As people write them."""
    assert when.span(text, "--for") == seconds


@settings(max_examples=200)
@given(st.text(max_size=12) | st.from_regex(r"\d{1,6}(\.\d{1,3})? ?[a-z]{1,4}", fullmatch=True))
def test_a_span_is_seconds_or_a_sentence(text: str) -> None:
    """Never anything else, whatever is typed."""
    try:
        seconds: float = when.span(text, "--for")
    except CommandError as stop:
        seconds = 1 if re.match(r"--for: .* is not (a length of time|between)", stop.sentence) else 0
    assert 1 <= seconds <= when.SPAN_S_MAX


@given(st.integers(1_000_000_000_000, 2_000_000_000_000), st.integers(1, 400 * 86_400_000))
def test_moments_have_a_time_and_a_span(now_ms: int, ahead_ms: int) -> None:
    """The time is local, with its offset from UTC; 0 is nobody knows."""
    said = when.until(now_ms + ahead_ms, now_ms)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d, in \d+ (s|min|h|days)", said)
    assert when.since(now_ms, now_ms + ahead_ms).endswith(" ago")
    assert (when.since(0, now_ms), when.until(0, now_ms, "lifted")) == ("", "lifted")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (89, "89 s"), (240, "4 min"), (5400, "2 h"), (86_400, "24 h"), (200_000, "2 days")],
)
def test_lengths(seconds: float, said: str) -> None:
    """In the unit that fits."""
    assert when.length(seconds) == said


def test_more_than_a_page(served: Callable[..., Any], told: Told) -> None:
    """All are listed, each once, though the queue answers in pages."""
    queue = served()

    async def suspend(queue: LocalQueue) -> None:
        for number in range(2100):
            queue.core.schedule.policy.stop("tenant", f"t{number}", 3600, "many")

    queue.do(suspend)
    rows = json.loads(told("standing", "--json").out)
    assert sorted(row["name"] for row in rows) == sorted(f"t{number}" for number in range(2100))
