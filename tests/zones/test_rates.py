"""Rates that learn, against simulated providers on a virtual clock."""

import heapq
import random
from collections import deque
from collections.abc import Callable

import pytest

from zonemta_py.config import Learning
from zonemta_py.zones.rates import Learned

NOW = 1_790_000_000.0
Accepts = Callable[[float], bool]


def sliding(allowed: float, counts_refused: bool = False) -> Accepts:
    """A provider that refuses what is more than `allowed` in the last second."""
    seen: deque[float] = deque()

    def accepts(now: float) -> bool:
        while seen and seen[0] <= now - 1:
            seen.popleft()
        good = len(seen) < allowed
        if good or counts_refused:
            seen.append(now)
        return good

    return accepts


def token_bucket(allowed: float) -> Accepts:
    """A provider that allows a burst of a second."""
    tokens, last = allowed, 0.0

    def accepts(now: float) -> bool:
        nonlocal tokens, last
        tokens, last = min(allowed, tokens + (now - last) * allowed), now
        if tokens < 1:
            return False
        tokens -= 1
        return True

    return accepts


class Trial:
    """Unlimited demand over so many connections to a provider that takes 50 to 500 ms for a reply."""

    def __init__(self, learning: Learning, accepts: Accepts, connections: int, seed: int = 1) -> None:
        self.learned, self.accepts, self.connections = Learned(learning), accepts, connections
        self.now = NOW
        self.replies: list[tuple[float, float, bool]] = []
        """When it comes, when the message was sent, whether it was accepted."""
        self.sent: list[tuple[float, bool]] = []
        self._random = random.Random(seed)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            wait = self.learned.wait(self.now)
            if wait == 0 and len(self.replies) < self.connections:
                self._send()
                continue
            coming = self.replies[0][0] if self.replies else end
            self.now = coming if wait == 0 else min(coming, self.now + wait)
            while self.replies and self.replies[0][0] <= self.now:
                _, sent, good = heapq.heappop(self.replies)
                if good:
                    self.learned.accepted(self.now)
                else:
                    self.learned.slowed(self.now, "421 too fast", sent)

    def _send(self) -> None:
        good = self.accepts(self.now)
        self.learned.take(self.now)
        self.sent.append((self.now, good))
        heapq.heappush(self.replies, (self.now + self._random.uniform(0.05, 0.5), self.now, good))

    def per_second(self, since: float, until: float) -> float:
        """Sent, whatever came of it, in this part of the trial."""
        return sum(NOW + since <= moment < NOW + until for moment, _ in self.sent) / (until - since)

    def refused(self, since: float, until: float) -> float:
        part = [good for moment, good in self.sent if NOW + since <= moment < NOW + until]
        return part.count(False) / len(part)


@pytest.mark.parametrize("connections", [15, 20, 50, 200])
@pytest.mark.parametrize("provider", [sliding, token_bucket, lambda allowed: sliding(allowed, counts_refused=True)])
def test_a_provider_that_bears_50_a_second_gets_between_40_and_50(
    provider: Callable[[float], Accepts], connections: int
) -> None:
    """Within two minutes the rate has settled; in the ten after them less than 5 % is refused."""
    trial = Trial(Learning(), provider(50), connections)
    trial.run(720)
    assert trial.refused(120, 720) < 0.05
    for since in range(120, 720, 30):
        assert 40 <= trial.per_second(since, since + 30) <= 53  # the burst of its bucket lets a probe pass for a while
    assert 40 <= trial.per_second(120, 720) <= 50


@pytest.mark.parametrize("connections", [1, 3, 10])
def test_few_connections_are_never_bounded(connections: int) -> None:
    """Where the replies' latency alone keeps the rate below what the provider bears, nothing is learnt."""
    trial = Trial(Learning(), sliding(50), connections)
    trial.run(120)
    assert trial.learned.rate(trial.now) is None
    assert trial.learned.state() == {}


@pytest.mark.parametrize("connections", [50, 100])
def test_when_the_provider_relents_the_rate_rises(connections: int) -> None:
    """From 50 to 200 a second within six minutes, and then no further: refusals stay few."""
    trial = Trial(Learning(), sliding(50), connections)
    trial.run(300)
    trial.accepts = sliding(200)
    trial.run(900)
    top = 200 if connections == 100 else 140
    assert trial.per_second(660, 690) >= 0.8 * top
    assert trial.refused(660, 1200) < 0.05
    assert trial.per_second(700, 1200) >= 0.85 * top


def test_a_provider_that_bears_less_than_before_is_followed() -> None:
    """From 50 down to 5 a second: within two minutes few are refused again."""
    trial = Trial(Learning(), sliding(50), 50)
    trial.run(200)
    trial.accepts = sliding(5)
    trial.run(400)
    assert trial.refused(320, 600) < 0.05
    assert 3 <= trial.per_second(320, 600) <= 5.1


def test_a_provider_that_refuses_everything_for_ten_minutes_gets_little_and_then_all_again() -> None:
    """The rate falls to its least; when the block is over it comes back within a quarter of an hour."""
    trial = Trial(Learning(), sliding(50), 50)
    trial.run(200)
    trial.accepts = lambda _: False
    trial.run(600)
    assert trial.per_second(500, 800) < 0.1
    trial.accepts = sliding(50)
    trial.run(1200)
    assert trial.per_second(1700, 2000) > 35


