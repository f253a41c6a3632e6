"""What `zonemta send` can ask for: options become parameters of MAIL and fields of the header."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zonemta_py.cli.send.options import Asked, asked, with_fields
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.sink import Sink, SinkOptions

NOW = 1_795_248_000_000
"""2026-11-21T08:00:00Z."""
OFFERED = ("8BITMIME", "MT-PRIORITY MIXER", "FUTURERELEASE 2592000 2036-12-21T08:00:00Z", "DELIVERBY 1")


@pytest.fixture
def sinks() -> Iterator[Callable[..., Sink]]:
    """sinks("MT-PRIORITY", …) → a running sink that offers these."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    started: list[Sink] = []

    def start(*capabilities: str) -> Sink:
        sink = Sink(SinkOptions(("127.0.0.1:0",), capabilities=capabilities, keep=True))
        started.append(asyncio.run_coroutine_threadsafe(sink.__aenter__(), loop).result(10))
        return sink

    yield start
    for sink in started:
        asyncio.run_coroutine_threadsafe(sink.__aexit__(None, None, None), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Asked({}, {})),
        ({"campaign": "spring", "tenant": "acme"}, Asked({"X-Campaign": "spring", "X-Tenant": "acme"}, {})),
        ({"window": "office", "unsubscribe": True}, Asked({"X-Window": "office", "X-Unsubscribe": "yes"}, {})),
        ({"time_zone": "Europe/Berlin"}, Asked({"X-Time-Zone": "Europe/Berlin"}, {})),
        ({"priority": 0}, Asked({}, {"MT-PRIORITY": "MT-PRIORITY=0"})),
        ({"at": "60"}, Asked({}, {"FUTURERELEASE": "HOLDFOR=60"})),
        ({"at": "+060"}, Asked({}, {"FUTURERELEASE": "HOLDFOR=60"})),
        ({"at": "0"}, Asked({}, {})),
        ({"at": "2026-11-21T10:00:00+01:00"}, Asked({}, {"FUTURERELEASE": "HOLDUNTIL=2026-11-21T09:00:00Z"})),
        ({"at": "Sat, 21 Nov 2026 07:59:30 GMT"}, Asked({}, {})),
        ({"by": "2026-11-21T09:00:00Z"}, Asked({}, {"DELIVERBY": "BY=3600;R"})),
    ],
)
def test_options_become_fields_and_parameters(options: dict[str, Any], expected: Asked) -> None:
    """What other servers know too goes with MAIL; a hold that has just ended is none."""
    assert asked(NOW, **options) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"campaign": "a b"}, "--campaign: 'a b' is not a valid name"),
        ({"window": "x\r\nBcc: y"}, "--window: .* is not a valid name"),
        ({"time_zone": "x\r\nBcc: y"}, "--time-zone: .* is not a time zone"),
        ({"at": "tomorrow"}, "--at: 'tomorrow' is not a moment in time; write it like 2h, 14:30, tomorrow 9:00"),
        ({"by": "0"}, "--by: '0' is in the past"),
        ({"at": "2020-01-01"}, "--at: '2020-01-01' is in the past"),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(options: dict[str, Any], said: str) -> None:
    """As a usage error that names the option."""
    with pytest.raises(CommandError, match=said) as caught:
        asked(NOW, **options)
    assert caught.value.code == Exit.USAGE


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"A: b\r\n\r\nx\r\n", b"X-Tenant: t\r\nA: b\r\n\r\nx\r\n"),
        (b"\r\nx\r\n", b"X-Tenant: t\r\n\r\nx\r\n"),
        (b"only body\r\n", b"X-Tenant: t\r\n\r\nonly body\r\n"),
        (b"", b"X-Tenant: t\r\n"),
    ],
)
def test_fields_go_on_top(message: bytes, expected: bytes) -> None:
    """Also where there is no header section; a body never becomes part of one."""
    assert with_fields(message, {"X-Tenant": "t"}) == expected
    assert with_fields(message, {}) == message


def test_it_goes_out_as_asked(zonemta: Callable[..., Any], sinks: Callable[..., Sink]) -> None:
    """All options at once: parameters of MAIL and fields on top of the message."""
    sink = sinks(*OFFERED)
    options = ("--campaign", "spring", "--priority", "-4", "--at", "60", "--by", "120", "--unsubscribe")
    ran = zonemta("send", *options, "--port", sink.port, "-f", "a@b.org", "c@d.org", stdin=b"Subject: s\n\nx\n")
    assert (ran.code, ran.err) == (0, "")
    (message,) = sink.messages
    assert set(message.parameters[0].split()) >= {"MT-PRIORITY=-4", "HOLDFOR=60", "BY=120;R"}
    assert message.body == b"X-Campaign: spring\r\nX-Unsubscribe: yes\r\nSubject: s\r\n\r\nx\r\n"


def test_a_server_that_offers_less_gets_nothing(zonemta: Callable[..., Any], sinks: Callable[..., Sink]) -> None:
    """A hold or deadline that would be forgotten is refused here, by name of the extension."""
    sink = sinks("8BITMIME")
    ran = zonemta("send", "--at", "60", "--port", sink.port, "c@d.org", stdin=b"\nx\n")
    assert ran.code == Exit.UNAVAILABLE
    assert "does not offer FUTURERELEASE" in ran.err
    assert not sink.messages
