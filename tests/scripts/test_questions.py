"""The short form of scripts/questions: everything is asked of 100,000 recipients while mail is sent."""

import sys
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture
def found(memory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(TOP / "scripts"))
    monkeypatch.setenv("PYTHONPATH", f"{TOP}:{TOP / 'scripts'}")
    sys.modules.pop("asking", None)
    import asking

    return dict(asking.trial(memory / "mta", 100_000, 1.0, lambda text: None, stretches=2))


def test_no_question_stops_the_scheduler(found: dict[str, Any]) -> None:
    """By what the queue's process works, as the machine may be busy otherwise: no answer takes long, the event loop is
    never held for long, and deliveries go on."""
    alone, asked = found["alone"], found["asked"]
    assert found["size"]["queued"] + found["size"]["deferred"] > 90_000
    slow = {name: work["p50"] for name, work in found["work"].items() if work["p50"] > 50}
    assert slow.keys() <= {"trace"}, slow  # what follows one question falls into it; it waits for a process of its own
    assert asked["worked"]["p99"] <= 30
    assert asked["by_work"] > 0.55 * alone["by_work"]  # questions rest by the clock: of little time they have more
