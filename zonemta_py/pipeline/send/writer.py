"""`df.write.format("zonemta")`: the rows of a plan into one or several nodes, each recipient exactly once.

options: nodes (URLs, comma-separated), key, key_file, ca, patience_s, requests (at once per task), report (a file for
the outcome). Promise: a chunk always goes to the same node, under its own key, so that every repetition (a task, a
job, by another driver after a crash) is recognised there; the nodes of one cluster count as one, which share its chunks
and go on with those of one that dies. Failures: a node (a cluster) that stays unreachable is reported, and the chunks
of others continue; a refused chunk ends its task. Both are reported when the job commits, which then fails.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from zonemta_py.disk.files import replace_file
from zonemta_py.pipeline.nodes.client import (
    PATIENCE_S,
    NodeAccess,
    NodeClient,
    NodeGone,
    NodeGroup,
    NodeReceipt,
    NodeRefused,
)
from zonemta_py.pipeline.nodes.groups import groups
from zonemta_py.pipeline.send.errors import InjectionFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

REQUESTS = 4


@dataclass(slots=True)
class Injected(WriterCommitMessage):
    """chunks: that are in; repeated: that were before. refused: sentences. away: node, or nodes of a cluster → chunks
    it did not take."""

    chunks: int = 0
    accepted: int = 0
    suppressed: int = 0
    repeated: int = 0
    refused: list[str] = field(default_factory=list)
    away: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def add(self, receipt: NodeReceipt) -> None:
        self.chunks += 1
        self.accepted += receipt.accepted
        self.suppressed += receipt.suppressed
        self.repeated += receipt.repeated

    def join(self, other: Injected) -> None:
        self.chunks += other.chunks
        self.accepted += other.accepted
        self.suppressed += other.suppressed
        self.repeated += other.repeated
        self.refused += other.refused
        self.reasons += other.reasons
        self.away = dict(Counter(self.away) + Counter(other.away))

    def check(self) -> None:
        """Raises InjectionFailed."""
        if self.refused:
            more = f" (and {len(self.refused) - 1} more)" if len(self.refused) > 1 else ""
            raise InjectionFailed(f"{self.refused[0]}{more}")
        if self.away:
            nodes = ", ".join(f"{url} ({n:,} chunks)" for url, n in sorted(self.away.items()))
            raise InjectionFailed(
                f"incomplete: {nodes} did not take its part: {self.reasons[0]}; continue with --resume when it is "
                "back, nobody gets the mail twice"
            )


def node_of(chunk: str, nodes: Iterable[str]) -> str:
    """The node of a chunk: highest random weight, so that naming them in another order changes nothing. nodes: URLs, or
    keys of groups."""
    return max(nodes, key=lambda url: hashlib.sha256(f"{chunk}\0{url.rstrip('/')}".encode()).digest())


class Injector:
    """Sends chunks in their order, several at once; remembers which nodes are away. `with Injector(…) as one:`"""

    def __init__(self, target: NodeAccess, to: Sequence[NodeGroup]) -> None:
        self.outcome = Injected()
        self._target, self._to = target, {group.key: group for group in to}
        self._stack, self._under_way = ExitStack(), deque[tuple[str, Future[NodeReceipt]]]()

    def __enter__(self) -> Injector:
        self._nodes = {
            key: self._stack.enter_context(NodeClient(group, self._target)) for key, group in self._to.items()
        }
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self._target.requests))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def refused(self) -> bool:
        return bool(self.outcome.refused)

    def put(self, chunk: str, body: bytes) -> None:
        """Waits while the most requests are in progress."""
        if self.refused:
            return
        key = node_of(chunk, self._nodes)
        if (name := str(self._to[key])) in self.outcome.away:
            self.outcome.away[name] += 1
            return
        while len(self._under_way) >= self._target.requests:
            self._settle()
        self._under_way.append((name, self._pool.submit(self._nodes[key].inject, chunk, body)))

    def finish(self) -> Injected:
        while self._under_way:
            self._settle()
        return self.outcome

    def _settle(self) -> None:
        name, future = self._under_way.popleft()
        try:
            self.outcome.add(future.result())
        except NodeRefused as refused:
            self.outcome.refused.append(str(refused))
        except NodeGone as gone:
            self.outcome.away[name] = self.outcome.away.get(name, 0) + 1
            self.outcome.reasons.append(str(gone))


class ZonemtaDataSource(DataSource):
    """Register it once per session: `spark.dataSource.register(ZonemtaDataSource)`."""

    @classmethod
    def name(cls) -> str:
        return "zonemta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Raises ValueError for options and columns that make no sense, NodeRefused."""
        missing = [name for name in ("chunk", "body") if name not in schema.fieldNames()]
        if missing:
            raise ValueError(f"the rows have no column {missing[0]}; write the rows of a plan")
        if overwrite:
            raise ValueError("mail that was sent cannot be overwritten; write with mode append")
        target = target_of(self.options)
        return ChunkWriter(target, groups(target), self.options.get("report", ""))


def target_of(options: Mapping[str, str]) -> NodeAccess:
    """The options of the data source. Raises ValueError."""
    nodes = tuple(url.strip() for url in options.get("nodes", "").split(",") if url.strip())
    patience_s, requests = options.get("patience_s", PATIENCE_S), options.get("requests", REQUESTS)
    key, file, verify = options.get("key", ""), options.get("key_file", ""), options.get("ca") or True
    return NodeAccess(nodes, key, float(patience_s), int(requests), file, verify)


class ChunkWriter(DataSourceArrowWriter):
    """Runs in the executors (write) and beside the driver (commit, abort)."""

    def __init__(self, target: NodeAccess, to: Sequence[NodeGroup], report: str) -> None:
        self._target, self._to, self._report = target, to, report

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Injected:
        with Injector(self._target, self._to) as injector:
            for batch in iterator:
                keys, bodies = batch.column("chunk"), batch.column("body")
                for number in range(batch.num_rows):
                    injector.put(keys[number].as_py(), bodies[number].as_py())
                if injector.refused:
                    break
            return injector.finish()

    def commit(self, messages: list[Any]) -> None:
        """Raises InjectionFailed."""
        whole = Injected()
        for message in messages:
            if message is not None:
                whole.join(message)
        if self._report:
            save(whole, Path(self._report))
        whole.check()

    def abort(self, messages: list[Any]) -> None:
        """Accepted chunks stay: they are recognised when they come again."""


def save(outcome: Injected, path: Path) -> None:
    replace_file(path, json.dumps(asdict(outcome)).encode())


def load(path: Path) -> Injected:
    """What `save` wrote. Raises FileNotFoundError."""
    return Injected(**json.loads(path.read_text("utf-8")))
