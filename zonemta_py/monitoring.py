"""Metrics for Prometheus: the numbers of the queue in the format that it reads; prometheus-client writes it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from zonemta_py.metrics.table import METRICS, Metric
from zonemta_py.queue import questions

MEDIA_TYPE = CONTENT_TYPE_LATEST


def exposition(answer: questions.Metrics) -> bytes:
    """answer: to `questions.metrics`."""
    gauges = answer["gauges"] | {"zonemta_build_info": [[[importlib.metadata.version("zonemta-py")], 1]]}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Answer(answer["counters"], answer["histograms"], gauges))
    return bytes(generate_latest(registry))


class _Answer(Collector):
    def __init__(self, counters: dict[str, Any], histograms: dict[str, Any], gauges: dict[str, Any]) -> None:
        self._rows = {"counter": counters, "histogram": histograms, "gauge": gauges}

    def collect(self) -> Iterator[Family]:
        """Every metric of the table; one that has no rows yet has at least its HELP and TYPE."""
        for metric in METRICS.values():
            rows = self._rows[metric.kind].get(metric.name, [])
            yield _MAKE[metric.kind](metric, rows)


def _counter(metric: Metric, rows: list[Any]) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows or ([] if metric.labels else [[[], 0]]):
        family.add_metric(labels, value)
    return family


def _gauge(metric: Metric, rows: list[Any]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, rows: list[Any]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, counts, total, *own in rows:
        ends = [*map(str, map(float, own[0] if own else metric.buckets)), "+Inf"]
        family.add_metric(labels, list(zip(ends, accumulate(counts), strict=True)), total)
    return family


_MAKE = {"counter": _counter, "gauge": _gauge, "histogram": _histogram}
