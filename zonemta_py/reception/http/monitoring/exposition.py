"""The numbers of the queue in the format that Prometheus reads; prometheus-client writes it.

Certificates are looked at here, and not in the queue's process: reading them needs a library that mail does not.
"""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from zonemta_py.config import Config, ConfigError, Listener
from zonemta_py.metrics.table import METRICS, Metric
from zonemta_py.reception import tls

MEDIA_TYPE = CONTENT_TYPE_LATEST
LOOK_S = 30
"""How long what a certificate's file said is believed."""


class Certificates:
    """When the listeners' certificates end: those in force, which one that cannot be used does not replace. A look
    that fails is repeated with the next question, and the first one is made at once, as listeners make theirs."""

    def __init__(self, config: Config) -> None:
        self._listeners = [one for one in config.all_listeners if one.certificate and one.tls != "none"]
        self._ends: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        """When each was looked at, and could be used."""
        for listener in self._listeners:
            self._look(listener)

    def rows(self) -> list[list[Any]]:
        """[[listener], UNIX time]; without those that could never be used. Reads files."""
        now = time.monotonic()
        for listener in self._listeners:
            if now - self._looked.get(listener.name, -math.inf) >= LOOK_S:
                self._look(listener)
        return [[[name], end] for name, end in self._ends.items()]

    def _look(self, listener: Listener) -> None:
        from cryptography import x509

        assert listener.certificate is not None
        try:
            tls.check(listener)
            own = x509.load_pem_x509_certificates(listener.certificate.expanduser().read_bytes())[0]
        except (ConfigError, OSError, ValueError):
            return
        self._looked[listener.name] = time.monotonic()
        self._ends[listener.name] = own.not_valid_after_utc.timestamp()


def exposition(answer: dict[str, Any], certificates: list[list[Any]]) -> bytes:
    """answer: to the question "metrics"."""
    gauges = answer["gauges"] | {
        "zonemta_certificate_expiry_timestamp_seconds": certificates,
        "zonemta_build_info": [[[importlib.metadata.version("zonemta-py")], 1]],
    }
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
    ends = [*map(str, map(float, metric.buckets)), "+Inf"]
    for labels, counts, total in rows:
        family.add_metric(labels, list(zip(ends, accumulate(counts), strict=True)), total)
    return family


_MAKE = {"counter": _counter, "gauge": _gauge, "histogram": _histogram}
