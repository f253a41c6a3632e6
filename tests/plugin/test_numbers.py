"""Counters, gauges and histograms of plugins: what is refused, what bounds them, and how they arrive in /metrics."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from zonemta_py.metrics.meter import ENDS_MAX, Meter
from zonemta_py.metrics.table import METRICS
from zonemta_py.monitoring import exposition
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.arguments import Process
from zonemta_py.plugin.numbers import SETS_MAX
from zonemta_py.plugin.testing import Mta, running
from zonemta_py.queues.joined.sizes import _histogram


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda api: api.count("", 1), "'' is not the name of a counter"),
        (lambda api: api.count(5), "5 is not the name of a counter"),
        (lambda api: api.count("x" * 101), "is not the name of a counter"),
        (lambda api: api.count("a\nb"), "is not the name of a counter"),
        (lambda api: api.count("\udc80"), "is not the name of a counter"),
        (lambda api: api.count("x", -1), "the counter 'x' cannot grow by -1; give a number from 0 up"),
        (lambda api: api.count("x", math.nan), "cannot grow by nan"),
        (lambda api: api.count("x", math.inf), "cannot grow by inf"),
        (lambda api: api.gauge(None, 1), "None is not the name of a gauge"),
        (lambda api: api.gauge("", None), "'' is not the name of a gauge"),
        (lambda api: api.gauge("x", math.nan), "the gauge 'x' cannot be nan; give a finite number, or None"),
        (lambda api: api.observe("x", -0.1), "the histogram 'x' has no place for -0.1"),
        (lambda api: api.observe("x", math.inf), "has no place for inf"),
        (lambda api: api.observe(b"x", 1), "is not the name of a histogram"),
        *(
            (lambda api, buckets=buckets: api.observe("x", 1, buckets=buckets), "the histogram 'x' needs buckets")
            for buckets in ((), (1, 1), (2, 1), (math.inf,), ("a",), range(31), 5)
        ),
    ],
)
def test_what_is_no_name_or_number(call: Callable[[Any], None], sentence: str) -> None:
    api = PluginApi("p")
    with pytest.raises(ValueError, match=r"^") as raised:
        call(api)
    assert sentence in str(raised.value)
    assert not api.numbers.counted
    assert not api.numbers.measured
    assert not list(api.numbers.histograms())


@pytest.mark.parametrize("value", ["1", None, [1], object()])
def test_what_is_no_number_at_all(value: Any) -> None:
    api = PluginApi("p")
    for call in (api.count, api.observe):
        with pytest.raises(TypeError):
            call("x", value)
    if value is not None:
        with pytest.raises(TypeError):
            api.gauge("x", value)


def test_a_histogram_keeps_its_buckets() -> None:
    api = PluginApi("p")
    api.observe("x", 1, buckets=[1, 2])
    api.observe("x", 1, buckets=(1.0, 2.0))
    with pytest.raises(ValueError, match="the histogram 'x' has other buckets; give it the same each time"):
        api.observe("x", 1)
    assert list(api.numbers.histograms()) == [(("x", ""), "1.0 1.0 2.0", 2), (("x", ""), "sum 1.0 2.0", 2.0)]


def test_labels_are_what_prometheus_can_have() -> None:
    """Whatever mail they came from."""
    api = PluginApi("p")
    api.count("x", label="a\udc80b")
    api.count("x", label="é" * 300)
    api.count("x", label=550)  # type: ignore[arg-type]
    assert set(api.numbers.counted) == {("x", "a?b"), ("x", "é" * 100), ("x", "550")}


def test_all_of_it_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once for each kind."""
    api = PluginApi("p")
    with caplog.at_level(logging.WARNING):
        for number in range(3 * SETS_MAX):
            api.count(f"name {number}", 2)
            api.gauge("g", number, str(number))
            api.observe("h", 1, str(number))
            api.observe(f"h {number}", 1)
    assert sum(api.numbers.counted.values()) == 6 * SETS_MAX
    assert len(api.numbers.counted) == 2 * SETS_MAX + 1
    assert len(api.numbers.measured) == SETS_MAX
    assert api.numbers.measured["g", "7"] == 7
    assert len({key for key, _, _ in api.numbers.histograms()}) <= 2 * SETS_MAX + 1
    assert sum(n for (name, _), end, n in api.numbers.histograms() if name == "h" and end[:3] != "sum") == 3 * SETS_MAX
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == len(set(said)) == 4


async def test_a_gauge_is_its_processs_own(make_host: Any, tmp_path: Path) -> None:
    """Its successor shows it after a reload."""
    host = make_host("async def start(api):\n    api.gauge('open', 3, 'a')\n    api.gauge('gone', 3)\n"
                     "    api.gauge('gone', None)\n")  # fmt: skip
    assert list(host.gauges()) == []
    await host.begin(Process("receiver", 2), tmp_path)
    assert list(host.gauges()) == [("zonemta_plugin_value", ("p1", "open", "a", "receiver-2"), 3.0)]
    host.retire()
    assert list(host.gauges()) == []
    await host.end()


