"""Limits, fairness and learned rates of the whole MTA, killed in between, in short; scripts/trials/limits has it long.

The bounds on what is reached leave room for a machine that is busy; those on what must not be exceeded do not.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from restraint import fairness, provider

ROOT = Path(__file__).resolve().parents[2]
LEAST = "0.2"


@pytest.mark.parametrize(
    "names",
    [
        ("source/messages", "provider/recipients", "tenant/bytes", "site/new_connections"),
        ("all/messages", "zone/bytes", "campaign/recipients", "source-site/new_connections"),
    ],
)
def test_limits_hold_over_kills(tmp_path: Path, names: tuple[str, ...]) -> None:
    """More mail than each limit allows, two senders, the queue killed, then everything: kept, used, and explained. With
    --json the script prints one JSON object, and its exit status says whether all is well."""
    short = ["--limits", *names, "--seconds", "6", "--least", LEAST]
    command = ["scripts/trials/limits", *short, "--folder", str(tmp_path), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    figures = json.loads(done.stdout)["limits"]
    assert (figures["broken"], done.returncode) == ([], 0), done.stderr
    assert [f"{row['on']}/{row['kind']}" for row in figures["limits"]] == [*names]


async def test_urgent_messages_pass_a_newsletter(tmp_path: Path) -> None:
    """Behind 3,000 recipients of a campaign that may send 150 a second, urgent ones wait for next to nothing."""
    figures = await fairness.priority(tmp_path, recipients=3_000, urgent=50, rate=150)
    assert figures["broken"] == []


async def test_campaigns_share_by_weight(tmp_path: Path) -> None:
    """Weights 1 : 2 : 4 at a rate that is too low for all of them."""
    figures = await fairness.shares(tmp_path, seconds=5, recipients=400, rate=200)
    assert figures["broken"] == []


async def test_a_rate_is_learned(tmp_path: Path) -> None:
    """From 65 a second down to the 50 that the provider takes, few refused then, and up again when it takes more."""
    figures = await provider.trial(
        tmp_path, free_s=1.5, settle_s=4.5, hold_s=3, relent_s=4, recipients=3_000, pace="65/s", burst=10,
        learning="rate_increase_s = 0.2", least=25, refused_most=0.5, rise=1.05,
    )  # fmt: skip
    assert figures["broken"] == []
