"""The queue's contract, kept by three nodes on three NATS servers: scripts/trials/conformance in short. The cases share
two blows; each is in the middle of something when its blow falls."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from nats_servers import program
from rich.console import Console
from survival.conformance import shared, trial
from survival.contract.cases import ALONE, CASES, COVERED

TESTS = Path(__file__).parents[1] / "queue"
BLOWS = ("leader", "server")
FILES = [*TESTS.glob("contract/test_*.py"), TESTS / "test_conformance.py"]


@pytest.mark.skipif(not program(), reason="nats-server is not installed")
async def test_the_contract_holds_while_a_node_and_a_server_die(tmp_path: Path) -> None:
    figures = await trial(tmp_path, shared(list(CASES), BLOWS), Console())
    assert figures["broken"] == []
    assert figures["cases"] == len(CASES)
    assert all(figures[f"blows: {kind}"] == 1 for kind in BLOWS)


def test_each_rule_of_one_queue_is_one_of_the_cluster() -> None:
    """Every test of one queue has a case that says the same of three nodes, or a reason."""
    trees = [ast.parse(path.read_text()) for path in FILES]
    tests = {node.name for tree in trees for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}
    tests = {name for name in tests if name.startswith("test_")}
    covered = {name for names in COVERED.values() for name in names}
    assert tests - covered == set(ALONE), "write a case, or say why it needs none"
    assert covered <= tests, "there is no such test"
