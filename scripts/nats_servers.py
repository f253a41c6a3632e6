"""Three NATS servers with JetStream on loopback, which sync always."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from ports import free_port

PATIENCE_S = 30.0
USER, PASSWORD = "zonemta", "wake up in time"
SYSTEM_USER, SYSTEM_PASSWORD = "admin", "sleep well"


def program() -> str:
    """ "": it is not installed."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server") or ""


class OneServer:
    """A process of its own, that can be killed, stopped and started again on the same port and files."""

    def __init__(self, folder: Path, number: int, routes: list[int], sync: str) -> None:
        self.folder, self.name, self.sync = folder / f"nats{number}", f"nats{number}", sync
        self.port, self.monitor_port, self._routes, self._number = free_port(), free_port(), routes, number - 1
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    def start(self) -> None:
        """Returns when it listens."""
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        sync = f"sync_interval: {self.sync}, " if self.sync else ""
        config = self.folder / "nats.conf"
        config.write_text(
            f"server_name: {self.name}\nlisten: 127.0.0.1:{self.port}\nhttp: 127.0.0.1:{self.monitor_port}\n"
            f'jetstream {{ {sync}store_dir: "{self.folder / "jetstream"}" }}\n'
            f"cluster {{ name: trial, listen: 127.0.0.1:{self._routes[self._number]}, routes: [{routes}] }}\n"
            f'accounts {{\n  ZONEMTA {{ jetstream: enabled, users: [{{ user: "{USER}", password: "{PASSWORD}" }}] }}\n'
            f'  $SYS {{ users: [{{ user: "{SYSTEM_USER}", password: "{SYSTEM_PASSWORD}" }}] }}\n}}\n'
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program(), "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while not listens(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"nats-server does not run: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def hang(self) -> None:
        """SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class ThreeServers:
    """sync: their `sync_interval`; "": the default, at which what is acknowledged need not be on stable storage."""

    def __init__(self, folder: Path, sync: str = "always") -> None:
        routes = [free_port() for _ in range(3)]
        self.all = [OneServer(folder, number, routes, sync) for number in (1, 2, 3)]

    def start(self) -> None:
        for server in self.all:
            if server.process is None:
                server.start()

    def ready(self) -> None:
        """Waits until JetStream has a leader, which all servers that run follow: before that it refuses everything, or
        knows fewer than there are."""
        end = time.monotonic() + 4 * PATIENCE_S
        while time.monotonic() < end:
            for server in self.all:
                try:
                    with urllib.request.urlopen(f"{server.monitor}/jsz", timeout=1) as answer:
                        group = json.loads(answer.read()).get("meta_cluster") or {}
                except OSError:
                    continue
                follow = [one for one in group.get("replicas") or () if one.get("current") and not one.get("offline")]
                running = sum(one.process is not None for one in self.all)
                if group.get("leader") == server.name and len(follow) >= running - 1:
                    return
            time.sleep(0.1)

    def end(self) -> None:
        for server in self.all:
            server.kill()

    def leader(self, stream: str) -> str:
        """The name of the server that leads that stream; "": none does, or it is not known."""
        for server in self.all:
            try:
                with urllib.request.urlopen(f"{server.monitor}/jsz?streams=true&accounts=true", timeout=1) as answer:
                    found = json.loads(answer.read())
            except OSError:
                continue
            for account in found.get("account_details") or ():
                for one in account.get("stream_detail") or ():
                    if one["name"] == stream and (leader := (one.get("cluster") or {}).get("leader")):
                        return str(leader)
        return ""

    def named(self, name: str) -> OneServer:
        return next(server for server in self.all if server.name == name)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.all]

    def settings(self, **more: object) -> dict[str, object]:
        """For `[cluster]`."""
        return {
            "name": "trial", "servers": self.urls, "username": USER, "password": PASSWORD,
            "system_username": SYSTEM_USER, "system_password": SYSTEM_PASSWORD, **more,
        }  # fmt: skip


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
