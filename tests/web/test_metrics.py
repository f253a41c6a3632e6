"""GET /metrics: who may ask, and that what is answered can be read by others."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import trustme
from prometheus_client.parser import text_string_to_metric_families

from zonemta_py.metrics import report
from zonemta_py.metrics.table import METRICS
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.web.keys import hashed


def door_with(open_http: Any, **http: Any) -> Any:
    rights = {"eyes": ["read"], "numbers": ["metrics"], "hands": ["inject"]}
    keys = [{"name": name, "hash": hashed(name), "rights": right} for name, right in rights.items()]
    return open_http(http={"keys": keys, **http})


def test_a_key_needs_the_right_to_read_or_to_ask_for_metrics(open_http: Any) -> None:
    """No key, no numbers; another right is not enough."""
    door = door_with(open_http)
    for key, status in (("eyes", 200), ("numbers", 200), ("hands", 403), ("", 401)):
        with door.client_with(key) as client:
            assert client.get("/metrics").status_code == status, key
    with door.client_with("numbers") as client:
        assert client.get("/v1/campaigns").status_code == 403


def test_this_machine_may_ask_without_a_key_if_that_is_configured(open_http: Any) -> None:
    """And for nothing else."""
    with door_with(open_http, metrics="open").client_with("") as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1/campaigns").status_code == 401


def test_every_metric_is_there_in_the_format_that_prometheus_reads(open_http: Any, tmp_path: Any) -> None:
    """Name, kind and help as in the table; what is counted of a message that was handed in."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    pem = tmp_path / "cert.pem"
    pem.write_bytes(issued.private_key_pem.bytes() + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    door = door_with(open_http, certificate=str(pem))
    letter = {"from": "a@b.test", "to": ["c@d.test", "e@d.test"], "subject": "x", "text": "y"}
    assert door.client.post("/v1/inject", json=letter).status_code == 200
    door.do(lambda queue: report._Teller("http", partial(queue.ask, "report"), QueueRefusal).tell())
    answer = door.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert set(families) == {name.removesuffix("_total") for name in METRICS}
    for name, metric in METRICS.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["zonemta_recipients_accepted_total", "default"] == 2
    assert samples["zonemta_messages_accepted_total", "http"] == 1
    assert samples["zonemta_queue_recipients", "default", "queued"] == 2
    assert samples["zonemta_certificate_expiry_timestamp_seconds", "http"] > time.time()
