"""Configurations of three nodes: what must be alike is one version of all, and nobody's limit is laxer meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nats_servers import program
from survival.cluster import Node

from tests.cluster.test_nodes_run import running, until

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(not program(), reason="nats-server is not installed")]
_LIMIT = '[[throttles]]\nname = "pace"\nmessages = "60/min"\n'


def write(node: Node, old: str, new: str) -> None:
    text = node.mta.config_file.read_text()
    assert old in text
    node.mta.config_file.write_text(text.replace(old, new))


def reloaded(node: Node, check: bool = False) -> list[str]:
    """Why not."""
    found: list[str] = node.mta.ask("reload", check=check, by="a test")["refused"]
    return found


def agreed(node: Node, of: str) -> tuple[int, list[str]]:
    """A node's version, and the keys that differ, as another one says."""
    row = next(one for one in node.mta.ask("cluster-versions")["nodes"] if one["node"] == of)
    return row["version"], [key for key, _, _ in row["differs"]]


def in_force(node: Node) -> Any:
    """The limit by which the node's queue goes, as its history of configurations has it."""
    for row in node.mta.ask("configurations"):
        for key, _, new in row["changes"]:
            if key == "throttles.pace.messages":
                return new
    return "60/min"


def shown(node: Node, *words: str) -> str:
    command = [node.mta.python, "-m", "zonemta_py", "cluster", *words, "--config", str(node.mta.config_file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


at_rest = asyncio.to_thread
"""The ways to the servers go on meanwhile."""


async def test_a_change_is_a_version_and_others_are_named_until_they_have_it(tmp_path: Path) -> None:
    key = "throttles.pace.messages"
    async with running(tmp_path, more=_LIMIT) as (nodes, _, _):
        a, b, c = nodes.all
        await until(lambda: [agreed(a, one.name) for one in nodes.all] == [(1, [])] * 3)
        write(a, '"60/min"', '"30/min"')
        assert await at_rest(reloaded, a, check=True) == []
        assert (await at_rest(agreed, b, "a"))[0] == 1
        assert await at_rest(reloaded, a) == []
        await until(lambda: (agreed(c, "a"), agreed(c, "b")) == ((2, []), (1, [key])))
        await until(lambda: in_force(b) == in_force(c) == "30/min")
        assert key in b.mta.log.read_text()

        write(b, '"60/min"', '"45/min"')
        assert "has not had version 2" in (await at_rest(reloaded, b, check=True))[0]
        assert "take that over first" in (await at_rest(reloaded, b))[0]
        write(b, '"45/min"', '"60/min"')
        write(b, "archive_days = 60", "archive_days = 61")
        assert await at_rest(reloaded, b) == [], "what is not shared may change"
        assert await at_rest(agreed, b, "b") == (1, [key])
        write(b, '"60/min"', '"30/min"')
        assert await at_rest(reloaded, b) == []
        assert await at_rest(agreed, b, "b") == (2, [])

        write(a, 'messages = "30/min"', 'messages = "30/min"\nper = ["site"]')
        assert "under another name" in (await at_rest(reloaded, a, check=True))[0]
        write(a, '\nper = ["site"]', "")

        c.mta.kill("all")
        write(b, '"30/min"', '"20/min"')
        assert await at_rest(reloaded, b) == []
        c.again()  # with the file of version 1
        await c.mta.taking()
        assert "is older than version 3" in c.mta.log.read_text()
        await until(lambda: "20/min" in in_force(c))
        await until(lambda: agreed(a, "c") == (1, [key]))

        rows = (await at_rest(a.mta.ask, "cluster-versions"))["versions"]
        assert [(row["number"], row["node"], [one[2] for one in row["changes"]]) for row in rows[1:]] == [
            (2, "a", ["30/min"]), (3, "b", ["20/min"]),
        ]  # fmt: skip
        assert "20/min" in await at_rest(shown, a, "config")
        assert key in await at_rest(shown, a, "config", "--history")
        assert "60/min" in await at_rest(shown, a, "config", "--diff", "c")
        assert f"behind: {key}" in await at_rest(shown, a)


async def test_a_scope_that_others_count_by_cannot_change_at_a_start_either(tmp_path: Path) -> None:
    async with running(tmp_path, more=_LIMIT, count=2) as (nodes, _, _):
        a, _ = nodes.all
        a.mta.kill("all")
        write(a, 'messages = "60/min"', 'messages = "60/min"\nper = ["site"]')
        a.again()
        await until(lambda: "under another name" in a.mta.log.read_text())
        await until(lambda: not a.mta.alive)
        write(a, '\nper = ["site"]', "")
        a.again()
        await a.mta.taking()
