"""Blocks: a change that begins at a known minute is found soon, and quiet pairs are left in peace."""

import math
import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.pipeline.findings.blocks import NO_HISTORY, Bounds, History, Usual, blocks, episodes
from zonemta_py.pipeline.findings.windows import KINDS, WINDOW_S, Counted

DAY = 288
"""Windows in a day."""
BEGINS, ENDS = 700, 740
LISTED = (
    "Service unavailable; client [192.0.2.1] blocked using zen.spamhaus.org, see https://check.spamhaus.org/q/192.0.2.1"
)


def windows(shares: list[float], kind: str = "blocked", attempts: int = 60, seed: int = 1) -> list[Counted]:
    """One window after the other, in each of which each attempt is refused with the probability given."""
    chance = random.Random(seed)
    made = []
    for number, share in enumerate(shares):
        refused = sum(chance.random() < share for _ in range(attempts))
        counts = {each: refused if each == kind else 0 for each in KINDS}
        nothing: dict[str, Any] = dict.fromkeys(KINDS)
        first = nothing | ({kind: number * WINDOW_S + 7.0} if refused else {})
        reply = nothing | ({kind: "554 5.7.1 no"} if refused else {})
        made.append(Counted(number * WINDOW_S, attempts, attempts - refused, 0, **counts, first_at=first, reply=reply))
    return made


def test_a_block_is_found_in_its_first_window_and_ends_where_it_ends() -> None:
    """The windows of a block, and no others, are one episode, with the shares before and in it."""
    shares = [0.02] * BEGINS + [0.9] * (ENDS - BEGINS) + [0.02] * 100
    [found] = episodes(windows(shares), "blocked")
    assert (found.since // WINDOW_S, found.until) == (BEGINS, ENDS * WINDOW_S)
    assert found.before.share == pytest.approx(0.02, abs=0.005)
    assert found.after == pytest.approx(0.9, abs=0.03)
    assert found.explanation.startswith("blocked 89.9% of 2400 attempts; before: 2.2% of 42000 attempts; z = ")


def test_a_block_that_lasts_does_not_become_usual() -> None:
    """As long as it goes on it is one episode without an end."""
    [found] = episodes(windows([0.02] * DAY + [0.6] * 5 * DAY), "blocked")
    assert (found.since // WINDOW_S, found.until) == (DAY, None)


def test_what_always_was_bad_is_no_change() -> None:
    """A pair of which half is deferred every day has no block, and neither has one that slowly gets worse by little."""
    assert not episodes(windows([0.5] * 3 * DAY, "deferred"), "deferred")
    assert not episodes(windows([0.02 + n / 20_000 for n in range(3 * DAY)]), "blocked")


def test_a_new_source_that_is_refused_at_once_is_found() -> None:
    """Without history, a share far above any that is usual anywhere counts."""
    [found] = episodes(windows([0.95] * 20), "blocked")
    assert (found.since // WINDOW_S, found.before.attempts) == (0, 0)
    assert "no history" in found.explanation


def test_quiet_pairs_are_joined_to_windows_that_can_tell() -> None:
    """With three attempts in five minutes a block takes an hour to be seen, but is seen."""
    [found] = episodes(windows([0.02] * 5 * DAY + [1.0] * 60, attempts=3), "blocked")
    assert 0 <= found.since // WINDOW_S - 5 * DAY + 12 <= 24


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.4]), st.sampled_from([5, 60, 500]))
def test_quiet_pairs_are_not_flagged(seed: int, share: float, attempts: int) -> None:
    """Chance alone flags nobody, whatever the usual share is."""
    assert not episodes(windows([share] * DAY, attempts=attempts, seed=seed), "blocked")


