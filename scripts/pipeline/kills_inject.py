"""Kills whatever takes part in an injection at random moments, and counts: everyone on the list once, nobody twice.

    .venv/bin/python scripts/pipeline/kills_inject.py [--rounds 20] [--recipients 20000] [--seed 1]

A round plans a campaign, sends it with `zonemta campaign send` to a real node, and while that runs kills with SIGKILL
the node (all its processes; it is started again), the driver (with its JVM; the command is run again) or a task's
Python worker. Judged by the ENVELOPE records of the node's journal and by what comes at a real sink.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(TOP / "scripts" / "trials")]

from ports import free_port  # noqa: E402

from zonemta_py.disk.packing import unpack  # noqa: E402
from zonemta_py.journal import segments  # noqa: E402
from zonemta_py.journal.records import Type  # noqa: E402
from zonemta_py.wire.blocking_client import (  # noqa: E402
    QueueGone,
    ask,
    ask_all,
)

ZONEMTA = [sys.executable, "-m", "zonemta_py"]
PATIENCE_S = 120.0
TEMPLATE = 'subject = "Hello {{ name }}"\nfrom = "news@sender.net"\ntext = """\nDear {{ name }}\n"""\n'
_CONFIG = """
[server]
hostname = "mta.test"
folder = "{folder}"
log_level = "warning"
receivers = {workers}
senders = {workers}
[[listeners]]
name = "smtp"
port = {smtp}
[http]
enabled = true
port = {http}
[[zones]]
name = "default"
default = true
host = "127.0.0.1"
port = {sink}
tls = "none"
in_doubt = "retry"
connections = 200
connections_per_destination = 60
"""


class Process:
    """A program in a session of its own, which `kill` ends with all its children."""

    def __init__(self, arguments: list[str], log: Path, cwd: Path = TOP) -> None:
        self._arguments, self._log, self._cwd = arguments, log, cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._cwd,
                start_new_session=True, env=os.environ | {"PYTHONPATH": str(TOP)},
            )  # fmt: skip

    @property
    def code(self) -> int | None:
        return self._process.poll() if self._process else None

    def tree(self) -> list[int]:
        return _tree(self._process.pid) if self._process else []

    def kill(self) -> None:
        """SIGKILL to all of it at once: children that made sessions of their own too."""
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process:
            self._process.wait()


class Node:
    """`zonemta run` with an HTTP listener, and the sink it delivers to. `with Node(folder) as node:` rules: the sink's.

    workers: receivers and senders, 0 for as many as by default.
    """

    def __init__(self, folder: Path, rules: Sequence[str] = (), workers: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.config, self.sink_log = folder / "queue", folder / "zonemta.toml", folder / "sink.log"
        self.http, self.smtp, sink = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http}"
        ports = {"smtp": self.smtp, "http": self.http, "sink": sink}
        self.config.write_text(_CONFIG.format(folder=self.folder, workers=workers, **ports))
        self._run = Process([*ZONEMTA, "run", "--config", str(self.config)], folder / "run.log")
        listen = ["--listen", f"127.0.0.1:{sink}", "--log", str(self.sink_log)]
        listen += [word for rule in rules for word in ("--rule", rule)]
        self._sink = Process([*ZONEMTA, "sink", "--quiet", *listen], folder / "sink.out")

    def __enter__(self) -> Node:
        self._sink.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run.kill()
        self._sink.kill()

    @property
    def token(self) -> Path:
        return self.folder / "http.token"

    def start(self) -> None:
        """Returns when queue and HTTP listener answer. Raises TimeoutError."""
        self._run.start()
        end = time.monotonic() + PATIENCE_S
        while not self._answers():
            if time.monotonic() > end or self._run.code is not None:
                raise TimeoutError(f"the node does not come up, see {self.folder.parent / 'run.log'}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.http)) or not self.token.exists():
                return False
        try:
            return ask(self.folder, "campaigns") is not None
        except QueueGone:
            return False

    def kill(self) -> None:
        self._run.kill()

    def ask(self, question: str, **arguments: object) -> dict[str, object]:
        answer: dict[str, object] = ask(self.folder, question, **arguments)
        return answer

    def accepted(self) -> Counter[tuple[str, str]]:
        """(campaign, recipient) → in how many ENVELOPE records of the journal."""
        faults: list[segments.Fault] = []
        bodies: dict[int, bytes] = {}
        for folder in (self.folder / "journal", self.folder / "archive"):  # the way that segments go while this reads
            records = segments.read(folder, 0, faults) if folder.is_dir() else ()
            bodies.update((one.seq, one.body) for one in records if one.type == Type.ENVELOPE)
        found: Counter[tuple[str, str]] = Counter()
        for _, metadata, recipients, *_ in map(unpack, bodies.values()):
            found.update((metadata.get("campaign") or "", address) for _, address, *_ in recipients)
        return found

    def delivered(self) -> Counter[str]:
        """Recipient → how often the sink got mail for it."""
        if not self.sink_log.exists():
            return Counter()
        lines = self.sink_log.read_text().splitlines()
        return Counter(recipient for line in lines for recipient in json.loads(line)["recipients"])

    def came(self, count: int) -> Counter[str]:
        """The same, when it has written so many, or after some seconds without more: its log lags behind."""
        found, end = self.delivered(), time.monotonic() + 10
        while sum(found.values()) < count and time.monotonic() < end:
            time.sleep(0.2)
            found = self.delivered()
        return found

    def written_bytes(self) -> int:
        """That its processes have given to the disk so far (/proc/PID/io)."""
        texts = [Path(f"/proc/{pid}/io").read_text() for pid in self._run.tree()]
        return sum(int(text.partition("write_bytes: ")[2].split()[0]) for text in texts)

    def wait_for(self, name: str) -> None:
        """Until nothing of the campaign waits. Raises TimeoutError."""
        end = time.monotonic() + PATIENCE_S
        while self.ask("campaign", name=name)["waiting"]:
            if time.monotonic() > end:
                raise TimeoutError(f"{name}: not all was delivered after {PATIENCE_S:.0f} s")
            time.sleep(0.2)


def write_list(path: Path, count: int) -> set[str]:
    """CSV with email and name; returns the recipients."""
    everyone = {f"user{number}@d{number % 7}.net" for number in range(count)}
    path.write_text("email,name\n" + "".join(f"{one},{one.partition('@')[0]}\n" for one in sorted(everyone)))
    return everyone


def judge(node: Node, campaign: str, everyone: set[str]) -> list[str]:
    """What is wrong with what the node accepted, one line each; empty: all is well."""
    accepted = Counter({who: n for (name, who), n in node.accepted().items() if name == campaign})
    lost, doubled = everyone - accepted.keys(), [who for who, n in accepted.items() if n > 1]
    foreign = accepted.keys() - everyone
    rows = (("lost", lost), ("doubled", doubled), ("foreign", foreign))
    return [f"{campaign}: {len(who)} {what}, such as {sorted(who)[0]}" for what, who in rows if who]


def judge_sink(node: Node, everyone: set[str], times: int) -> list[str]:
    """What is wrong with what came at the sink: only who was in doubt when the node died may have got it once more."""
    came = node.came(times * len(everyone))
    doubtful = {row["recipient"] for row in ask_all(node.folder, "in-doubt")}
    short = sorted(who for who in everyone if came[who] < times)
    more = sorted(who for who in everyone if came[who] > times)
    unlisted = [who for who in more if who not in doubtful]
    print(
        f"the sink got {sum(came.values()):,} of {times * len(everyone):,}: {len(short)} recipients too few, "
        f"{len(more)} too many, of whom {len(unlisted)} are not among the {len(doubtful)} listed as in doubt"
    )
    rows = (("short", short), ("doubled and not in doubt", unlisted))
    return [f"{len(who)} {what}, such as {who[0]}" for what, who in rows if who]


def main() -> int:
    """Returns 1 if anyone was lost or doubled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--recipients", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance, wrong = random.Random(given.seed), list[str]()
    with tempfile.TemporaryDirectory(prefix="kills-inject-", dir="/var/tmp") as name, Node(Path(name) / "node") as node:
        folder = Path(name)
        everyone = write_list(folder / "list.csv", given.recipients)
        (folder / "letter.toml").write_text(TEMPLATE)
        for number in range(1, given.rounds + 1):
            campaign = f"round{number}"
            kills = _round(folder, node, campaign, chance)
            found = judge(node, campaign, everyone)
            wrong += found
            print(f"round {number}: killed {', '.join(kills)}: {'; '.join(found) or 'everyone once'}", flush=True)
        for number in range(1, given.rounds + 1):
            node.wait_for(f"round{number}")
        wrong += judge_sink(node, everyone, given.rounds)
    return 1 if wrong else 0


