"""Metrics, alert rules and the dashboard, with Debian's Prometheus: it reads the real MTA, and an alert fires."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import smtplib
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher

from tests.mail.reports.makers import DMARC, TLS
from tests.real.conftest import sink_in_a_thread
from zonemta_py.metrics.table import METRICS
from zonemta_py.sink.server import self_made

TOP = Path(__file__).resolve().parents[2]

from ports import free_port, kept_port  # noqa: E402
from survival.rig import Mta  # noqa: E402

RULES = TOP / "config" / "prometheus" / "rules.yml"
DASHBOARD = TOP / "config" / "grafana" / "zonemta.json"
PATIENCE_S = 60
MORE = """
[http]
enabled = true
port = {port}
metrics = "open"
[pull]
enabled = true
port = {pull}
[[listeners]]
name = "secure"
port = {secure}
tls = "implicit"
certificate = "{folder}/certificate.pem"
auth = true
[users]
shop = "{hash}"
[[accounts]]
name = "customer"
users = ["shop"]
sessions = 5
[[zones]]
name = "works"
recipient_domains = ["works.test"]
host = "127.0.0.1"
port = {sink}
sources = ["127.0.0.1"]
[[throttles]]
name = "slowly"
only = {{ zone = "works", campaign = "slow" }}
messages = "1/min"
[plugins]
enabled = ["{folder}/busy.py"]
[[event_sinks]]
name = "lines"
kind = "file"
path = "{folder}/events.jsonl"
"""
PLUGIN = """
import asyncio
from typing import Any
from zonemta_py.plugin import Drop, Envelope, Info, PluginApi
_api = None
def setup(api: PluginApi) -> None:
    global _api
    _api = api
    api.task("waits", _waits)
async def _waits() -> None:
    await asyncio.Event().wait()
async def message_queue(envelope: Envelope, info: Info) -> None:
    _api.count("seen", label="mail")
    _api.gauge("seen_last", 1)
    _api.observe("size", info.size)
    assert not envelope.sender.startswith("fails")
async def log_entry(entry: dict[str, Any]) -> None:
    entry["node"] = "n1"
    if entry.get("to") == "bob@dest.test":
        raise Drop("seen often enough")
"""
NONE_WHEN_WELL = (
    "zonemta_log_lines_dropped_total", "zonemta_returns_total", "zonemta_links_requests_total",
    "zonemta_sender_checks_total", "zonemta_process_failure_time_seconds", "zonemta_resting", "zonemta_learned",
)  # fmt: skip
"""What has no rows as long as nothing is wrong, and cannot be made wrong here; and of listeners that are not on."""

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
        self._kept = [kept_port() for _ in range(4)]
        self.port, self.pull, self.secure, nobody = (one.getsockname()[1] for one in self._kept)
        self._sink = sink_in_a_thread("rcpt:/^gone-/ 550 5.1.1 nobody here")
        sink = self._sink.__enter__()
        (folder / "certificate.pem").write_bytes(self_made("mta.test"))
        (folder / "busy.py").write_text(PLUGIN)
        more = MORE.format(
            port=self.port, pull=self.pull, secure=self.secure, sink=sink.port, folder=folder,
            hash=PasswordHasher(time_cost=1, memory_cost=1024).hash("right"),
        )  # fmt: skip
        self.mta = Mta(folder / "mta", nobody, processes=1, retry_min=1, more=more)
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
        return until(lambda: httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=60).text)

    def sample(self, line: str) -> float:
        """The value of one time series; 0 if it is not there."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.exposition(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def query(self, expression: str) -> dict[str, Any]:
        return dict(httpx.get(f"{self.url}/query", params={"query": expression}, timeout=60).json())

    def firing(self) -> set[str]:
        alerts = httpx.get(f"{self.url}/alerts", timeout=60).json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def send(self, recipient: str = "bob@dest.test", sender: str = "ann@src.test", fields: str = "") -> None:
        with smtplib.SMTP("127.0.0.1", self.mta.port) as client:
            client.sendmail(sender, [recipient], f"{fields}Subject: x\r\n\r\nx\r\n".encode())

    def busy(self) -> None:
        """Something of everything that is counted."""
        for number in range(3):
            self.send(f"u{number}@works.test", fields="X-Campaign: slow\r\n")
            self.send(f"u{number}@works.test")
        with contextlib.suppress(smtplib.SMTPDataError):
            self.send("bob@works.test", "fails@src.test")
        with contextlib.suppress(smtplib.SMTPAuthenticationError):
            anybody = ssl._create_unverified_context()
            with smtplib.SMTP_SSL("127.0.0.1", self.secure, context=anybody) as client:
                client.login("shop", "wrong")
        for line in (b"push jobs\nwork", b"pop jobs\n"):
            with socket.create_connection(("127.0.0.1", self.pull), 30) as connection:
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
        self.send("gone-one@works.test")
        token = (self.mta.folder / "http.token").read_text().strip()
        rows = {"rows": [{"kind": "complaint", "recipient": "u1@works.test", "text": "spam"}]}
        heard = httpx.post(
            f"http://127.0.0.1:{self.port}/v1/feedback", json=rows, headers={"Authorization": f"Bearer {token}"}
        )
        assert heard.status_code == 200, heard.text
        for message in (DMARC[0][1], TLS[0][1]):
            told = httpx.post(
                f"http://127.0.0.1:{self.port}/v1/feedback/report?proven=true", content=message,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "message/rfc822"},
            )  # fmt: skip
            assert told.status_code == 200, told.text
        self.mta.ask("stop", kind="zone", name="bulk")
        self.send("gone@dest.test")
        self.mta.ask("task", verb="delete", where={"recipient": "gone@dest.test"}, by="ann", undo_s=0)

    def close(self) -> None:
        self._prometheus.kill()
        self._prometheus.wait()
        self._output.close()
        self.mta.end()
        self._sink.__exit__(None, None, None)


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
    ran = subprocess.run(["promtool", *arguments], input=given, capture_output=True, text=True)
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
    assert promtool("check", "rules", str(RULES)) == ""
    assert named(RULES.read_text()) <= set(METRICS)
    assert named(DASHBOARD.read_text()) == set(METRICS)


