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
