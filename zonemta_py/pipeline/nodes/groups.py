"""Which of the nodes that were named are one MTA: those of one cluster, told by what they answer.

Promise: two clusters are never taken for one, nor a node that is alone for one of a cluster: a node that has not said
what it is is used by nobody before it has (`client.py`).
Failures: those of `client`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from zonemta_py.pipeline.nodes.client import NodeAccess, NodeClient, NodeGone, NodeGroup

ENOUGH_S = 5.0
"""After so long, nodes of a cluster that do not answer are not waited for."""


def groups(target: NodeAccess) -> list[NodeGroup]:
    """In the order in which they were named. A node that does not answer within seconds is taken for one of the cluster
    that all others are of, else for one that is alone; if none answers, they are waited for with patience. Raises
    NodeRefused."""
    urls = list(dict.fromkeys(url.rstrip("/") for url in target.nodes))
    if len(urls) == 1:  # whatever it is, it is one
        return [NodeGroup.alone(urls[0])]
    found, end = dict[str, NodeGroup](), time.monotonic() + target.patience_s
    with ThreadPoolExecutor(len(urls)) as pool:
        while not found and time.monotonic() < end:
            found = {url: one for url, one in zip(urls, pool.map(partial(_ask, target), urls), strict=True) if one}
    others = {one.key: one for one in found.values()}
    cluster = next(iter(others.values())) if len(others) == 1 else None
    if cluster is not None and cluster.id:
        return [cluster._replace(urls=tuple(urls))]
    together = dict[str, NodeGroup]()
    for url in urls:
        one = found.get(url, NodeGroup.alone(url))
        before = together.get(one.key)
        together[one.key] = one if before is None else before._replace(urls=(*before.urls, url))
    return list(together.values())


def _ask(target: NodeAccess, url: str) -> NodeGroup | None:
    with NodeClient(url, replace(target, patience_s=min(ENOUGH_S, target.patience_s))) as node:
        try:
            return node.identity()
        except NodeGone:
            return None
