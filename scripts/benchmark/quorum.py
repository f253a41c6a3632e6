"""The same messages in a queue that three servers on this machine have: RabbitMQ's quorum queues, and this MTA.

Scenario A's messages are put in, over so many sessions of which each waits for the answer, then all are taken out, then
both happens at once. CPU of the servers is counted apart from that of clients. RabbitMQ's three brokers are one cluster
with everything as shipped: a message is in the logs of two of them, synced, before it is confirmed. The clients are
aio-pika's, one process that puts and one that takes. This MTA takes mail by SMTP, and gives it to one sink.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import aio_pika
from nats_servers import ThreeServers, program
from ports import free_port

from benchmark.contenders import ROOT, BenchError, Zonemta
from benchmark.destination import Destination
from benchmark.load import smtp_source
from benchmark.processes import Group, busy_s, own_s
from benchmark.quorum_client import QUEUE, Clients
from benchmark.report import PHASES
from benchmark.scenarios import IDLE_S, MB, RELAY, SETTLE_S, Bench, Figures
from zonemta_py.wire.blocking_client import QueueGone, ask

BROKERS = 3
TAKERS = 3
START_S = 120.0
_PROGRAMS = Path("/usr/lib/rabbitmq/bin")
_SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
cluster_formation.peer_discovery_backend = classic_config
cluster_name = bench
"""


class Replicated(ABC):
    """Servers that keep the same messages. groups: their processes."""

    name = ""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.groups = folder, list[Group]()

    @classmethod
    def missing(cls) -> str:
        """Why it cannot be measured here; "": it can."""
        return ""

    @abstractmethod
    def start(self) -> None:
        """Returns when it takes messages. Raises BenchError."""

    @abstractmethod
    def run(self, phase: str, messages: int, sessions: int) -> float:
        """One of PHASES, to its end; how many seconds it took. Raises BenchError, CalledProcessError."""

    def clients_cpu_s(self) -> float:
        """Of those that put and take, so far."""
        return own_s()

    def close(self) -> None:
        for group in self.groups:
            group.close()

    def group(self) -> Group:
        self.groups.append(Group())
        return self.groups[-1]


class Rabbit(Replicated):
    name = "RabbitMQ quorum"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._epmd = free_port()
        self._cookie = secrets.token_hex(16)
        self._brokers = [_Broker(folder / f"broker{number}", self._epmd) for number in range(1, BROKERS + 1)]

    @classmethod
    def missing(cls) -> str:
        if not (_PROGRAMS / "rabbitmq-server").exists() or shutil.which("epmd") is None:
            return "RabbitMQ is not installed; run scripts/prepare --dev as root (apt-get install rabbitmq-server)"
        return ""

    def start(self) -> None:
        # No broker may start one of its own that outlives it.
        self.group().start(
            ["epmd", "-port", str(self._epmd), "-address", "127.0.0.1"], self.folder / "epmd", self.folder
        )
        nodes = "".join(
            f"cluster_formation.classic_config.nodes.{number} = {one.node}\n"
            for number, one in enumerate(self._brokers, 1)
        )
        for broker in self._brokers:  # the first one is there when the others look for it
            broker.configure(nodes, self._cookie)
            broker.start(self.group())
        self._brokers[0].control("await_online_nodes", str(BROKERS))
        self._declare()
        members = self._brokers[0].control("list_queues", "--quiet", "members")
        if members.count("rabbit") != BROKERS:
            raise BenchError(f"the queue is not on {BROKERS} brokers, but on {members.strip()}")

    def _declare(self) -> None:
        import asyncio

        async def declare() -> None:
            async with await aio_pika.connect(self._brokers[0].url) as connection:
                channel = await connection.channel()
                arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": BROKERS}
                await channel.declare_queue(QUEUE, durable=True, arguments=arguments)

        asyncio.run(declare())

    def run(self, phase: str, messages: int, sessions: int) -> float:
        urls = [broker.url for broker in self._brokers]
        putting = Clients(urls, messages, sessions, RELAY["A"].bytes)
        taking = replace(putting, sessions=TAKERS)
        commands = {
            "put": [putting.command("put")],
            "take": [taking.command("take")],
            "through": [taking.command("take"), putting.command("put")],
        }[phase]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), str(ROOT)))}
        clients = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for command in commands]
        try:
            times = [json.loads(client.communicate(timeout=IDLE_S + messages / 10)[0] or "null") for client in clients]
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name}: {phase} of {messages:,} messages did not end") from None
        finally:
            for client in clients:
                client.kill()
                client.wait()
        if None in times:
            raise BenchError(f"{self.name}: {phase}: a client failed; see the error above")
        return float(times[0][1] - times[-1][0])  # from the first that was put to the last that was taken