BAD = {
    'up{job="zonemta"}': "0x100",
    'zonemta_queue_recipients{zone="z",state="queued"}': "0x30 2000+100x100",
    "zonemta_accepting": "0x100",
    "zonemta_disk_free_bytes": "1000x100",
    "zonemta_disk_reserve_bytes": "1000x100",
    'zonemta_process_failures_total{process="queue"}': "0+1x100",
    'zonemta_provider_answers_total{provider="p",verdict="delivered"}': "0+60x100",
    'zonemta_provider_answers_total{provider="p",verdict="deferred"}': "0+60x100",
    'zonemta_provider_answers_total{provider="p",verdict="bounced"}': "0+60x100",
    'zonemta_answers_total{zone="z",verdict="deferred",class="blocked-ip",stage="connect"}': "0+1x100",
    'zonemta_first_attempt_delay_seconds_bucket{zone="z",le="300"}': "0x100",
    'zonemta_first_attempt_delay_seconds_bucket{zone="z",le="900"}': "0+10x100",
    'zonemta_first_attempt_delay_seconds_bucket{zone="z",le="+Inf"}': "0+10x100",
    'zonemta_oldest_recipient_age_seconds{zone="z"}': "90000x100",
    'zonemta_loop_delay_seconds_bucket{le="0.25"}': "0x100",
    'zonemta_loop_delay_seconds_bucket{le="0.5"}': "0+10x100",
    'zonemta_loop_delay_seconds_bucket{le="+Inf"}': "0+10x100",
    'zonemta_in_doubt{zone="z"}': "0+1x100",
    'zonemta_event_sink_lag_seconds{sink="s"}': "1000x100",
    "zonemta_suppression_guards_up": "1x100",
    'zonemta_source_resting{source="s"}': "1x100",
    'zonemta_certificate_expiry_timestamp_seconds{listener="l"}': "86400x100",
    "zonemta_clock_steps_total": "0+1x100",
    'zonemta_auth_failures_total{listener="l"}': "0+60x100",
    'zonemta_plugin_failures_total{plugin="p",hook="h"}': "0+1x100",
}
"""By the minute: all that an alert is for."""
WELL = {
    'up{job="zonemta"}': "1x100",
    'zonemta_queue_recipients{zone="z",state="queued"}': "5000x100",
    'zonemta_answers_total{zone="z",verdict="delivered",class="",stage="dot"}': "0+60x100",
    'zonemta_provider_answers_total{provider="p",verdict="delivered"}': "0+60x100",
    'zonemta_provider_answers_total{provider="p",verdict="deferred"}': "0+6x100",
    'zonemta_provider_answers_total{provider="p",verdict="bounced"}': "0+1x100",
    "zonemta_accepting": "1x100",
    "zonemta_disk_free_bytes": "9000x100",
    "zonemta_disk_reserve_bytes": "1000x100",
    'zonemta_oldest_recipient_age_seconds{zone="z"}': "3000x100",
    'zonemta_certificate_expiry_timestamp_seconds{listener="l"}': "9000000x100",
    'zonemta_loop_delay_seconds_bucket{le="0.25"}': "0+10x100",
    'zonemta_loop_delay_seconds_bucket{le="+Inf"}': "0+10x100",
    "zonemta_clock_steps_total": "3x100",
    'zonemta_source_resting{source="s"}': "0x100",
}


