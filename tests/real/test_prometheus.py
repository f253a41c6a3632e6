"""Metrics, alert rules and the dashboard, with Debian's Prometheus: it reads the real MTA, and an alert fires."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import smtplib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from zonemta_py.metrics.table import METRICS

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from ports import free_port, kept_port  # noqa: E402
from survival.rig import Mta  # noqa: E402

RULES = TOP / "config" / "prometheus" / "rules.yml"
DASHBOARD = TOP / "config" / "grafana" / "zonemta.json"
PATIENCE_S = 60
HTTP = '[http]\nenabled = true\nport = {port}\nmetrics = "open"\n'

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed (apt-get install prometheus)"
)


def until(what: Callable[[], Any]) -> Any:
    """What it returns as soon as that is something."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            if found := what():
                return found
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, what
        time.sleep(0.1)


def quickly(rules: str) -> str:
    """The shipped rules with seconds for minutes and hours."""
    rules = re.sub(r"\[\d+[mhd]\]", "[10s]", rules)
    return re.sub(r"for: \w+", "for: 1s", re.sub(r"offset \w+", "offset 10s", rules))


class Watched:
    """An MTA whose destination is down, and a Prometheus that asks it every second."""

    def __init__(self, folder: Path) -> None:
        self._kept, self._nobody = kept_port(), kept_port()
        self.port = self._kept.getsockname()[1]
        more = HTTP.format(port=self.port)
        self.mta = Mta(folder / "mta", self._nobody.getsockname()[1], processes=1, retry_min=1, more=more)
        self.mta.start()
        asyncio.run(self.mta.taking())
        (folder / "rules.yml").write_text(quickly(RULES.read_text()))
        jobs = [{"job_name": "zonemta", "static_configs": [{"targets": [f"127.0.0.1:{self.port}"]}]}]
        times = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        settings = {"global": times, "rule_files": ["rules.yml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/api/v1"
        command = ["prometheus", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
        command += [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        self._output = (folder / "prometheus.log").open("wb")
        self._prometheus = subprocess.Popen(command, stdout=self._output, stderr=self._output)

    def exposition(self) -> str:
        return until(lambda: httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=30).text)

    def sample(self, line: str) -> float:
        """The value of one time series; 0 if it is not there."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.exposition(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def query(self, expression: str) -> dict[str, Any]:
        return dict(httpx.get(f"{self.url}/query", params={"query": expression}, timeout=30).json())

    def firing(self) -> set[str]:
        alerts = httpx.get(f"{self.url}/alerts", timeout=30).json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def send(self) -> None:
        with smtplib.SMTP("127.0.0.1", self.mta.port) as client:
            client.sendmail("ann@src.test", ["bob@dest.test"], b"Subject: x\r\n\r\nx\r\n")

    def close(self) -> None:
        self._prometheus.kill()
        self._prometheus.wait()
        self._output.close()
        self.mta.end()


@pytest.fixture(scope="module")
def watched(shared_memory: Path) -> Iterator[Watched]:
    folder = shared_memory / "watched"
    folder.mkdir()
    one = Watched(folder)
    try:
        one.send()
        yield one
    finally:
        one.close()
        shutil.rmtree(folder)


def promtool(*arguments: str, given: str = "") -> str:
    ran = subprocess.run(["promtool", "check", *arguments], input=given, capture_output=True, text=True)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def named(text: str) -> set[str]:
    """Metrics that stand somewhere, without what Prometheus appends to histograms."""
    found = set(re.findall(r"\bzonemta_\w+", text))
    return {short if (short := re.sub(r"_(bucket|sum|count)$", "", name)) in METRICS else name for name in found}


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_rules_and_dashboard_name_what_there_is() -> None:
    """promtool takes the rules; the dashboard shows every metric."""
    assert promtool("rules", str(RULES)) == ""
    assert named(RULES.read_text()) <= set(METRICS)
    assert named(DASHBOARD.read_text()) == set(METRICS)


def test_what_is_exposed_is_as_it_should_be(watched: Watched) -> None:
    """promtool has nothing to say of names, units and help."""
    assert promtool("metrics", given=watched.exposition()) == ""


def test_an_alert_fires_where_nothing_is_delivered(watched: Watched) -> None:
    """A destination that is down, and rules that are evaluated every second: what has to fire does, and no other."""
    until(lambda: "ZonemtaNothingDelivered" in watched.firing())
    assert watched.firing() <= {"ZonemtaNothingDelivered", "ZonemtaDeferrals", "ZonemtaLoopDelay"}
    found = watched.query('zonemta_queue_recipients{zone="default"}')["data"]["result"]
    assert sum(float(row["value"][1]) for row in found) == 1


def test_every_question_of_the_dashboard_can_be_answered(watched: Watched) -> None:
    """Prometheus understands each."""
    for expression in expressions():
        asked = expression.replace("$__rate_interval", "10s").replace("$instance", ".*").replace("$zone", ".*")
        assert watched.query(asked)["status"] == "success", expression


def test_the_restart_of_a_receiver_takes_nothing_back(watched: Watched) -> None:
    """What it had counted stays counted, and that it was started again is."""
    sessions = 'zonemta_smtp_sessions_total{listener="smtp"}'
    before = until(lambda: watched.sample(sessions))
    assert watched.mta.kill("receiver")
    until(lambda: watched.sample('zonemta_process_starts_total{process="receiver-1"}') == 2)
    assert watched.sample('zonemta_process_failures_total{process="receiver-1"}') == 1
    assert watched.sample(sessions) >= before
    watched.send()
    until(lambda: watched.sample(sessions) > before)
    assert watched.sample('zonemta_process_resident_memory_bytes{process="receiver-1"}') > 1e6
    assert watched.sample('zonemta_messages_accepted_total{by="smtp"}') == 2
