"""A real MTA and a real sink with mail of all kinds: delivered, deferred, bounced, held, waiting; two campaigns, a
suspension, a source that warms up, suppressed addresses, and texts that are made to break a page."""

from __future__ import annotations

import base64
import json
import smtplib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from ports import free_port

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>{{7*7}}\"'"
ROOT = Path(__file__).parents[2]
_START_S = 240.0
_AT_ONCE = 1_000
_CONFIG = """
[server]
folder = "{folder}/queue"
hostname = "mx1.example.net"
receivers = 1
senders = 1
[queue]
reserve_bytes = 0
keep_bounced_s = 3600
[[listeners]]
name = "smtp"
address = "127.0.0.1"
port = {smtp}
relay_networks = ["127.0.0.0/8"]
trust_headers = true
[http]
enabled = true
dashboard = {dashboard}
port = {http}
[[warmups]]
name = "month"
caps = [50, 100, 500, 1000, 5000]
[[pools]]
name = "main"
[[pools.sources]]
address = "127.0.0.2"
hostname = "out1.example.net"
[[pools.sources]]
address = "127.0.0.3"
hostname = "out2.example.net"
warmup = "month"
[[zones]]
name = "default"
default = true
host = "127.0.0.1"
port = {sink}
pool = "main"
[[zones]]
name = "bulk"
host = "127.0.0.1"
port = {sink}
campaigns = true
[[zones]]
name = "receipts"
host = "127.0.0.1"
port = {away}
"""
_RULES = (
    "rcpt:/@slow/ 451 4.7.1 Greylisted, try again in five minutes", "rcpt:/@gone/ 550 5.7.1 Not accepted by our policy",
    f"rcpt:/@hostile/ 451 4.2.0 {HOSTILE[:70]}",
    "dot 250 ok, after 0.05s",
)  # fmt: skip


class Scene:
    """Ends its processes by `stop`."""

    def __init__(self, folder: Path, dashboard: bool = True) -> None:
        self.folder, self.smtp, self.http, self.sink = folder, free_port(), free_port(), free_port()
        self.config = folder / "zonemta.toml"
        self.config.write_text(
            _CONFIG.strip().format(
                folder=folder,
                dashboard=str(dashboard).lower(),
                smtp=self.smtp,
                http=self.http,
                sink=self.sink,
                away=free_port(),
            )
        )
        self.address = f"http://127.0.0.1:{self.http}/dashboard"
        rules = [part for rule in _RULES for part in ("--rule", rule)]
        command = [sys.executable, "-m", "zonemta_py", "sink", "--listen", f"127.0.0.1:{self.sink}", "-q", *rules]
        self._sink = subprocess.Popen(command, cwd=ROOT)
        self._mta: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        command = [sys.executable, "-m", "zonemta_py", "run", "--config", str(self.config)]
        self._mta = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log)
        self.until(lambda: bool(urlopen(f"http://127.0.0.1:{self.http}/v1/health", timeout=60)))

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + _START_S
        while True:
            try:
                if done():
                    return
            except OSError:
                pass
            if time.monotonic() > end or (self._mta is not None and self._mta.poll() is not None):
                raise TimeoutError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.1)

    @property
    def key(self) -> str:
        return (self.folder / "queue" / "http.token").read_text().strip()

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json", **more}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"http://127.0.0.1:{self.http}{path}", data, headers, method=method), timeout=60) as reply:
            return json.load(reply)

    def put(self, sender: str, to: list[str], subject: str = "Your order", **fields: str) -> None:
        """One message, to all of them."""
        lines = [
            f"From: {sender}",
            f"Subject: {subject}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items()),
        ]
        with smtplib.SMTP("127.0.0.1", self.smtp, timeout=120) as client:
            client.sendmail(sender, to, "\r\n".join([*lines, "", "Hello"]).encode())

    def fill(self) -> None:
        """Mail of all kinds, in a few seconds."""
        for number in range(60):
            self.put("shop@example.com", [f"ann{number}@well.example"], f"Order {number}")
        for number in range(12):
            self.put("shop@example.com", [f"bob{number}@slow.example"], f"Invoice {1000 + number}")
        self.put("shop@example.com", ["nobody@gone.example", "eve@gone.example"], "Welcome")
        self.put("shop@example.com", ["mallory@hostile.example"], HOSTILE)
        for number in range(8):
            self.put(
                "receipts@example.com", [f"cy{number}@shop{number % 3}.example"], "Receipt", X_Sending_Zone="receipts"
            )
        people = [f"p{number}@{place}.example" for number in range(300) for place in ("well", "slow")]
        text = base64.b64encode(template()).decode()
        for name, tenant in (("spring-2026", "acme"), ("newsletter-47", "globex")):
            self.ask(
                "PUT",
                f"/v1/campaigns/{name}",
                {
                    "sender": "news@example.com",
                    "tenant": tenant,
                    "zone": "bulk",
                    "template": text,
                    "planned": len(people),
                },
            )
            batch = {"campaign": name, "columns": [], "recipients": [[one] for one in people]}
            self.ask("POST", "/v1/inject", batch, **{"idempotency-key": name})
        self.ask(
            "POST",
            "/v1/suppressions",
            {
                "rows": [
                    {"address": f"no{number}@well.example", "kind": kind, "reason": "said so"}
                    for number, kind in enumerate(("manual", "unsubscribe", "complaint", "hard-bounce") * 4)
                ]
            },
        )

    def crowd(self, recipients: int) -> None:
        """So many of one campaign, *big*, that wait in a suspended zone; a multiple of 1,000, in 500 domains."""
        self.ask("PUT", "/v1/suspensions/zone/bulk", {"cause": "night"})
        text = base64.b64encode(template()).decode()
        self.ask("PUT", "/v1/campaigns/big", {"sender": "news@example.com", "zone": "bulk", "template": text})
        for begin in range(0, recipients, _AT_ONCE):
            rows = [[f"u{number}@d{number % 500}.example"] for number in range(begin, begin + _AT_ONCE)]
            batch = {"campaign": "big", "columns": [], "recipients": rows}
            self.ask("POST", "/v1/inject", batch, **{"idempotency-key": f"big-{begin}"})

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "zonemta_py", *words, "--config", str(self.config)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def pid(self, process: str) -> int:
        """Of the queue's process, or another; 0: there is none now."""
        assert self._mta is not None
        for child in Path(f"/proc/{self._mta.pid}/task/{self._mta.pid}/children").read_text().split():
            try:
                if Path(f"/proc/{child}/comm").read_text().strip() == f"zonemta {process}":
                    return int(child)
            except OSError:
                continue
        return 0

    def kill(self) -> None:
        """The MTA, all of it, at once."""
        assert self._mta is not None
        self._mta.kill()
        self._mta.wait()

    def stop(self) -> None:
        for process in (self._mta, self._sink):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def template() -> bytes:
    from zonemta_py.merge.source import TemplateSource, Text

    return TemplateSource(
        "t", Text("Spring is here"), Text("news@example.com"), text=Text("Hello\n"), prepared=True
    ).pack()
