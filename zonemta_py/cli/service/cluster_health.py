"""What `zonemta doctor` says of a cluster: each NATS server (whether it is reached, how old it is, whether it syncs
always, whether there are enough), the streams and their copies, this node's name, and the nodes' clocks.

It listens for SAMPLE_S to the signs of life that nodes give each second. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from zonemta_py.cli.service.diagnosis import Diagnosis, note, ok, problem, warning
from zonemta_py.cluster import servers
from zonemta_py.cluster.log_stream import stream_of
from zonemta_py.cluster.nats import Nats, NatsError, NatsRefusal, NotThere, StreamCopies
from zonemta_py.cluster.nodes import BUCKET, FILE, NODE, QUEUE
from zonemta_py.config import Config
from zonemta_py.disk import packing
from zonemta_py.journal.folders import FOLDER

REACH_S, SAMPLE_S, LOOK_S, CLOCK_S = 4.0, 3.0, 0.1, 1.0
"""CLOCK_S: clocks that are farther apart are warned of."""


class Sign(NamedTuple):
    """Of life. run: of that process; ahead_s: its clock, compared with ours."""

    instance: str
    run: str
    revision: int
    ahead_s: float | None


async def findings(config: Config) -> list[Diagnosis]:
    section = config.cluster
    found = [await _server(config, url) for url in section.servers]
    try:
        nats = await Nats.connect(section, f"{config.node}: doctor", REACH_S)
    except NatsError as error:
        return [*found, problem("NATS", f"no server can be used: {error}", "start them, or correct cluster.servers")]
    try:
        found += await _settings(nats, config)
        try:
            await nats.copies(f"KV_zonemta-{section.name}-{BUCKET}", REACH_S)
        except NotThere:
            return [*found, note("cluster", "no node has joined it yet")]
        found += await _streams(nats, config)
        found += await _nodes(nats, config)
    except NatsError as error:
        remedy = "let most servers run, and look at their logs for what holds them up"
        found.append(problem("JetStream", f"does not answer: {error}", remedy))
    finally:
        await nats.close()
    return found


async def _server(config: Config, url: str) -> Diagnosis:
    about = f"NATS {url}"
    try:
        nats = await Nats.connect(config.cluster.model_copy(update={"servers": [url]}), "doctor", REACH_S)
    except NatsRefusal as error:
        return problem(about, str(error), "correct cluster.username, password or credentials, or the server's users")
    except NatsError as error:
        return warning(
            about, f"cannot be reached: {error}", "start it, let it through the firewall, or correct the address"
        )
    version = nats.version
    await nats.close()
    shown, oldest = (".".join(map(str, one)) for one in (version, servers.OLDEST))
    if version < servers.OLDEST:
        return problem(about, f"is nats-server {shown}", f"install nats-server {oldest} or a later one")
    return ok(about, f"answers, nats-server {shown}")


async def _settings(nats: Nats, config: Config) -> list[Diagnosis]:
    """As at a node's start."""
    try:
        await servers.check(nats, config)
    except NatsRefusal as error:
        parts = (sentence.rpartition("; ") for sentence in str(error).splitlines())
        return [problem("NATS", (words or remedy).removeprefix("NATS "), remedy) for words, _, remedy in parts]
    replicas = config.cluster.replicas
    return [ok("NATS", f"all servers that answer sync always, and there are enough for cluster.replicas = {replicas}")]


async def _streams(nats: Nats, config: Config) -> list[Diagnosis]:
    name, keys = config.cluster.name, await nats.bucket(BUCKET).keys(REACH_S)
    numbers = sorted(int(key.removeprefix(QUEUE)) for key in keys if key.startswith(QUEUE))
    names = [*(stream_of(name, number) for number in numbers), f"zonemta-{name}-ORDERS"]
    names += [f"KV_zonemta-{name}-{bucket}" for bucket in ("nodes", "leader")]
    asked = await asyncio.gather(*(nats.copies(one, REACH_S) for one in names), return_exceptions=True)
    found = list(_copies(dict(zip(names, asked, strict=True)), config.cluster.replicas))
    return found or [ok("streams", f"all {len(names)} have a leader, and all of their copies are current")]