def test_every_alert_fires_and_none_without_a_reason(tmp_path: Path) -> None:
    """By Prometheus's own rule tests: of a server on which everything is bad, and of one that is well."""
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]
    groups = []
    for series, wanted in ((BAD, firing), (WELL, [])):
        whole = {
            name: name.replace("}", ',instance="i"}') if "{" in name else f'{name}{{instance="i"}}' for name in series
        }
        rows = [{"series": whole[name], "values": values} for name, values in series.items()]
        ask = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "80m", "exp_samples": wanted}
        groups.append({"interval": "1m", "input_series": rows, "promql_expr_test": [ask]})
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [str(RULES)], "tests": groups}))
    assert promtool("test", "rules", str(tmp_path / "tests.yml")) == ""


def test_what_is_exposed_is_as_it_should_be(watched: Watched) -> None:
    """promtool has nothing to say of names, units and help."""
    assert promtool("check", "metrics", given=watched.exposition()) == ""


def test_an_alert_fires_where_nothing_is_delivered(watched: Watched) -> None:
    """A destination that is down, and rules that are evaluated every second: what has to fire does, and no other."""
    until(lambda: "ZonemtaNothingDelivered" in watched.firing())
    assert watched.firing() <= {"ZonemtaNothingDelivered", "ZonemtaDeferrals", "ZonemtaLoopDelay"}
    found = watched.query('zonemta_queue_recipients{zone="default"}')["data"]["result"]
    assert sum(float(row["value"][1]) for row in found) == 1


def test_every_panel_of_the_dashboard_has_something_to_show(watched: Watched) -> None:
    """Once there has been some mail of every kind, each of its questions has an answer that is not empty."""
    watched.busy()
    left = [one for one in expressions() if not any(name in one for name in NONE_WHEN_WELL)]

    def all_have() -> bool:
        nonlocal left
        answers = [(one, watched.query(asked(one))) for one in left]
        assert {answer["status"] for _, answer in answers} == {"success"}, answers
        left = [one for one, answer in answers if not answer["data"]["result"]]
        return not left

    try:
        until(all_have)
    except AssertionError:
        raise AssertionError(f"nothing to show for {left}") from None


def test_a_plugin_changes_and_drops_lines_of_the_log(watched: Watched) -> None:
    """Those about mail among them; and what it counts is exposed."""
    watched.send("eve@dest.test")
    until(lambda: " to=eve@dest.test " in watched.mta.log.read_text())
    (line,) = [line for line in watched.mta.log.read_text().splitlines() if " to=eve@dest.test " in line]
    assert line.endswith(" node=n1")
    assert " to=bob@dest.test " not in watched.mta.log.read_text()
    assert until(lambda: watched.sample('zonemta_plugin_count_total{counter="seen",label="mail",plugin="busy"}')) >= 1


def asked(expression: str) -> str:
    """As Grafana asks it: for all instances and zones."""
    return expression.replace("$__rate_interval", "10s").replace("$instance", ".*").replace("$zone", ".*")


def test_the_restart_of_a_receiver_takes_nothing_back(watched: Watched) -> None:
    """What it had counted stays counted, and that it was started again is."""
    sessions = 'zonemta_smtp_sessions_total{listener="smtp"}'
    before, mail = until(lambda: watched.sample(sessions)), 'zonemta_messages_accepted_total{by="smtp"}'
    accepted = watched.sample(mail)
    assert watched.mta.kill("receiver")
    until(lambda: watched.sample('zonemta_process_starts_total{process="receiver-1"}') == 2)
    assert watched.sample('zonemta_process_failures_total{process="receiver-1"}') == 1
    assert watched.sample(sessions) >= before
    watched.send()
    until(lambda: watched.sample(sessions) > before)
    assert watched.sample('zonemta_process_resident_memory_bytes{process="receiver-1"}') > 1e6
    assert watched.sample(mail) == accepted + 1
