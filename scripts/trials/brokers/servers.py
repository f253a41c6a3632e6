"""Real brokers on loopback, each with a folder and ports of its own: started, killed, started again with what they had
on disk, ended. None is a service of the system, and none is ended but by its process id."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ports import free_port

USER, PASSWORD = "zonemta", "correct-horse"
WEAK_USER = "weak"
"""May log in, and write nothing."""
PATIENCE_S = 60.0
_RABBIT_TLS = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {file}
ssl_options.certfile = {file}
ssl_options.keyfile = {file}
"""
_REDIS_TLS = """\
tls-port {port}
tls-cert-file {file}
tls-key-file {file}
tls-ca-cert-file {authority}
tls-auth-clients {asked}
"""
_RABBIT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Server:
    """One process that listens on `port` once it can be used."""

    scheme = tls_scheme = program = ""

    def __init__(self, folder: Path, certificate: Path | None = None, authority: Path | None = None) -> None:
        """certificate: a PEM file with key and certificate, to be reached by `tls_url` too. authority: that of clients,
        who then must show a certificate (Redis and NATS)."""
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority
        self.folder, self.port, self.tls_port, self.certificate = folder, free_port(), free_port(), certificate
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str:
        """Why it cannot be run here; "": it can."""
        return "" if found(cls.program) else f"{cls.program} is not installed; run scripts/prepare --dev as root"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"{self.tls_scheme}://127.0.0.1:{self.tls_port}"

    def start(self) -> None:
        """Returns when it can be used."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | self._environment(),
                cwd=self.folder,
            )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.program} does not run: {(self.folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL: it has no time for anything."""
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        self._signal(signal.SIGKILL)

    def hang(self) -> None:
        """SIGSTOP: it answers to nothing, and nothing tells so; until `go_on`. Returns when all its threads stand."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        while any(_state(thread) not in "tT" for thread in threads.iterdir()):
            time.sleep(0.01)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE_S)

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class RedisServer(Server):
    """Every answer is on disk first (`appendfsync always`). User `weak` may write nowhere.

    more: lines of its configuration.
    """

    scheme, tls_scheme, program = "redis", "rediss", "redis-server"
    more = ""

    def _command(self) -> list[str]:
        config = self.folder / "redis.conf"
        config.write_text(
            f'bind 127.0.0.1\nport {self.port}\ndir {self.folder}\nsave ""\nappendonly yes\nappendfsync always\n'
            f"repl-diskless-sync-delay 0\nmaxmemory-policy noeviction\nuser {USER} on >{PASSWORD} ~* &* +@all\n"
            f"user {WEAK_USER} on >{PASSWORD} ~* +@read +@connection\nuser default off\n" + self._tls() + self.more
        )
        return [found(self.program), str(config)]

    def _tls(self) -> str:
        if not self.certificate:
            return ""
        asked = "yes" if self.authority else "no"
        authority = self.authority or self.certificate
        return _REDIS_TLS.format(port=self.tls_port, file=self.certificate, authority=authority, asked=asked)

    def _answers(self) -> bool:
        return self.ask("PING") == b"+PONG"

    def ask(self, *command: str) -> bytes:
        """The first line of the answer; b"" while it does not answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                for words in (("AUTH", USER, PASSWORD), command):
                    parts = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
                    connection.sendall(f"*{len(words)}\r\n{parts}".encode())
                    said = connection.recv(4096)
        except OSError:
            return b""
        return said.partition(b"\r\n")[0]


class NatsServer(Server):
    """With JetStream, whose messages are in files before they are acknowledged, though not synced: SIGKILL loses none.
    User `weak` may publish nothing. With a certificate it has one port, and TLS is asked of everybody there."""

    scheme, tls_scheme, program = "nats", "tls", "nats-server"

    def _command(self) -> list[str]:
        users = f'{{user: "{USER}", password: "{PASSWORD}"}}'
        users += f', {{user: "{WEAK_USER}", password: "{PASSWORD}", permissions: {{publish: {{deny: ["zonemta.>"]}}}}}}'
        config = self.folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nauthorization {{ users: [{users}] }}\n'
            f'jetstream {{ store_dir: "{self.folder / "jetstream"}" }}\n' + self._tls()
        )
        return [found(self.program), "-c", str(config)]

    def _tls(self) -> str:
        if not self.certificate:
            return ""
        asked = f'ca_file: "{self.authority}", verify: true, ' if self.authority else ""
        return f'tls {{ {asked}cert_file: "{self.certificate}", key_file: "{self.certificate}" }}\n'

    @property
    def tls_url(self) -> str:
        return f"{self.tls_scheme}://127.0.0.1:{self.port}"


class RabbitServer(Server):
    """RabbitMQ with an exchange `events`, all of which goes to the durable queue `events`; the queue `short`, which
    refuses a fifth message; and the virtual host `other`, which is empty. It starts in five seconds or so."""

    scheme, tls_scheme, program = "amqp", "amqps", "rabbitmq-server"

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        super().__init__(folder, certificate)
        self._epmd_port, self._distribution_port = free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str:
        return "" if _RABBIT.exists() else super().missing() or f"there is no {_RABBIT}"

    def start(self) -> None:
        (self.folder / "definitions.json").write_text(json.dumps(_definitions()))
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {self.folder / 'definitions.json'}\n"
            "loopback_users = none\n"
            + (_RABBIT_TLS.format(port=self.tls_port, file=self.certificate) if self.certificate else "")
        )
        if self._epmd is None:
            self._epmd = subprocess.Popen(["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"])
        super().start()

    def end(self) -> None:
        super().end()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait(PATIENCE_S)
            self._epmd = None

    def alarm(self, on: bool) -> None:
        """The alarm of full memory, which stops all publishers."""
        subprocess.run(
            [_RABBIT.with_name("rabbitmqctl"), "set_vm_memory_high_watermark", "0.0001" if on else "0.4"],
            env=os.environ | self._environment(), check=True, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip

    def _command(self) -> list[str]:
        return [str(_RABBIT)]

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "HOME": str(folder),  # where the Erlang cookie is
            "RUNNING_UNDER_SYSTEMD": "1",  # the process we start becomes the server, not a shell in front of it
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"rabbit{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }


def _state(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def found(program: str) -> str:
    """Its path, beside this Python or in PATH; "": it is not there."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which(program, path=path) or ""


def _definitions() -> dict[str, object]:
    salt = b"salt"
    hashed = base64.b64encode(salt + hashlib.sha256(salt + PASSWORD.encode()).digest()).decode()
    user = {"password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
    everything = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    queue = {"vhost": "/", "durable": True, "auto_delete": False}
    return {
        "users": [{"name": USER, **user}, {"name": WEAK_USER, **user}],
        "vhosts": [{"name": "/"}, {"name": "other"}],
        "permissions": [
            {"user": USER, **everything},
            {"user": USER, **everything, "vhost": "other"},
            {"user": WEAK_USER, **everything, "write": "", "configure": ""},
        ],
        "exchanges": [
            {"name": "events", **queue, "type": "topic", "internal": False, "arguments": {}},
        ],
        "queues": [
            {"name": "events", **queue, "arguments": {}},
            {"name": "short", **queue, "arguments": {"x-max-length": 4, "x-overflow": "reject-publish"}},
        ],
        "bindings": [
            {"source": "events", "vhost": "/", "destination": "events", "destination_type": "queue",
             "routing_key": "zonemta.#", "arguments": {}},
        ],
    }  # fmt: skip