def test_histograms_with_buckets_of_their_own_are_joined() -> None:
    """Of several processes, of several queues, and of plugins that have other buckets after a reload."""
    name, labels = "zonemta_plugin_observed", ["p", "h", ""]
    meter = Meter()
    meter.reported(
        "a", [[name, [*labels, "1.0"], 2], [name, [*labels, "inf"], 1], [name, [*labels, "sum 1.0"], 9.5]], [], 0
    )
    meter.reported("b", [[name, [*labels, "1.0"], 1], [name, [*labels, "0.5 0.25 0.5"], 4], [name, labels, 4]], [], 0)
    rows = meter.histograms()[name]
    assert rows == [[labels, [0, 4, 3, 1], 9.5, [0.25, 0.5, 1.0]]]
    joined = _histogram([*rows, [labels, [1, 1], 20, [2.0]], [["p", "x", ""], [1, 0], 1.0, [3.0]]])
    assert joined == [[labels, [0, 4, 3, 1, 2], 29.5, [0.25, 0.5, 1.0, 2.0]], [["p", "x", ""], [1, 0], 1.0, [3.0]]]
    text = exposition({"counters": {}, "gauges": {}, "histograms": {name: joined}}).decode()
    samples = {
        (sample.labels["histogram"], sample.labels.get("le", sample.name)): sample.value
        for family in text_string_to_metric_families(text)
        if family.name == name
        for sample in family.samples
    }
    assert samples["h", "0.5"] == 4
    assert samples["h", "2.0"] == 8
    assert samples["h", "+Inf"] == samples["h", f"{name}_count"] == 10
    assert samples["h", f"{name}_sum"] == 29.5
    assert samples["x", "3.0"] == 1


def test_other_buckets_with_each_reload_are_bounded() -> None:
    name, meter = "zonemta_plugin_observed", Meter()
    assert METRICS[name].buckets == ()
    for number in range(3 * ENDS_MAX):
        meter.reported("a", [[name, ["p", "h", "", str(float(number))], 1]], [], 0)
    ((_, counts, _, ends),) = meter.histograms()[name]
    assert len(ends) < ENDS_MAX
    assert sum(counts) == 3 * ENDS_MAX


PLUGIN = """
def setup(api):
    global _api
    _api = api

async def start(api, process):
    api.gauge("began", 1, label=process.role)

async def message_queue(envelope, info):
    _api.count("seen", label="\\udc80")
    _api.observe("size", info.size, label=envelope.sender, buckets=(10, 1000))
    _api.observe("seconds", 0.02)

async def smtp_rcpt_to(address, session):
    if address.address.startswith("wrong"):
        _api.gauge("began", float("nan"))
"""


async def test_they_are_in_the_metrics_of_a_real_server(tmp_path: Path) -> None:
    """Of all processes and of two queues; what is refused is the plugin's failure."""
    (tmp_path / "measuring.py").write_text(PLUGIN)
    async with running(tmp_path / "measuring.py", http=True, config="[server]\nqueues = 2\nreceivers = 2\n") as mta:
        for number in range(6):
            assert (await mta.send(f"anna{number}@example.com")).code == 250
        assert (await mta.send("wrong@example.com")).code == 451
        assert "plugin measuring, hook smtp_rcpt_to" in await mta.logged("the gauge 'began' cannot be nan")
        wanted = {
            ("count_total", "seen", "?", ""): 6,
            ("observed_count", "size", "shop@example.com", ""): 6,
            ("observed_bucket", "size", "shop@example.com", "10.0"): 0,
            ("observed_bucket", "size", "shop@example.com", "1000.0"): 6,
            ("observed_bucket", "seconds", "", "0.01"): 0,
            ("observed_bucket", "seconds", "", "0.025"): 6,
            **{("value", "began", role, name): 1 for role, name in (
                ("receiver", "receiver-1"), ("receiver", "receiver-2"), ("queue", "queue"), ("queue", "queue-1"),
                ("sender", "sender-1"), ("http", "http"),
            )},
        }  # fmt: skip
        end = time.monotonic() + 30
        while not wanted.items() <= (found := await _measured(mta)).items():
            assert time.monotonic() < end, (wanted, found)
            await asyncio.sleep(0.2)


async def _measured(mta: Mta) -> dict[tuple[str, str, str, str], float]:
    answer = await mta.http("GET", "/metrics", key="")
    assert answer.status == 200
    return {
        (
            sample.name.removeprefix("zonemta_plugin_"),
            next(sample.labels[kind] for kind in ("counter", "gauge", "histogram") if kind in sample.labels),
            sample.labels["label"],
            sample.labels.get("le", sample.labels.get("process", "")),
        ): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        if family.name in ("zonemta_plugin_count", "zonemta_plugin_value", "zonemta_plugin_observed")
        for sample in family.samples
    }
