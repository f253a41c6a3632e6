"""The sink as a provider that has had enough: 421 or 451 above a rate, which may change while it runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.sink import Sink, SinkError, SinkOptions, depth
from zonemta_py.sink.service import SinkThrottle

SLOW = 0.001
"""Messages per second: no second one will be allowed as long as a test runs."""


def options(**rates: Any) -> SinkOptions:
    return SinkOptions(listen=("127.0.0.1:0",), keep=True, **rates)


GAPS = st.lists(st.floats(0, 0.5), min_size=1, max_size=200)


@given(GAPS, st.floats(0.5, 50), st.integers(1, 20))
def test_never_more_than_rate_and_burst(gaps: list[float], rate: float, burst: int) -> None:
    """Whenever a client comes, what is allowed stays within rate × seconds + burst in every window."""
    throttle, now, allowed = SinkThrottle(options(rate_limit=rate, rate_burst=burst)), 100.0, []
    for gap in gaps:
        now += gap
        if throttle.allows("c", now):
            allowed.append(now)
    assert depth(allowed, rate) <= burst + rate * 1e-5  # the clock is only so exact


@given(GAPS, st.floats(0.5, 50), st.integers(1, 20))
def test_within_the_rate_nothing_is_refused(gaps: list[float], rate: float, burst: int) -> None:
    """And what stays within passes: refusals take nothing from the bucket, so it is never stricter than it says."""
    throttle, now, level = SinkThrottle(options(rate_limit=rate, rate_burst=burst)), 100.0, 0.0
    for gap in gaps:
        now, level = now + gap, max(level - rate * gap, 0.0)
        if throttle.allows("c", now):
            level += 1
        else:
            assert level + 1 > burst - rate * 1e-5


def test_each_client_has_its_own() -> None:
    """One address's flood takes nothing from another's."""
    throttle = SinkThrottle(options(rate_limit=SLOW))
    assert [throttle.allows(client, 5.0) for client in ("a", "a", "b")] == [True, False, True]


@pytest.mark.parametrize("code", [421, 451])
async def test_above_the_rate(code: int, start_sink: Any, connect: Any) -> None:
    """The second message is refused at MAIL; 421 hangs up behind it, 451 leaves the connection alone."""
    sink = await start_sink(rate_limit=SLOW, rate_code=code, per_second=True)
    client = await connect(sink.port)
    assert (await client.until_data())[-1].startswith("354")
    assert (await client.say(b"x\r\n.\r\n")).startswith("250")
    assert (await client.say("MAIL FROM:<a@b>")).startswith(f"{code} 4.7.28 127.0.0.1 sends too much")
    if code == 421:
        assert await client.rest() == b""
    else:
        assert (await client.say("NOOP")).startswith("250")
    assert sink.counters.replies == {f"rate {code}": 1}
    assert sum(counts["refused"].get("127.0.0.1", 0) for counts in sink.timeline.seconds.values()) == 1


async def test_a_rate_that_changes(start_sink: Any, connect: Any) -> None:
    """It can be set, lifted and set again while connections are open; what makes no sense changes nothing."""
    sink: Sink = await start_sink(rate_code=451)
    client = await connect(sink.port)
    codes = []
    for limit in (0, SLOW, SLOW, 0):
        sink.change(rate_limit=limit)
        codes += [(await client.say("MAIL FROM:<a@b>"))[:3]]
        await client.say("RSET")
    assert codes == ["250", "250", "451", "250"]
    for wrong in ({"rate_limit": -1}, {"rate_code": 550}, {"rate_burst": 0.5}, {"latency_s": 1}, {"rate_limit": "x"}):
        with pytest.raises(SinkError):
            sink.change(**wrong)
    assert sink.options.rate_limit == 0


async def test_a_control_file(start_sink: Any, tmp_path: Path, caplog: Any) -> None:
    """The file's rates hold from the start, follow its changes, and nonsense in it changes nothing but the log."""
    control = tmp_path / "rates.json"
    control.write_text('{"rate_limit": 20}')
    sink = await start_sink(control=control)
    assert sink.options.rate_limit == 20
    for text, limit, burst in (
        ('{"rate_limit": 40, "rate_burst": 5}', 40, 5),
        ("nonsense", 40, 5),
        ("[]", 40, 5),
        ('{"rate_limit": 0}', 0, 5),
    ):
        before, said = sink.options, len(caplog.records)
        control.write_text(text)
        async with asyncio.timeout(60):
            while sink.options == before and len(caplog.records) == said:  # noqa: ASYNC110 (no event for a file)
                await asyncio.sleep(0.01)
        assert (sink.options.rate_limit, sink.options.rate_burst) == (limit, burst)
    assert sum("changes nothing" in record.getMessage() for record in caplog.records) == 2


async def test_times_of_everything(start_sink: Any, connect: Any, tmp_path: Path) -> None:
    """Connections, messages and refusals leave a line each, in order; the record counts by second."""
    events, record = tmp_path / "events", tmp_path / "record"
    sink = await start_sink(events=events, record=record, per_second=True, rate_limit=SLOW, keep=False)
    client = await connect(sink.port)
    client.send(b"MAIL FROM:<>\r\nRCPT TO:<a@One.test>\r\nRCPT TO:<b@one.test>\r\nRCPT TO:<c@two.test>\r\nDATA\r\n")
    client.send(b"text\r\n.\r\nMAIL FROM:<>\r\n")
    await client.rest()
    while sink.counters.open:  # noqa: ASYNC110 (a sink has no event for each of its counters)
        await asyncio.sleep(0.01)
    sink.write_record()
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    times = [row.pop("t") for row in rows]
    assert times == sorted(times)
    assert {(row.pop("client"), row.pop("connection")) for row in rows} == {("127.0.0.1", 1)}
    assert rows == [
        {"kind": "connect", "server": "127.0.0.1"},
        {"kind": "message", "bytes": 6, "domains": {"one.test": 2, "two.test": 1}},
        {"kind": "refused"},
        {"kind": "close"},
    ]
    seconds = list(json.loads(record.read_text())["seconds"].values())
    total = {kind: [counts[kind] for counts in seconds if counts[kind]] for kind in ("clients", "domains", "refused")}
    assert total == {
        "clients": [{"127.0.0.1": 1}],
        "domains": [{"one.test": 2, "two.test": 1}],
        "refused": [{"127.0.0.1": 1}],
    }


async def test_times_need_to_be_asked_for(start_sink: Any) -> None:
    """Asking a sink that keeps no times for them is an error that says how to get them."""
    sink = await start_sink()
    with pytest.raises(RuntimeError, match="per_second=True"):
        _ = sink.timeline


@given(st.lists(st.floats(0, 100), max_size=40), st.floats(0.1, 20))
def test_depth_is_the_worst_window(times: list[float], rate: float) -> None:
    """As if every window from one event to another were tried."""
    times.sort()
    windows = [
        last - first + 1 - rate * (times[last] - times[first])
        for first in range(len(times))
        for last in range(first, len(times))
    ]
    assert depth(times, rate) == pytest.approx(max(windows, default=0.0), abs=1e-6)