def _copies(streams: Mapping[str, StreamCopies | BaseException], replicas: int) -> Iterator[Diagnosis]:
    for name, one in streams.items():
        if isinstance(one, NotThere):
            yield note(name, "is not there yet: its queue has not started")
        elif isinstance(one, BaseException):
            remedy = "let most servers run; if they do, look at their logs for this stream"
            yield problem(name, f"has no leader that answers: {one}", remedy)
        elif one.wanted < replicas:
            remedy = f"`nats stream update {name} --replicas {replicas}`, or lower cluster.replicas"
            yield warning(name, f"is kept on {one.wanted} servers, and cluster.replicas is {replicas}", remedy)
        elif one.behind:
            words = f"its copy on {', '.join(one.behind)} is behind, or away"
            yield warning(
                name, words, "start that server, and wait until it has caught up before another one is stopped"
            )


async def _nodes(nats: Nats, config: Config) -> list[Diagnosis]:
    signs = await _signs(nats)
    living = {name: seen for name, seen in signs.items() if len({one.revision for one in seen}) > 1}
    silent = sorted(signs.keys() - living.keys())
    found = [_own_name(config, living.get(config.node, []))]
    if silent:
        words = f"no sign of life from {', '.join(silent)} for {SAMPLE_S:g} s"
        found.append(warning("nodes", words, "start it again; its mail is with the others meanwhile"))
    elif living:
        found.append(ok("nodes", f"{', '.join(sorted(living))} give signs of life"))
    return [*found, *clocks({name: [one.ahead_s for one in seen] for name, seen in living.items()})]


async def _signs(nats: Nats) -> dict[str, list[Sign]]:
    """By node: the last one, and what follows within SAMPLE_S, with what its clock was then."""
    found, first = dict[str, list[Sign]](), True
    end = time.monotonic() + SAMPLE_S
    while first or time.monotonic() < end:
        for entry in await nats.bucket(BUCKET).all(REACH_S):
            if not entry.key.startswith(NODE) or entry.value is None:
                continue
            seen = found.setdefault(entry.key.removeprefix(NODE), [])
            if all(one.revision < entry.revision for one in seen):
                facts = packing.unpack(entry.value)
                clock_ms = facts.get("clock_ms")
                ahead_s = None if first or clock_ms is None else clock_ms / 1000 - time.time()
                seen.append(Sign(facts["instance"], facts.get("run", ""), entry.revision, ahead_s))
        first = False
        await asyncio.sleep(LOOK_S)
    return found


def _own_name(config: Config, seen: list[Sign]) -> Diagnosis:
    about, node = f"node {config.node}", config.node
    if not seen:
        return note(about, "does not run now")
    if len({one.run for one in seen}) > 1:
        remedy = "stop one of them, and let it begin with an empty folder and another cluster.node"
        return problem(about, "two processes give signs of life as this node, from copies of one folder", remedy)
    path = config.folder / FOLDER / FILE
    try:
        mine = str(json.loads(path.read_bytes())["instance"])
    except (OSError, ValueError, KeyError):
        mine = ""
    if seen[-1].instance != mine:
        words = f"the node {node} that runs is another machine, or has another folder than {config.folder}"
        return problem(about, words, "give this one a cluster.node that no other has")
    return ok(about, "its name is its own")


def clocks(ahead: Mapping[str, Iterable[float | None]]) -> list[Diagnosis]:
    """By node: how far its clock was ahead of this machine's, each time as seen a little later."""
    seen = {name: [one for one in each if one is not None] for name, each in ahead.items()}
    known = {name: max(each) for name, each in seen.items() if each}
    wrong = {name: by for name, by in known.items() if abs(by) > CLOCK_S}
    if wrong:
        said = ", ".join(
            f"{name} {abs(by):.1f} s {'ahead' if by > 0 else 'behind'}" for name, by in sorted(wrong.items())
        )
        remedy = "let NTP set the clock of each machine (chrony, systemd-timesyncd)"
        return [warning("clocks", f"compared with this machine's: {said}", remedy)]
    return [ok("clocks", f"those of {len(known)} nodes differ by less than {CLOCK_S:g} s")] if known else []
