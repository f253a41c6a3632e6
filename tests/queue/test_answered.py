"""About how many people each provider has answered within a day: bounded, and kept over a start."""

import pytest

from zonemta_py.queue.suppression.provider_answers import PLACES_KEPT, PLACES_MAX, STEP_MS, STEPS, ProviderAnswers

DAY_MS = 86_400_000


@pytest.fixture
def answered() -> ProviderAnswers:
    made = ProviderAnswers()
    made.turn(20_000 * DAY_MS)
    return made


@pytest.mark.parametrize(
    ("taken", "refused", "later", "share"),
    [
        (0, 0, 0, 0),
        (90, 10, 0, 0.1),
        (90, 0, 9, 0.1),  # whom it bounces later it had taken
        (80, 20, 5, 0.25),
        (0, 0, 7, 1),
    ],
)
def test_the_share_is_of_those_it_has_answered_about(
    answered: ProviderAnswers, taken: int, refused: int, later: int, share: float
) -> None:
    answered.took("x", taken)
    for number in range(refused + later):
        answered.refused("x", later=number < later)
    assert answered.share("x") == share
    assert answered.share("y") == 0


def test_it_is_of_a_day(answered: ProviderAnswers) -> None:
    """In steps of four hours: what is older than the seventh counts no more, and nothing is written of it."""
    answered.took("x", 100)
    answered.refused("x", later=True)
    answered.turn(20_000 * DAY_MS + STEPS * STEP_MS)
    answered.took("x", 100)
    assert answered.share("x") == 1 / 200
    answered.turn(20_000 * DAY_MS + (STEPS + 1) * STEP_MS)
    assert answered.share("x") == 0
    assert [key for key, value in answered.changes(least=1) if value is not None] == [b"guard-day x"]
    answered.turn(20_003 * DAY_MS)
    assert answered.changes(least=1) == [(b"guard-day x", None)]
    assert answered.changes(least=1) == []


def test_the_largest_are_kept(answered: ProviderAnswers) -> None:
    """However many send nothing more than one message; what the store has of the others goes."""
    for number in range(PLACES_KEPT):
        answered.took(f"large{number}", 5)
    answered.state("small0")
    answered.took("small0", 1)
    assert len(answered.state("small0")) == 1
    for number in range(3 * PLACES_MAX):
        answered.took(f"small{number}", 1)
    assert all(answered.share(f"large{number}") == 0 for number in range(PLACES_KEPT))
    assert len(answered._cells) <= PLACES_MAX
    assert all(f"large{number}" in answered._cells for number in range(PLACES_KEPT))
    assert (b"guard-day small0", None) in answered.changes(least=1_000)


def test_what_a_guard_was_about_counts_no_more(answered: ProviderAnswers) -> None:
    answered.took("x", 10)
    answered.refused("x", later=False)
    answered.believe("x", "192.0.2.1", 7)
    assert answered.share("x") == 0
    assert (answered.believed_ms("x", "192.0.2.1"), answered.believed_ms("x", "192.0.2.2")) == (7, 0)
    answered.believe("x", "", 9)
    assert (answered.believed_ms("x", "192.0.2.1"), answered.believed_ms("y", "")) == (9, 0)
