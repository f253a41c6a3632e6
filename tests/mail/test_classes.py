"""The table of reply classes: its rows agree with each other, and with what reads them."""

from __future__ import annotations

import pytest

from zonemta_py.config.suppression import GROUPS
from zonemta_py.mail.notices.phrases import ADVICE
from zonemta_py.mail.rules.classes import ABOUT_US, CLASSES, SUBJECTS, ReplyClass
from zonemta_py.queue.suppression.evidence import GUARDED


@pytest.mark.parametrize(("name", "row"), CLASSES.items(), ids=CLASSES.keys())
def test_a_row_names_what_there_is(name: str, row: ReplyClass) -> None:
    assert row.about in ("", *SUBJECTS)
    assert row.suppresses in ("", *GROUPS)
    assert row.advice in ("", *ADVICE)


@pytest.mark.parametrize(("name", "row"), CLASSES.items(), ids=CLASSES.keys())
def test_only_what_is_said_of_the_recipient_counts_against_it(name: str, row: ReplyClass) -> None:
    """Or of its domain; and one reply is enough only where a guard looks on."""
    assert (row.about in ("recipient", "domain")) == bool(row.suppresses)
    assert bool(row.statuses) == (row.suppresses in GUARDED)
    assert not (row.suppresses and (row.blocked or row.refuses or row.throttles))


def test_what_counts_as_blocked_is_a_refusal() -> None:
    blocked = {name for name, row in CLASSES.items() if row.blocked}
    assert blocked < {name for name, row in CLASSES.items() if row.refuses}
    assert not ABOUT_US & {name for name, row in CLASSES.items() if row.suppresses}