class _Broker:
    def __init__(self, folder: Path, epmd: int) -> None:
        folder.mkdir()
        self._folder, self._epmd = folder, epmd
        self.port, self._between = free_port(), free_port()
        self.node = f"rabbit{self.port}@localhost"
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def configure(self, nodes: str, cookie: str) -> None:
        (self._folder / "rabbitmq.conf").write_text(_SETTINGS.format(port=self.port) + nodes)
        secret = self._folder / ".erlang.cookie"
        secret.write_text(cookie)
        secret.chmod(0o400)

    def start(self, group: Group) -> None:
        """Raises BenchError."""
        words = [f"{name}={value}" for name, value in self._environment().items()]
        output = self._folder / "output"
        process = group.start(["env", *words, str(_PROGRAMS / "rabbitmq-server")], output, self._folder)
        end = time.monotonic() + START_S
        while time.monotonic() < end and process.poll() is None:
            ran = self._ctl("await_startup", "--timeout", "5")
            if ran.returncode == 0:
                return
        lines = output.read_text().splitlines()
        said = [line.partition("> ")[2].strip() for line in lines if "[error]" in line][:4] or lines[-4:]
        raise BenchError(f"a broker of RabbitMQ does not run: {' | '.join(said)}")

    def control(self, *words: str) -> str:
        """What `rabbitmqctl` says. Raises BenchError."""
        ran = self._ctl(*words)
        if ran.returncode:
            raise BenchError(f"rabbitmqctl {words[0]}: {ran.stderr.strip() or ran.stdout.strip()}")
        return ran.stdout

    def _ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_PROGRAMS / "rabbitmqctl", *words], env=os.environ | self._environment(), capture_output=True, text=True,
            timeout=START_S,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self._folder),  # where the cookie is
            "RUNNING_UNDER_SYSTEMD": "1",  # the process we start becomes the server, not a shell in front of it
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self._between),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }


class OneNode(Replicated):
    """This MTA on its own disk alone: what replication adds to."""

    name = "zonemta-py, one copy"

    def __init__(self, folder: Path, sections: dict[str, Any] | None = None) -> None:
        super().__init__(folder)
        self._mta = Zonemta(folder, free_port(), sections=sections)
        self._sink = Destination(folder, self._mta.sink_port)
        self._stack = ExitStack()
        self._taken = 0

    def start(self) -> None:
        self._stack.enter_context(self._sink)
        self._mta.start(self.group())
        end = time.monotonic() + START_S
        while not self._is_ready():
            if time.monotonic() > end:
                raise BenchError(f"{self.name} is not ready: {self._mta.output.read_text()[-500:]}")
            time.sleep(0.1)
        time.sleep(SETTLE_S)

    def run(self, phase: str, messages: int, sessions: int) -> float:
        generator = "smtp-source" if smtp_source() else "own"  # the former begins sooner
        load = replace(RELAY["A"], port=self._mta.port, messages=messages, sessions=sessions)
        if phase == "put":
            self._order("stop", cause="the benchmark takes them out later")
        begun = time.monotonic()
        if phase == "take":
            self._order("lift")
        else:
            subprocess.run(load.command(generator), stdout=subprocess.DEVNULL, check=True)
        if phase == "put":
            return time.monotonic() - begun
        self._taken += messages
        found = self._sink.wait(self._taken, IDLE_S)
        if found["recipients"] != self._taken:
            raise BenchError(f"{self.name}: {found['recipients']:,} messages came, of {self._taken:,}")
        return float(found["last_ns"]) / 1e9 - begun

    def _is_ready(self) -> bool:
        try:
            return not ask(self._mta.folder / "queue", "ready")
        except (QueueGone, ValueError, OSError):
            return False

    def _order(self, question: str, **more: Any) -> None:
        ask(self._mta.folder / "queue", question, kind="zone", name="default", **more)

    def clients_cpu_s(self) -> float:
        return super().clients_cpu_s() + self._sink.cpu_s()

    def close(self) -> None:
        super().close()
        self._stack.close()


