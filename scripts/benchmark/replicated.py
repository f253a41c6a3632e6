"""This MTA as a cluster of one node, or of three, on three NATS servers of this machine that sync always."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from nats_servers import ThreeServers, program

from benchmark.contenders import BenchError, Zonemta
from benchmark.processes import Group

NAME, THREE = "replicated", "three"
NODES = "abc"
JOINED_S = 5.0
"""So long after the last one has opened its port: all know each other, and one of them leads."""


class OneNode(Zonemta):
    """Its servers are counted apart."""

    name = NAME

    def __init__(self, folder: Path, sink_port: int, **settings: object) -> None:
        if not program():
            raise BenchError("nats-server is not installed; run scripts/prepare --dev")
        self._nats = ThreeServers(folder / "nats")
        super().__init__(folder, sink_port, sections={"cluster": self._nats.settings(**settings)})
        self.config.chmod(0o600)  # it has a password
        self._groups = list[Group]()
        self._before = 0.0

    def wipe(self) -> None:
        super().wipe()
        shutil.rmtree(self.folder / "nats", ignore_errors=True)
        for server in self._nats.all:
            server.folder.mkdir(parents=True)

    def start(self, group: Group, prefix: Sequence[str] = ()) -> float:
        try:
            self._nats.start()
        except RuntimeError as error:
            raise BenchError(f"{self.name}: {' | '.join(str(error).strip().splitlines()[-2:])}") from None
        for server in self._nats.all:
            assert server.process is not None
            self._groups.append(Group())
            self._groups[-1].adopt(server.process)
        self._nats.ready()
        begun = super().start(group, prefix)
        self._before = self._cpu_s()
        return begun

    def _cpu_s(self) -> float:
        return sum(one.cpu_s() for one in self._groups)

    def beside(self, messages: int) -> dict[str, float]:
        written = sum(one.written_bytes() for one in self._groups)
        return {
            "servers_cpu_ms_per_message": (self._cpu_s() - self._before) * 1e3 / messages,
            "servers_kb_written_per_message": written / 1e3 / messages,
        }

    def ended(self) -> None:
        """The nodes have."""
        self._nats.end()
        for one in self._groups:
            one.close()
        self._groups.clear()


class ThreeNodes(OneNode):
    """A third of the mail goes to each; the nodes are counted together."""

    name = THREE

    def __init__(self, folder: Path, sink_port: int) -> None:
        super().__init__(folder, sink_port, node=NODES[0])
        self._others = [
            Zonemta(folder / node, sink_port, sections={"cluster": self._nats.settings(node=node)})
            for node in NODES[1:]
        ]  # fmt: skip
        for other in self._others:
            other.config.chmod(0o600)

    @property
    def ports(self) -> list[int]:
        return [self.port, *(other.port for other in self._others)]

    def wipe(self) -> None:
        super().wipe()
        for other in self._others:
            other.wipe()

    def start(self, group: Group, prefix: Sequence[str] = ()) -> float:
        begun = super().start(group, prefix)
        for other in self._others:
            other.start(group, prefix)
        time.sleep(JOINED_S)
        self._before = self._cpu_s()
        return begun
