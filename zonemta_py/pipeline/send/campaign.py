"""Sends a planned campaign to its nodes: announced, canary first, then all of it, then declared complete.

Everything can be repeated at any time (`--resume`): announcing is idempotent, and chunks that are in are recognised.
Failures: `CampaignStopped` when the campaign was paused or canceled, or the canary had no result;
`inject`'s and `node`'s for the rest.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from zonemta_py.pipeline.nodes.client import NodeAccess, NodeGone
from zonemta_py.pipeline.nodes.nodes import Announcement, Nodes
from zonemta_py.pipeline.send.errors import InjectionStopped
from zonemta_py.pipeline.send.inject import inject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zonemta_py.pipeline.send.writer import Injected

CANARY_PATIENCE_S = 1800.0
CANARY_ENOUGH = 0.9
"""Share of the canary's recipients whose first answer is waited for; the slowest providers are not."""
CANARY_LEAST = 0.5
"""With less than that after the whole patience, the result is unknown, and nothing more is sent."""
LOOK_S = 1.0
JUDGED_S = 3.0
"""The nodes check their figures against the bounds each second: after so long they have evaluated what is known."""
Move = Callable[[int, int], object]


class CampaignStopped(Exception):
    """It has stopped; one sentence with the cause and the remedy."""


def send(
    rows: DataFrame, campaign: Announcement, target: NodeAccess, day: int = 0,
    canary_patience_s: float = CANARY_PATIENCE_S, say: Callable[[str], object] = lambda step: None,
    move: Move = lambda done, of: None,
) -> Injected:  # fmt: skip
    """rows: the plan's. day: the last whose chunks go now. Returns what the nodes said of all of them.

    Raises CampaignStopped, InjectionFailed, NodeRefused, NodeGone.
    """
    from pyspark.sql import functions as F

    from zonemta_py.pipeline.send.writer import Injected

    whole = Injected()
    with Nodes(target) as nodes:
        say("announce the campaign")
        nodes.announce(campaign)
        watch = _Watch(nodes, campaign, move)
        if sentence := watch():
            raise CampaignStopped(sentence)
        now = rows.where(F.col("day") <= day)
        if campaign.seeds and (first := now.orderBy("position").select("body").first()) is not None:
            whole.join(_seed(nodes, campaign, bytes(first.body)))
        try:
            canary = now.where("canary")
            if not canary.isEmpty():
                say("send the canary")
                whole.join(inject(canary, target, stop=watch))
                if not campaign.variants:
                    say("wait for the canary's results")
                    _wait(nodes, campaign, whole, canary_patience_s)
            say("send")
            whole.join(inject(now.where("not canary"), target, stop=watch))
        except InjectionStopped as stopped:
            raise CampaignStopped(str(stopped)) from None
        if rows.where(F.col("day") > day).isEmpty():
            for name in (*campaign.variants, campaign.name):
                nodes.order(name, "complete")
    return whole


def _seed(nodes: Nodes, campaign: Announcement, body: bytes) -> Injected:
    """The campaign's, and each variant's, message for the seeds, by the first node; repeated, it changes nothing."""
    from zonemta_py.pipeline.send.writer import Injected

    whole, request = Injected(), json.loads(body)
    values = request["recipients"][0][1:]
    for name in (*campaign.variants, campaign.name):
        batch = request | {"campaign": name, "recipients": [[seed, *values] for seed in campaign.seeds]}
        whole.add(nodes.nodes[0].inject("seeds", json.dumps(batch, ensure_ascii=False).encode()))
    return whole


class _Watch:
    """Shows the progress, and says why it should stop. An unreachable node may be back soon: the writer waits."""

    def __init__(self, nodes: Nodes, campaign: Announcement, move: Move) -> None:
        self._nodes, self._campaign, self._move = nodes, campaign, move

    def __call__(self) -> str:
        try:
            row = self._nodes.status(self._campaign.name)
            self._move(row["accepted"] + row["suppressed"], self._campaign.planned)
            return self._nodes.stopped(self._campaign.name)
        except NodeGone:
            return ""


def _wait(nodes: Nodes, campaign: Announcement, canary: Injected, patience_s: float) -> None:
    """Until most of the canary has an answer, and the nodes have evaluated it. Raises CampaignStopped."""
    end, known = time.monotonic() + patience_s, 0.0
    while True:
        row = nodes.status(campaign.name)
        if sentence := nodes.stopped(campaign.name):
            raise CampaignStopped(f"the canary: {sentence}")
        answered = canary.accepted - row["waiting"] + min(row["deferred"], row["waiting"])
        share = answered / canary.accepted if canary.accepted else 1.0
        if row["accepted"] > canary.accepted:  # more is in than the canary: it was evaluated then
            return
        if share >= CANARY_ENOUGH:
            known = known or time.monotonic()
            if time.monotonic() - known >= JUDGED_S:
                return
        elif time.monotonic() > end:
            break
        time.sleep(LOOK_S)
    if share < CANARY_LEAST:
        raise CampaignStopped(
            f"the canary: only {share:.0%} of its {canary.accepted:,} recipients have a result after "
            f"{patience_s:.0f} s; see `zonemta campaign status {campaign.name}`, then continue with --resume"
        )


def warm(spark: SparkSession) -> None:
    """Starts in the background, since it takes seconds and a core is idle meanwhile: the Python workers that
    `normalise` needs, and what Spark wants to know before it takes a data source."""
    threading.Thread(target=_warm, args=(spark,), daemon=True).start()


def _warm(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    from zonemta_py.pipeline.prepare.spelling import judged
    from zonemta_py.pipeline.send.writer import ZonemtaDataSource

    tasks = spark.sparkContext.defaultParallelism
    unusual = F.concat(F.lit("\u00e4@\u00f6.test"), F.col("id"))
    with contextlib.suppress(Py4JError, PySparkException, OSError):  # the program has ended meanwhile
        rows = spark.range(0, tasks, 1, tasks)
        rows.select(arrow_udf(judged, "string")(unusual)).collect()  # type: ignore[call-overload]
        spark.dataSource.register(ZonemtaDataSource)
