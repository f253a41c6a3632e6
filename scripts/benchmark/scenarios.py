"""What is measured: relaying (A to D), the queue under a dead destination, the restart, sync calls, and the ceiling.

Each function makes one run and returns its figures as a flat dict; None stands for what could not be measured.
"""

from __future__ import annotations

import os
import shutil
import smtplib
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ports import free_port

from benchmark.contenders import BenchError, Contender, Zonemta
from benchmark.destination import Destination
from benchmark.load import Load
from benchmark.processes import ROLES, SYNC_CALLS, Group, busy_s, count_syncs, own_s

Figures = dict[str, Any]
Watch = Callable[[str, int, int], None]
"""Told what is going on: phase, done, of how many."""

MB = 1e6
IDLE_S = 60
SETTLE_S = 1.0
DEAD, LIVE = "127.0.0.2", "127.0.0.3"
RELAY = {
    "A": Load(0, messages=5000),
    "B": Load(0, messages=5000, reuse=False),
    "C": Load(0, messages=500, recipients=50),
    "D": Load(0, messages=40, sessions=10, bytes=10 * 1024 * 1024),
    "H": Load(0, messages=1000, bytes=100 * 1024, body="mixed"),
    "L": Load(0, messages=40, sessions=10, bytes=10 * 1024 * 1024, body="base64"),
}
MEANING = {
    "A": "5,000 messages × 1 recipient, 5 KB of words, 20 sessions, connections reused",
    "B": "the same, one connection a message",
    "C": "500 messages × 50 recipients, 5 KB of words",
    "D": "40 messages of 10 MB of words, 10 sessions",
    "H": "1,000 messages of 100 KB, half words, half base64 of random bytes, 20 sessions",
    "L": "40 messages of 10 MB of base64 of random bytes, 10 sessions",
    "dead": "recipients queued to a dead destination ahead of 100 to a live one",
    "restart": "kill -9 of everything and a new start with recipients queued",
}
STRACED = {"A": 300, "B": 300, "C": 30, "D": 4, "H": 100, "L": 4}


@dataclass
class Bench:
    """What all scenarios share. share: of the usual number of messages. sessions: in place of the scenario's."""

    folder: Path
    generator: str
    watch: Watch
    share: float = 1.0
    queued: int = 100_000
    queued_per_message: int = 100
    sessions: int = 0

    def load(self, name: str, port: int) -> Load:
        load = RELAY[name]
        messages = max(1, round(load.messages * self.share))
        return replace(load, port=port, messages=messages, sessions=self.sessions or load.sessions)


class Meter:
    """What a group used between two moments."""

    def __init__(self, group: Group, sink: Destination, port: int) -> None:
        self._group, self._sink, self._port = group, sink, port
        self._roles = dict[int, str]()
        os.sync()
        self._began, self._busy = time.monotonic(), busy_s()
        self._own, self._sink_cpu = own_s(), sink.cpu_s()
        self._resident = group.forget_peaks()
        self._cpu, self._written = group.cpu_s(), group.written_bytes()
        self._on_cpu = group.on_cpu_s()
        self.pss = group.pss_bytes()
        self._next = 0.0

    def sample(self) -> None:
        if time.monotonic() >= self._next:
            self.pss = max(self.pss, self._group.pss_bytes())
            self._roles |= {
                pid: role for pid, role in self._group.roles(self._port).items() if self._roles.get(pid) != "receiver"
            }
            self._next = time.monotonic() + 0.5

    def by_role(self, messages: int) -> dict[str, float]:
        """CPU ms a message of each role's processes."""
        found = dict[str, float]()
        for pid, used_s in self._group.on_cpu_s().items():
            role = self._roles.get(pid, "")
            found[role] = found.get(role, 0.0) + (used_s - self._on_cpu.get(pid, 0.0)) * 1e3 / messages
        return found

    def figures(self, messages: int) -> Figures:
        peaks = self._group.peaks()
        grown = [peak - self._resident[pid] for pid, peak in peaks.items() if pid in self._resident]
        cpu, sink_cpu = self._group.cpu_s() - self._cpu, self._sink.cpu_s() - self._sink_cpu
        foreign = busy_s() - self._busy - cpu - sink_cpu - (own_s() - self._own)
        return {
            "cpu_ms_per_message": cpu * 1e3 / messages,
            **{f"cpu_ms_{role}": used for role, used in self.by_role(messages).items() if role in ROLES},
            "sink_cpu_ms_per_message": sink_cpu * 1e3 / messages,
            "foreign_share": max(0.0, foreign) / (time.monotonic() - self._began) / (os.cpu_count() or 1),
            "peak_pss_mb": self.pss / MB,
            "growth_mb": max(grown, default=0) / MB,
            "kb_written_per_message": (self._group.written_bytes() - self._written) / 1e3 / messages,
            "cpu_by": self._group.method,
        }