def by_definition(quiet: list[tuple[int, int]], bounds: Bounds) -> Usual:
    attempts, refused = (sum(column) for column in zip(*quiet, strict=True)) if quiet else (0, 0)
    if attempts < bounds.history_least:
        return NO_HISTORY
    share = (refused + 0.5) / (attempts + 1)
    squares = math.fsum(n * (of / n - share) ** 2 for n, of in quiet)
    return Usual(share, math.sqrt(squares / attempts), attempts)


COUNTS = st.integers(1, 1_000_000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(st.lists(COUNTS | st.tuples(st.integers(1, 50), st.just(0)), max_size=60), st.integers(1, 20))
def test_what_is_usual_is_that_of_the_windows_remembered(counted: list[tuple[int, int]], remembered: int) -> None:
    """After each window, whatever was there before those that count."""
    bounds = Bounds(history=remembered)
    history = History(bounds)
    for end, (attempts, refused) in enumerate(counted, 1):
        history.add(attempts, refused)
        expected = by_definition(counted[max(0, end - remembered) : end], bounds)
        assert history.usual() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_long_history_makes_a_window_no_dearer() -> None:
    """No more calls are made for each when thousands of windows are remembered than when it is ten."""
    every = windows([0.02] * 1000)

    def calls(remembered: int) -> int:
        seen = 0

        def count(_: object, what: str, __: object) -> None:
            nonlocal seen
            seen += what == "call"

        sys.setprofile(count)
        try:
            episodes(every, "blocked", Bounds(history=remembered))
        finally:
            sys.setprofile(None)
        return seen

    assert calls(2000) <= calls(10)  # a short one forgets, too


def simulated(seed: int = 4) -> list[dict[str, Any]]:
    """Two days of four pairs; one of them is put on a list at half past eleven on the second."""
    chance = random.Random(seed)
    rows = []
    for minute in range(0, 2 * 24 * 60, 3):
        for source in ("192.0.2.1", "192.0.2.2"):
            for provider in ("google", "yahoo"):
                blocked = (source, provider) == ("192.0.2.1", "yahoo") and minute >= 24 * 60 + 210
                rows += [attempt(chance, source, provider, minute, blocked) for _ in range(2)]
    return rows


def attempt(chance: random.Random, source: str, provider: str, minute: int, blocked: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"source": source, "provider": provider, "days": (minute + chance.random()) / 1440}
    if blocked and chance.random() < 0.95:
        return row | {"verdict": "deferred", "class": "blocked-ip", "code": 554, "enhanced": "5.7.1", "reply": LISTED}
    if chance.random() < 0.03:
        return row | {
            "verdict": "deferred",
            "class": "greylisting",
            "code": 451,
            "enhanced": "4.7.1",
            "reply": "Greylisted",
        }
    if chance.random() < 0.02:
        return row | {"verdict": "bounced", "class": "user-unknown", "code": 550, "enhanced": "5.1.1", "reply": "No"}
    return row


def test_the_block_of_a_simulation(attempts: Any, moment: Any) -> None:
    """Of four pairs, the one that is blocked from a known minute on is found within two windows, with the list's name
    and the replies; nothing is said of the others."""
    own = {
        "source": "192.0.2.2",
        "stage": "source",
        "verdict": "deferred",
        "code": 451,
        "class": "network",
        "reply": "ours",
    }
    rows = blocks(attempts([*simulated(), *({"days": 1.9, **own} for _ in range(200))])).collect()
    assert {(row.source, row.provider, row.kind) for row in rows} == {
        ("192.0.2.1", "yahoo", "blocked"), ("192.0.2.1", "yahoo", "listed"),
    }  # fmt: skip
    change, named = sorted(rows, key=lambda row: row.kind)
    late_s = change.since.timestamp() - moment(1 + 210 / 1440).timestamp()
    assert 0 <= late_s <= 2 * WINDOW_S
    assert change.until is None
    assert (change.before < 0.01, change.after > 0.9) == (True, True)
    assert LISTED in change.evidence[0].reply
    assert (named.list, named.refused) == ("spamhaus", change.refused)
    assert named.evidence[0].replies == named.refused