def _round(folder: Path, node: Node, campaign: str, chance: random.Random) -> list[str]:
    """Plans, sends under fire until it is in; returns what was killed."""
    send = [*ZONEMTA, "campaign", "send", "--name", campaign, "--plans", str(folder), "--config", str(node.config)]
    plan = [*send, str(folder / "list.csv"), "--template", str(folder / "letter.toml"), "--chunk", "50", "--plan-only"]
    subprocess.run(plan, check=True, cwd=TOP, stdin=subprocess.DEVNULL, capture_output=True)
    driver = Process([*send, "--resume", "--yes"], folder / f"{campaign}.log")
    killed: list[str] = []
    while True:
        driver.start()
        if len(killed) < 3:
            killed.append(_strike(node, driver, campaign, chance))
        while driver.code is None:
            time.sleep(0.05)
        if driver.code == 0:
            return killed


def _strike(node: Node, driver: Process, campaign: str, chance: random.Random) -> str:
    """Waits until the injection has begun, then for a random while, and kills one of those who take part."""
    before = _accepted(node, campaign)
    end = time.monotonic() + PATIENCE_S
    while driver.code is None and _accepted(node, campaign) == before and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.5))
    what = chance.choice(["node", "driver", "task"])
    if what == "node":
        node.kill()
        node.start()
    elif what == "driver":
        driver.kill()
    else:
        workers = [pid for pid in driver.tree() if b"pyspark.daemon" in _command(pid)]
        for pid in workers[1:]:  # the first is the daemon that makes them
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return what


def _accepted(node: Node, campaign: str) -> object:
    try:
        return node.ask("campaign", name=campaign)["accepted"]
    except (QueueGone, ValueError):  # it is not announced yet
        return 0


def _tree(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _tree(int(child))
    return found


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


if __name__ == "__main__":
    sys.exit(main())
