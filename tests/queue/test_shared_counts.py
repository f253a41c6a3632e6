"""Counts of several queues: whatever is told twice, late or never, and whoever comes and goes with copies."""

import random

import pytest

from tests.queue.lives import seeds
from zonemta_py.queue.suppression.provider_answers import STEP_MS, STEPS, ProviderAnswers, merged
from zonemta_py.queue.suppression.shared_counts import SHARES_MAX, CountShare, SharedCounts, joined

DAY_STEP = 6 * 20_000
PLACES = ("x", "y")


class Peer:
    """A process of a queue; rows: what its store has."""

    def __init__(self, name: str, rows: dict[str, bytes]) -> None:
        self.rows = rows
        self.answers = ProviderAnswers(name)
        self.answers.turn(DAY_STEP * STEP_MS)
        self.name = name
        self.answers.load(self)  # type: ignore[arg-type]

    def scan(self, *_: bytes) -> list[tuple[bytes, bytes]]:
        return [(f"guard-day {place}".encode(), value) for place, value in self.rows.items()]

    def write(self) -> None:
        for place in PLACES:
            for key, value in self.answers.state(place):
                assert value is not None
                self.rows[key.decode().rpartition(" ")[2]] = value

    def told(self) -> list[tuple[str, CountShare]]:
        self.write()
        return [(place, share) for place in PLACES for share in self.answers.shares(place)]


@pytest.mark.parametrize("seed", seeds(20))
def test_all_come_to_the_same_sums(seed: int) -> None:
    """Queues count, tell, forget what they were told, start again, come as copies and go: in the end all know of each
    person once."""
    die = random.Random(seed)
    names = iter(f"process{number}" for number in range(1_000))
    peers = [Peer(next(names), {})]
    lessons: list[tuple[str, CountShare]] = []
    true = dict.fromkeys(PLACES, 0)
    for _ in range(200):
        peer, what = die.choice(peers), die.random()
        if what < 0.5:
            place, count = die.choice(PLACES), die.randint(1, 9)
            peer.answers.took(place, count, told=True)
            true[place] += count
        elif what < 0.7:
            lessons += peer.told()
        elif what < 0.8 and lessons:
            peer.answers.learn(*die.choice(lessons))
        elif what < 0.85:
            peer.write()
            peers[peers.index(peer)] = Peer(next(names), peer.rows)
        elif what < 0.9:
            peers[0].write()
            peers.append(Peer(next(names), dict(peers[0].rows)))
        elif len(peers) > 1:
            gone = peers.pop()
            gone.write()
            peers[0].write()
            rows = {place: merged(value, peers[0].rows.get(place)) for place, value in gone.rows.items()}
            peers[0] = Peer(next(names), peers[0].rows | rows)
    for peer in peers:
        lessons += peer.told()
    die.shuffle(lessons)
    for peer in peers:
        for place, share in lessons:
            peer.answers.learn(place, share)
        for place, people in true.items():
            peer.answers.refused(place, later=True)
            assert people == 0 or peer.answers.share(place) == 1 / people


def test_what_is_old_counts_no_more() -> None:
    peer = Peer("one", {})
    peer.answers.learn("x", CountShare(DAY_STEP, 99, "two", 7))
    peer.answers.learn("x", CountShare(DAY_STEP - STEPS - 1, 1_000, "two", 6))
    peer.answers.refused("x", later=False)
    assert peer.answers.share("x") == 1 / 100
    peer.answers.turn((DAY_STEP + STEPS + 1) * STEP_MS)
    peer.answers.refused("x", later=False)
    assert peer.answers.share("x") == 1


def test_they_are_bounded() -> None:
    counts: SharedCounts[str] = SharedCounts()
    for number in range(3 * SHARES_MAX):
        counts.learn("x", CountShare(number, 1, "one", number))
    assert counts.total("x", 0) == SHARES_MAX
    counts.turn(3 * SHARES_MAX)
    assert counts.shares("x") == []


def test_what_an_older_version_has_written_is_read() -> None:
    """There it was of one queue, or of one of several."""
    assert joined([[5, 3], [6, 4]], [[5, 9], [6, 1, "p", 6]]) == [[5, 9], [6, 1, "p", 6], [6, 4]]