def test_a_provider_that_counts_by_the_minute_is_not_starved() -> None:
    """3,000 in each minute, then refusals until it is over: two fifths of that get through."""
    begun, count = NOW, 0

    def accepts(now: float) -> bool:
        nonlocal begun, count
        if now >= begun + 60:
            begun, count = begun + 60 * ((now - begun) // 60), 0
        count += 1
        return count <= 3000

    trial = Trial(Learning(), accepts, 50)
    trial.run(1800)
    assert trial.per_second(900, 1800) > 20


def test_complaints_of_one_burst_count_once() -> None:
    """Fifty 421 about what was on its way already lower the rate once; one about later mail lowers it again."""
    learned = Learned(Learning())
    for number in range(300):
        learned.accepted(NOW + number / 30)
    assert learned.slowed(NOW + 10, "421", sent=NOW + 9.9)
    once = learned.rate(NOW + 10)
    assert once == pytest.approx(27, rel=0.1)
    for number in range(50):
        assert not learned.slowed(NOW + 10 + number / 10, "421", sent=NOW + 9.95)
    assert learned.rate(NOW + 15) == once
    assert learned.slowed(NOW + 16, "421", sent=NOW + 15)
    lower = learned.rate(NOW + 16)
    assert once is not None
    assert lower is not None
    assert once / 2 <= lower < once


def test_what_the_first_moments_say_is_not_believed() -> None:
    """A refusal before anything was accepted, or in the first two seconds, sets no bound; one after them does."""
    learned = Learned(Learning())
    assert not learned.slowed(NOW, "421")
    for number in range(100):
        learned.accepted(NOW + number / 50)
        assert not learned.slowed(NOW + number / 50, "421")
    assert learned.slowed(NOW + 2, "421")
    assert learned.rate(NOW + 2) == pytest.approx(45, rel=0.05)


def test_a_provider_that_accepts_nothing_at_all_is_bounded_too() -> None:
    """After two seconds of refusals at one a second at most, then less each time."""
    learned = Learned(Learning())
    changed = [learned.slowed(NOW + number, "421") for number in range(10)]
    assert changed == [False, False, True, False, False, True, False, False, True, False]
    assert learned.rate(NOW + 9) == pytest.approx(0.9 / 4)


def test_the_first_bound_takes_no_second_helping() -> None:
    """When the provider complains it has had its burst: the bucket starts empty."""
    learned = Learned(Learning())
    for number in range(100):
        learned.accepted(NOW + number / 25)
    assert learned.slowed(NOW + 4, "421")
    assert learned.wait(NOW + 4) > 0


def test_each_change_has_a_cause() -> None:
    """From what, to what, and why; an operator's order is one too."""
    learned = Learned(Learning())
    for number in range(1000):
        learned.accepted(NOW + number / 100)
    learned.slowed(NOW + 10, "rule rate-limit: 421 4.7.0")
    assert learned.cause == "unbounded → 90/s: rule rate-limit: 421 4.7.0"
    learned.clear("an operator's order")
    assert learned.cause == "90/s → unbounded: an operator's order"
    assert learned.rate(NOW + 11) is None
    assert learned.wait(NOW + 11, 1000) == 0


def test_a_bound_that_is_not_used_does_not_rise() -> None:
    """Silence says nothing where hardly anything was sent."""
    learned = Learned(Learning())
    for number in range(500):
        learned.accepted(NOW + number / 50)
    learned.slowed(NOW + 10, "421")
    bound = learned.rate(NOW + 10)
    for number in range(1000):
        learned.take(NOW + 10 + number)
        assert not learned.accepted(NOW + 10 + number)
    assert learned.rate(NOW + 1010) == bound


@pytest.mark.parametrize(("rate_max", "seconds"), [("60/s", 400), ("", 700)])
def test_at_the_greatest_rate_the_bound_is_taken_away(rate_max: str, seconds: int) -> None:
    """At rate_max, or else at ten times the first bound."""
    trial = Trial(Learning(rate_max=rate_max), sliding(50), 500)
    trial.run(30)
    assert trial.learned.rate(trial.now) is not None
    trial.accepts = lambda _: True
    trial.run(seconds)
    assert trial.learned.rate(trial.now) is None
    assert "no complaint" in trial.learned.cause


def test_never_below_the_least() -> None:
    """However often a provider complains."""
    learned = Learned(Learning(rate_min="30/min"))
    for number in range(50):
        learned.slowed(NOW + 60 * number, "421")
    assert learned.rate(NOW) == 0.5


def test_a_restart_goes_on_with_what_was_learnt() -> None:
    """Rate, cause, ceiling and what is used of the bucket survive."""
    trial = Trial(Learning(), sliding(50), 50)
    trial.run(60)
    again = Learned(Learning())
    again.restore(trial.learned.state(), trial.now)
    assert again.rate(trial.now) == trial.learned.rate(trial.now)
    assert again.cause == trial.learned.cause
    assert again.wait(trial.now, 5) == pytest.approx(trial.learned.wait(trial.now, 5), abs=1e-5)
    trial.learned = again
    trial.run(600)
    assert trial.refused(60, 660) < 0.05
    assert 40 <= trial.per_second(60, 660) <= 50


def test_a_bound_that_was_taken_away_stays_away_after_a_restart() -> None:
    """The state of an unbounded rate undoes the bound that an older state set."""
    trial = Trial(Learning(), sliding(50), 50)
    trial.run(60)
    again = Learned(Learning())
    again.restore(trial.learned.state(), trial.now)
    trial.learned.clear("an operator's order")
    again.restore(trial.learned.state(), trial.now)
    assert again.rate(trial.now) is None


def test_what_was_not_sent_is_given_back() -> None:
    """A delivery that never left does not use the rate."""
    learned = Learned(Learning())
    learned.give(NOW, 1, NOW)
    for number in range(1000):
        learned.accepted(NOW + number / 100)
    learned.slowed(NOW + 10, "421")
    now = NOW + 11
    learned.take(now, 5)
    learned.give(now, 5, now)
    assert learned.wait(now, 5) == 0
