"""scripts/trials/truth in short: answers are what files say, and no attempt goes against an answered order."""

from __future__ import annotations

from pathlib import Path

from survival import truth
from survival.truth import Forbidden


async def test_answers_are_what_files_say_and_orders_hold(tmp_path: Path) -> None:
    figures = await truth.trial(tmp_path / "queue", rounds=2, letters=40, kills=3, seed=4)
    assert figures["broken"] == []
    assert figures["attempts"] > 40
    assert sum(figures["orders"].values()) > 20


def test_what_goes_against_an_order_is_seen() -> None:
    """What an order is about, and what it is not about; a task, only what there was before it."""
    stop = Forbidden("domain", "d1.test", 100.0)
    assert stop.meets("default", "ann@d1.test", "", 0)
    assert not stop.meets("default", "ann@d2.test", "", 0)
    task = Forbidden("task", "d1.test", 120.0, 100.0)
    assert task.meets("default", "ann@d1.test", "c1", 99)
    assert not task.meets("default", "ann@d1.test", "c1", 101)
    assert Forbidden("campaign", "c1", 1.0).meets("bulk", "ann@d2.test", "c1", 0)
    assert Forbidden("address", "ann@d2.test", 1.0).meets("bulk", "ann@d2.test", "", 0)


def test_a_difference_is_told() -> None:
    """Whatever of it: a recipient, a count, a suspension that one queue lacks, a task's figures, a campaign's."""
    row = ["1", "ann@d1.test", "queued", "default"]
    counts = dict.fromkeys(truth.FIGURES, 0)
    files = [
        {"recipients": [row], "suppressed": [], "stops": [["zone", "bulk"]], "tasks": {"7": [1, 0]},
         "campaigns": {"c1": counts}, "doubts": []},
        {"recipients": [], "suppressed": [], "stops": [["zone", "bulk"]], "tasks": {"7": [2, 0]}, "campaigns": {},
         "doubts": []},
    ]  # fmt: skip
    size = {"messages": 1, "queued": 1, "deferred": 0, "held": 0, "deleted": 0}
    answered = {
        "recipients": [row], "size": size, "domains": {"d1.test": {"queued": 1}}, "suppressed": [],
        "stops": [["zone", "bulk"]], "tasks": {"7": [3, 0]}, "campaigns": {"c1": counts}, "doubts": [],
    }  # fmt: skip
    assert list(truth._differences(answered, files)) == []
    for name, wrong, said in (
        ("recipients", [], "recipients:"), ("size", size | {"held": 1}, "held"), ("domains", {}, "d1.test is said"),
        ("stops", [], "stops in queue 0"), ("tasks", {"7": [2, 0]}, "task 7"),
        ("campaigns", {"c1": counts | {"accepted": 1}}, "campaign c1"), ("doubts", [["1", "a@b.test"]], "in doubt"),
    ):  # fmt: skip
        assert any(said in line for line in truth._differences(answered | {name: wrong}, files)), name