class ThreeCopies(OneNode):
    """One node, whose queue's log three NATS servers have, which sync always."""

    name = "zonemta-py, three copies"

    def __init__(self, folder: Path) -> None:
        self._nats = ThreeServers(folder / "nats")
        super().__init__(folder, {"cluster": self._nats.settings()})
        self._mta.config.chmod(0o600)  # it has a password

    @classmethod
    def missing(cls) -> str:
        return "" if program() else "nats-server is not installed; run scripts/prepare --dev"

    def start(self) -> None:
        self._nats.start()
        for server in self._nats.all:
            assert server.process is not None
            self.group().adopt(server.process)
        super().start()

    def close(self) -> None:
        super().close()
        self._nats.end()


CONTENDERS: tuple[type[Replicated], ...] = (Rabbit, ThreeCopies, OneNode)


class Used(NamedTuple):
    """So far: CPU of all servers, what they have written, CPU of clients and of the whole machine."""

    cpu_s: float
    written: int
    clients_s: float
    busy_s: float
    at_s: float

    @classmethod
    def by(cls, contender: Replicated) -> Used:
        cpu_s = sum(group.cpu_s() for group in contender.groups)
        written = sum(group.written_bytes() for group in contender.groups)
        return cls(cpu_s, written, contender.clients_cpu_s(), busy_s(), time.monotonic())


def measure(bench: Bench, kind: type[Replicated], number: int) -> dict[str, Figures]:
    """Of each phase. number: of the run. Raises BenchError."""
    load = bench.load("A", 0)
    contender, found = kind(bench.folder / f"{CONTENDERS.index(kind)}-{number}"), dict[str, Figures]()
    try:
        bench.watch(f"{contender.name}: starting", 0, 0)
        contender.start()
        contender.run("through", max(1, load.messages // 10), load.sessions)  # what is loaded once is loaded
        for phase in PHASES:
            bench.watch(f"{contender.name}: {phase}", 0, load.messages)
            time.sleep(SETTLE_S)
            before = Used.by(contender)
            seconds = contender.run(phase, load.messages, load.sessions)
            pss = sum(group.pss_bytes() for group in contender.groups)
            found[phase] = _figures(before, Used.by(contender), load.messages, seconds) | {"pss_mb": pss / MB}
    finally:
        contender.close()
    return found


def _figures(before: Used, after: Used, messages: int, seconds: float) -> Figures:
    used = Used(*(now - then for now, then in zip(after, before, strict=True)))
    foreign_s = max(0.0, used.busy_s - used.cpu_s - used.clients_s)
    return {
        "messages_per_s": messages / seconds,
        "cpu_ms_per_message": used.cpu_s * 1e3 / messages,
        "client_cpu_ms_per_message": used.clients_s * 1e3 / messages,
        "kb_written_per_message": used.written / 1e3 / messages,
        "foreign_share": foreign_s / used.at_s / (os.cpu_count() or 1),
    }


def contenders(say: Callable[[str], None]) -> list[type[Replicated]]:
    """Those that can be measured here; say: hears of the others."""
    for kind in CONTENDERS:
        if missing := kind.missing():
            say(f"{kind.name} is NOT measured: {missing}.")
    return [kind for kind in CONTENDERS if not kind.missing()]
