"""The short form of scripts/trials/questions: everything is asked of 40,000 recipients while mail is sent."""

from pathlib import Path
from typing import Any

import asking
import pytest

TOP = Path(__file__).parents[2]
RECIPIENTS = 40_000


@pytest.fixture
def found(memory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("PYTHONPATH", f"{TOP}:{TOP / 'scripts'}:{TOP / 'scripts' / 'trials'}")
    return dict(asking.trial(memory / "mta", RECIPIENTS, 0.5, lambda text: None, stretches=2))


def test_every_question_is_answered_and_mail_goes_on(found: dict[str, Any]) -> None:
    """How long answers take, and what mail loses by them, is measured by scripts/trials/questions alone; that questions
    rest is tried in tests/queue/test_browse.py."""
    assert found["size"]["queued"] + found["size"]["deferred"] > 0.9 * RECIPIENTS
    for when in ("idle", "work", "busy"):
        assert found[when].keys() >= {"size", "list", "list nobody", "sizes domain", "show", "lanes", "trace"}
    assert len(found["asked"]["rates"]) == 1
    assert max(found["asked"]["rate"], found["alone"]["rate"]) > 0, found


def test_three_queues_answer_as_one_and_take_orders(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{TOP}:{TOP / 'scripts'}:{TOP / 'scripts' / 'trials'}")
    many = 6_000
    found = asking.trial(memory / "mta", many, 0.2, lambda text: None, stretches=2, queues=3, orders=1)
    assert (found["queues"], found["size"]["messages"]) == (3, many / asking.TOGETHER)
    questions = {"size", "list", "list nobody", "sizes domain", "show", "lanes", "trace", "qshape"}
    for when in ("idle", "work", "authority", "busy"):
        assert found[when].keys() >= questions
    for when in ("orders", "orders_work", "orders_authority"):
        assert found[when].keys() >= {
            "suspend",
            "resume",
            "suppression add",
            "campaign pause",
            "delete a third",
            "undo",
        }
    assert found["busy_orders"].keys() >= {"suspend", "delete a third", "task cancel"}
    (deleted,) = found["deletes"]
    assert many * 0.2 < deleted["recipients"] < many * 0.6
    assert max(found["asked"]["rate"], found["alone"]["rate"]) > 0, found