def relay(bench: Bench, name: str, contender: Contender) -> Figures:
    """Scenarios A to D: load generator → contender → sink."""
    load, group = replace(bench.load(name, contender.port), domains=contender.domains), Group()
    generator = "own" if contender.domains > 1 else bench.generator
    wanted = load.messages * load.recipients
    contender.wipe()
    try:
        with Destination(bench.folder, contender.sink_port, starttls=contender.starttls) as sink:
            contender.start(group)
            time.sleep(SETTLE_S)
            meter = Meter(group, sink, contender.port)
            begun = time.monotonic()
            sources = [
                subprocess.Popen(part.command(generator), stdout=subprocess.DEVNULL)
                for part in parts(load, contender.ports)
            ]
            accepted: list[float] = []

            def watch(count: int) -> None:
                meter.sample()
                bench.watch(f"{contender.name} {name}", count, wanted)

            with _Waiter(sources, accepted):
                counters = sink.wait(wanted, IDLE_S, watch)
            for source in sources:
                if source.poll() is None:
                    source.kill()
            time.sleep(0.3)  # the results of the last deliveries are still to be written down
            meter.sample()
            figures = meter.figures(load.messages) | contender.beside(load.messages)
    finally:
        group.close()
        contender.ended()
    return figures | _speeds(load, begun, counters, accepted, max(abs(source.wait()) for source in sources))


def parts(load: Load, ports: list[int]) -> list[Load]:
    """The same mail by the same number of sessions, as evenly as may be to each port."""

    def share(of: int, place: int) -> int:
        return of * (place + 1) // len(ports) - of * place // len(ports)

    return [
        replace(load, port=port, messages=share(load.messages, at), sessions=max(1, share(load.sessions, at)))
        for at, port in enumerate(ports)
    ]


def _speeds(load: Load, begun: float, counters: Figures, accepted: list[float], status: int) -> Figures:
    seconds = counters["last_ns"] / 1e9 - begun if counters["recipients"] else None
    wanted = load.messages * load.recipients
    return {
        "messages_per_s": counters["recipients"] / load.recipients / seconds if seconds else None,
        "recipients_per_s": counters["recipients"] / seconds if seconds else None,
        "accepted_per_s": load.messages / (accepted[0] - begun) if accepted else None,
        "seconds": seconds,
        "missing": max(0, wanted - counters["recipients"]),
        "surplus": max(0, counters["recipients"] - wanted),
        "complete": counters["recipients"] == wanted and status == 0,
    }


class _Waiter:
    """Notes when all processes ended, from a thread, since the loop beside it looks only now and then."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], ended: list[float]) -> None:

        self._thread = threading.Thread(target=self._wait, args=(processes, ended), daemon=True)

    @staticmethod
    def _wait(processes: list[subprocess.Popen[bytes]], ended: list[float]) -> None:
        for process in processes:
            process.wait()
        ended.append(time.monotonic())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(1)


def syncs(bench: Bench, name: str, contender: Contender) -> Figures:
    """Sync calls per message, from a short run of its own under strace, which slows everything down."""
    load = replace(RELAY[name], port=contender.port, messages=STRACED[name])
    log, group = bench.folder / "strace.log", Group()
    log.write_text("")
    strace = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "signal=none", "-e", f"trace={','.join(SYNC_CALLS)}"]
    contender.wipe()
    try:
        with Destination(bench.folder, contender.sink_port) as sink:
            contender.start(group, [*strace, "-o", str(log)])
            time.sleep(SETTLE_S)
            before = count_syncs(log)
            subprocess.run(load.command(bench.generator), stdout=subprocess.DEVNULL, check=True)
            sink.wait(load.messages * load.recipients, IDLE_S, lambda n: bench.watch(f"{contender.name} strace", n, 0))
            time.sleep(SETTLE_S)
            return {"syncs_per_message": (count_syncs(log) - before) / load.messages}
    finally:
        group.close()


def ceiling(bench: Bench, name: str) -> Figures:
    """The load generator straight at the sink: what no MTA can exceed here."""
    port = free_port()
    load = bench.load(name, port)
    with Destination(bench.folder, port) as sink:
        cpu, begun = sink.cpu_s(), time.monotonic()
        subprocess.run(load.command(bench.generator), stdout=subprocess.DEVNULL, check=True)
        seconds = time.monotonic() - begun
        sink.wait(load.messages * load.recipients, 5)
        return {
            "messages_per_s": load.messages / seconds,
            "recipients_per_s": load.messages * load.recipients / seconds,
            "sink_cpu_ms_per_message": (sink.cpu_s() - cpu) * 1e3 / load.messages,
        }


def _literal_zone(folder: Path) -> Zonemta:
    """The zone's port, and no host: address literals say where mail goes, so that both destinations share the zone."""
    return Zonemta(folder, free_port(), {"host": "", "allow_private": True})


