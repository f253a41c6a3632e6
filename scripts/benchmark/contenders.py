"""The programs that are measured: this MTA and Postfix, each relaying everything from one port to another on loopback.

Both keep mail as durably as they are shipped to do. Postfix gets what the operator of a relay would set: no DNS, more
processes, more connections to the one destination.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ports import free_port

from benchmark.processes import Group

ROOT = Path(__file__).resolve().parents[2]
POSTFIX = "/usr/sbin/postfix"
START_S = 60


class BenchError(Exception):
    """One sentence: what could not be measured, and what to do."""


class Contender(ABC):
    """A program under test. folder: its own; port: where it takes mail; sink_port: where all mail is to go."""

    name = ""
    starttls = False
    """Whether the sink offers it."""
    domains = 1
    """Among how many its recipients are."""
    root = ROOT
    """The checkout that it is."""

    def __init__(self, folder: Path, sink_port: int) -> None:
        self.folder, self.port, self.sink_port = folder, free_port(), sink_port
        self.output = folder / "output"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)

    @property
    def ports(self) -> list[int]:
        """Where mail goes in, as much to each."""
        return [self.port]

    @abstractmethod
    def wipe(self) -> None:
        """Empties the queue; the program is down."""

    @abstractmethod
    def command(self) -> list[str]:
        """What runs it in the foreground."""

    @abstractmethod
    def version(self) -> str:
        """As the program itself says it; "" if it does not."""

    def start(self, group: Group, prefix: Sequence[str] = ()) -> float:
        """Returns time.monotonic() of the start, once the banner was there. Raises BenchError."""
        begun = time.monotonic()
        process = group.start([*prefix, *self.command()], self.output, self.root)
        while time.monotonic() - begun < START_S:
            if banner(self.port):
                return begun
            if process.poll() is not None:
                break
            time.sleep(0.005)
        raise BenchError(f"{self.name} did not open its port; the end of its output: {self._tail()}")

    def beside(self, messages: int) -> dict[str, float]:
        """What its helpers, which are not counted with it, have used for so many messages."""
        return {}

    def ended(self) -> None:  # noqa: B027 (most leave nothing behind)
        """Its processes have ended."""

    def _tail(self) -> str:
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return " | ".join(text.strip().splitlines()[-5:]) or "(empty)"


def banner(port: int, host: str = "127.0.0.1") -> bool:
    """True if an SMTP server answers."""
    try:
        with socket.create_connection((host, port), 5) as client:
            ready = client.recv(512).startswith(b"220")
            client.sendall(b"QUIT\r\n")
            client.recv(512)
            return ready
    except OSError:
        return False


class Zonemta(Contender):
    """This MTA, from config/bench.toml; `zone` and `server` change that file's zone and server, `sections` are
    added."""

    name = "zonemta-py"

    def __init__(
        self,
        folder: Path,
        sink_port: int,
        zone: dict[str, Any] | None = None,
        sections: dict[str, Any] | None = None,
        server: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(folder, sink_port)
        document = tomllib.loads((self.root / "config" / "bench.toml").read_text())
        document["server"] |= {"folder": str(folder / "queue"), **(server or {})}
        document["listeners"][0]["port"] = self.port
        document["zones"][0].update({"port": sink_port, **(zone or {})})
        document |= sections or {}
        self.config = folder / "bench.toml"
        self.config.write_text(to_toml(document))

    def wipe(self) -> None:
        shutil.rmtree(self.folder / "queue", ignore_errors=True)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "zonemta_py", "run", "--config", str(self.config)]

    def version(self) -> str:
        return f"{_output(['git', '-C', str(self.root), 'describe', '--always', '--dirty']) or 'unknown'}"


def to_toml(document: dict[str, Any]) -> str:
    """Tables and arrays of tables of plain values; JSON's scalars and lists are TOML's too."""
    lines = []
    for name, value in document.items():
        for table in value if isinstance(value, list) else [value]:
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(entry)}" for key, entry in table.items()]
    return "\n".join(lines) + "\n"


class Postfix(Contender):
    """Debian's Postfix from a private configuration, spool and data folder; needs root, as Postfix itself does."""

    name = "Postfix"

    def __init__(self, folder: Path, sink_port: int) -> None:
        super().__init__(folder, sink_port)
        self._etc = folder / "etc"
        self._etc.mkdir()
        (self._etc / "main.cf").write_text(self._main())
        shutil.copy("/usr/share/postfix/master.cf.dist", self._etc / "master.cf")
        self._postconf("-F", "*/*/chroot=n")
        self._postconf("-MX", "smtp/inet")
        where = f"127.0.0.1:{self.port}"
        self._postconf("-M", f"{where}/inet={where} inet n - n - - smtpd")

    @staticmethod
    def missing() -> str:
        """Why it cannot be measured here; "" where it can."""
        if not os.path.exists(POSTFIX):
            return f"{POSTFIX} is not installed (apt-get install postfix)"
        if os.geteuid() != 0:
            return "Postfix starts only as root, and this is not"
        return ""

    def _main(self) -> str:
        settings = {
            "compatibility_level": "3.6",
            "queue_directory": self.folder / "spool",
            "data_directory": self.folder / "data",
            "maillog_file": self.folder / "maillog",
            "maillog_file_prefixes": self.folder,
            "command_directory": "/usr/sbin",
            "daemon_directory": "/usr/lib/postfix/sbin",
            "myhostname": "postfix.bench",
            "mydestination": "",
            "alias_maps": "",
            "alias_database": "",
            "inet_interfaces": "loopback-only",
            "inet_protocols": "ipv4",
            "mynetworks": "127.0.0.0/8",
            "relayhost": f"[127.0.0.1]:{self.sink_port}",
            "smtp_dns_support_level": "disabled",
            "smtp_host_lookup": "native",
            "default_process_limit": 200,
            "default_destination_concurrency_limit": 100,
            "in_flow_delay": "0",
            "message_size_limit": 100 * 1024 * 1024,
            "mailbox_size_limit": 0,
        }
        return "".join(f"{name} = {value}\n" for name, value in settings.items())

    def _postconf(self, *words: str) -> None:
        subprocess.run(["/usr/sbin/postconf", "-c", str(self._etc), *words], check=True)

    def wipe(self) -> None:
        for name in ("spool", "data"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        shutil.chown(self.folder / "data", "postfix")
        command = [POSTFIX, "-c", str(self._etc), "post-install", "create-missing"]
        subprocess.run(command, check=True, capture_output=True)

    def command(self) -> list[str]:
        return [POSTFIX, "-c", str(self._etc), "start-fg"]

    def version(self) -> str:
        return _output(["/usr/sbin/postconf", "-hd", "mail_version"])


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:  # the program is not installed
        return ""
