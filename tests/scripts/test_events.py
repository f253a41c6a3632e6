"""scripts/trials/events: its judgement, and a short run with one receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

from brokers.outage import out_of_order  # noqa: E402
from brokers.receivers import Came  # noqa: E402
from brokers.servers import RedisServer  # noqa: E402


@pytest.mark.parametrize(
    ("came", "wrong"),
    [
        ("a1 a2 b1 a3", 0),
        ("a1 b2 a2 b1", 1),
        ("a2 a1 a3", 1),
        ("a1 a2 a1 a2 a3", 0),  # a batch that came twice
        ("a3 a1 a2 a3", 2),
    ],
)
def test_order_is_that_of_first_arrivals_within_a_message(came: str, wrong: int) -> None:
    assert out_of_order([Came(name, name[0]) for name in came.split()], ["a1", "b1", "a2", "b2", "a3"]) == wrong


def test_what_belongs_to_no_message_has_no_order() -> None:
    assert out_of_order([Came("b", ""), Came("a", "")], ["a", "b"]) == 0


def test_redis_dies_under_load_and_every_event_is_there_after_all(tmp_path: Path) -> None:
    """A real MTA, real mail, a real server: killed for three seconds, with more events than memory holds."""
    if RedisServer.missing():
        pytest.skip(RedisServer.missing())
    command = [sys.executable, "-m", "brokers.outage", "--json", "--only", "redis", "--down", "3", "--rate", "250"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/scripts:{ROOT}/scripts/trials"}
    ran = subprocess.run(
        [*command, "--folder", str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    figures = json.loads(ran.stdout)
    redis = figures["receivers"]["redis"]
    assert redis["came"] - redis["repeated"] >= figures["events"] > 0
    assert redis["ring_pages"] > 0
    assert (redis["lost"], redis["out_of_order"], redis["dropped"]) == (0, 0, 0)