def _queue(bench: Bench, port: int, host: str, name: str) -> None:
    """Hands in the recipients that are to wait."""
    per = min(bench.queued_per_message, bench.queued)
    load = Load(port, bench.queued // per, per, recipient=f"user@[{host}]")
    bench.watch(f"{name}: queueing", 0, 0)
    subprocess.run(load.command("own"), check=True)


def dead(bench: Bench, folder: Path) -> Figures:
    """Many recipients wait for a host that refuses connections; then 100 messages go to one that does not."""
    mta, group = _literal_zone(folder), Group()
    try:
        with Destination(bench.folder, mta.sink_port, LIVE) as sink:
            mta.start(group)
            group.forget_peaks()
            _queue(bench, mta.port, DEAD, "dead")
            begun = time.monotonic()
            subprocess.run(Load(mta.port, 100, recipient=f"user@[{LIVE}]").command("own"), check=True)
            counters = sink.wait(100, IDLE_S, lambda count: bench.watch("dead: delivering", count, 100))
            holder = group.holder_of("LOCK")
            return {
                "delivered": counters["recipients"],
                "seconds": counters["last_ns"] / 1e9 - begun if counters["recipients"] >= 100 else None,
                "queue_process_mb": group.peaks()[holder] / MB if holder else None,
                "all_processes_pss_mb": group.pss_bytes() / MB,
            }
    finally:
        group.close()


def restart(bench: Bench, folder: Path) -> Figures:
    """Recipients wait for a host that takes connections and then is silent; kill -9 of all; the host is back."""
    mta, before, after = _literal_zone(folder), Group(), Group()
    try:
        with Destination(bench.folder, mta.sink_port, LIVE, ("mail silent",)):
            mta.start(before)
            _queue(bench, mta.port, LIVE, "restart")
            before.kill()
        with Destination(bench.folder, mta.sink_port, LIVE) as sink:
            begun = mta.start(after)
            accepted = _accepted(mta.port, f"probe@[{LIVE}]") - begun
            first = sink.wait(1, IDLE_S, lambda count: bench.watch("restart: first delivery", count, 1))
            every = sink.wait(bench.queued + 1, IDLE_S, lambda n: bench.watch("restart: delivering", n, bench.queued))
            return {
                "accepted_s": accepted,
                "first_delivery_s": first["first_ns"] / 1e9 - begun if first["recipients"] else None,
                "all_delivered_s": every["last_ns"] / 1e9 - begun if every["recipients"] > bench.queued else None,
                "missing": max(0, bench.queued + 1 - every["recipients"]),
                "surplus": max(0, every["recipients"] - bench.queued - 1),
            }
    finally:
        before.close()
        after.close()


def _accepted(port: int, recipient: str) -> float:
    """time.monotonic() when a message was taken; the MTA may still refuse some while it starts. Raises BenchError."""
    end = time.monotonic() + IDLE_S
    while True:
        try:
            with smtplib.SMTP("127.0.0.1", port, "source.bench") as client:
                client.sendmail("sender@src.test", recipient, "Subject: probe\r\n\r\n")
                return time.monotonic()
        except (OSError, smtplib.SMTPException) as error:
            if time.monotonic() > end:
                raise BenchError(f"no message was taken for {IDLE_S} s after the restart ({error})") from None
            time.sleep(0.01)


def unmeasurable_syncs() -> str:
    """Why sync calls cannot be counted here; "" where they can."""
    return "" if shutil.which("strace") else "strace is not installed (apt-get install strace)"
