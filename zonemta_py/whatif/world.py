"""The providers of a replay: each answers as the archive says that it did.

    one recipient's own answer   an address that was refused for good is refused again; one that was put off (full,
                                 greylisted) is put off until the time, or after the wait, at which it was taken
    too fast                     a source that was slowed down at a provider may send there as fast as was accepted
                                 in the five-minute windows in which it was slowed down (and as much at once as was
                                 accepted within ten seconds), and is told so above that
    blocked                      a source is blocked at a provider from the first such reply to the next acceptance
    out of reach                 a site is down from the first failed connection to the next answer

A source that never sent to a provider gets the limit that others met there. What nobody ever met cannot be known: no
limit is assumed, and `beyond` says where a replay went faster than anything that was seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from statistics import median
from typing import NamedTuple
from zlib import crc32

from zonemta_py.config.limits import Rate
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.classes import CLASSES, REFUSING, THROTTLING
from zonemta_py.whatif.history import History, PastAttempt
from zonemta_py.zones.site import Site
from zonemta_py.zones.throttle import Bucket

BLOCK = frozenset(name for name in REFUSING if CLASSES[name].about == "source")
NO_ANSWER = frozenset(("connect", "banner", "ehlo", "dns", "tls"))
OURS = frozenset(("queue", "plugin", "limit", "tls-policy", "source", "proxy"))
WINDOW_MS = 300_000
BURST_S = 10.0
_SAMPLES_MAX = 2_000
_TAKEN = Reply(250, "2.0.0", "ok")
_DAY_MS = 86_400_000


class ModelAnswer(NamedTuple):
    """down: nobody answered at all. took_ms: from connecting to the last reply."""

    verdict: int
    reply: Reply
    stage: str
    took_ms: int
    down: bool = False


class _Pressure:
    """How fast one source may send to one provider: recipients a second, and what it is told above that."""

    def __init__(self, per_s: float, burst: int, reply: Reply, stage: str) -> None:
        self.per_s, self.burst, self.reply, self.stage = per_s, burst, reply, stage
        self._bucket = Bucket(Rate(per_s, 1), burst)

    def admits(self, now_ms: int) -> bool:
        now = now_ms / 1000
        if self._bucket.wait(now):
            return False
        self._bucket.take(now)
        return True


class _Spans:
    """Stretches of time, each with what was said in it."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[tuple[int, PastAttempt]] = []

    def learn(self, bad: list[tuple[int, PastAttempt]], good: list[int]) -> None:
        """Each begins before a bad answer (as far back as no good one was, five minutes at most) and ends with the next
        good one, or with the last bad one."""
        until, last = -1, max(ms for ms, _ in bad)
        for ms, attempt in sorted(bad, key=lambda row: row[0]):
            if ms < until:
                continue
            place = bisect_right(good, ms)
            until = good[place] if place < len(good) else last + 1
            before = good[place - 1] if place else 0
            self._starts.append(max(before, ms - WINDOW_MS))
            self._spans.append((until, attempt))

    def at(self, ms: int) -> PastAttempt | None:
        place = bisect_right(self._starts, ms) - 1
        return self._spans[place][1] if place >= 0 and ms < self._spans[place][0] else None


class ProviderModel:
    """Made from a history; keeps count of how fast it is sent to. seed: for the durations that are drawn."""

    def __init__(self, history: History, seed: int) -> None:
        self._history, self._seed = history, seed
        self._took: dict[str, list[int]] = defaultdict(list)
        self._blocked: dict[tuple[str, str], _Spans] = defaultdict(_Spans)
        self._down: dict[str, _Spans] = defaultdict(_Spans)
        self._pressure: dict[tuple[str, str], _Pressure | None] = {}
        self._sites: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, int] = {}
        self._rates: dict[tuple[str, int], int] = defaultdict(int)
        self._learn()

    # -- what was learned

    def _learn(self) -> None:
        accepted: dict[tuple[str, str], list[int]] = defaultdict(list)
        answered: dict[str, list[int]] = defaultdict(list)
        slowed: dict[tuple[str, str], list[PastAttempt]] = defaultdict(list)
        blocked: dict[tuple[str, str], list[tuple[int, PastAttempt]]] = defaultdict(list)
        down: dict[str, list[tuple[int, PastAttempt]]] = defaultdict(list)
        minutes: dict[tuple[str, int], int] = defaultdict(int)
        for (_, address), attempts in self._history.attempts.items():
            for attempt in attempts:
                if attempt.stage in OURS:
                    continue
                provider = attempt.provider or attempt.site
                path = (provider, attempt.source)
                if attempt.site:
                    self._sites[address.rpartition("@")[2].lower()] = (attempt.site, attempt.provider)
                if attempt.stage in NO_ANSWER and attempt.verdict != DELIVERED:
                    down[attempt.site].append((attempt.ms, attempt))
                    continue
                answered[attempt.site].append(attempt.ms)
                minutes[provider, attempt.ms // 60_000] += 1
                if len(self._took[provider]) < _SAMPLES_MAX:
                    self._took[provider].append(attempt.took_ms)
                if attempt.verdict == DELIVERED:
                    accepted[path].append(attempt.ms)
                elif attempt.kind in THROTTLING:
                    slowed[path].append(attempt)
                elif attempt.kind in BLOCK:
                    blocked[path].append((attempt.ms, attempt))
        for path, rows in blocked.items():
            self._blocked[path].learn(rows, sorted(accepted[path]))
        for site, rows in down.items():
            self._down[site].learn(rows, sorted(answered[site]))
        for path, attempts in slowed.items():
            self._pressure[path] = _pressure(attempts, accepted[path])
        for (provider, _), count in minutes.items():
            self._seen[provider] = max(self._seen.get(provider, 0), count)

    def _limit(self, provider: str, source: str) -> _Pressure | None:
        """A source that never sent there is given what others met."""
        path = (provider, source)
        if path not in self._pressure:
            others = [found for (name, _), found in self._pressure.items() if name == provider and found is not None]
            first = others[0] if others else None
            per_s = median(found.per_s for found in others) if others else 0.0
            self._pressure[path] = _Pressure(per_s, first.burst, first.reply, first.stage) if first else None
        return self._pressure[path]

    # -- what is asked of it

    async def site(self, domain: str, now: float) -> Site:
        """Where a domain's mail went (`schedule.sites.Scout`)."""
        site, provider = self._sites.get(domain, (domain, ""))
        return Site(site, provider, ((site, ("192.0.2.1", "2001:db8::1")),), ((10, site),), 86_400.0, False)

    def answer(
        self, message_id: str, address: str, source: str, site: str, provider: str, first_ms: int, now_ms: int
    ) -> ModelAnswer:
        """To one recipient, now; first_ms: when the replay tried it first. message_id: as in the history."""
        name = provider or site
        took_ms = self._duration(name, f"{message_id} {address} {now_ms}")
        gone = self._down[site].at(now_ms) if site in self._down else None
        if gone is not None:
            return ModelAnswer(DEFERRED, gone.reply, gone.stage, gone.took_ms, down=True)
        self._rates[name, now_ms // 60_000] += 1
        path = (name, source)
        blocked = self._blocked[path].at(now_ms) if path in self._blocked else None
        if blocked is not None:
            return ModelAnswer(blocked.verdict, blocked.reply, blocked.stage, took_ms)
        limit = self._limit(name, source)
        if limit is not None and not limit.admits(now_ms):
            return ModelAnswer(DEFERRED, limit.reply, limit.stage, took_ms)
        return self._own(self._history.attempts.get((message_id, address), []), first_ms, now_ms, took_ms)

    def _own(self, attempts: list[PastAttempt], first_ms: int, now_ms: int, took_ms: int) -> ModelAnswer:
        own = [one for one in attempts if one.kind not in THROTTLING | BLOCK and one.stage not in NO_ANSWER | OURS]
        taken = next((one for one in own if one.verdict == DELIVERED), None)
        refused = next((one for one in own if one.verdict == BOUNCED and one.reply.permanent), None)
        put_off = [one for one in own if one.verdict in (DEFERRED, BOUNCED) and one is not refused]
        if put_off:
            last = put_off[-1]
            if last.kind == "greylisting" and taken is not None:
                waits = now_ms - first_ms < taken.ms - put_off[0].ms
            else:
                waits = now_ms <= last.ms or (taken is None and refused is None)
            if waits:
                return ModelAnswer(DEFERRED, last.reply, last.stage, took_ms)
        if refused is not None and taken is None:
            return ModelAnswer(BOUNCED, refused.reply, refused.stage, took_ms)
        return ModelAnswer(DELIVERED, taken.reply if taken else _TAKEN, "dot", took_ms)

    def _duration(self, name: str, what: str) -> int:
        samples = self._took.get(name) or [50]
        return samples[crc32(f"{self._seed} {what}".encode()) % len(samples)]

    def beyond(self) -> list[tuple[str, int, int]]:
        """(provider or site, most attempts a minute that were seen, most in the replay), where those were more."""
        most: dict[str, int] = {}
        for (name, _), count in self._rates.items():
            most[name] = max(most.get(name, 0), count)
        return sorted((name, self._seen.get(name, 0), count) for name, count in most.items()
                      if count > self._seen.get(name, 0))  # fmt: skip


def _pressure(slowed: list[PastAttempt], accepted: list[int]) -> _Pressure:
    """What was accepted in the windows in which it was too much, in the time that was used of them."""
    windows: dict[int, list[int]] = {attempt.ms // WINDOW_MS: [] for attempt in slowed}
    used: dict[int, list[int]] = {window: [] for window in windows}
    for attempt in slowed:
        used[attempt.ms // WINDOW_MS].append(attempt.ms)
    for ms in accepted:
        if ms // WINDOW_MS in windows:
            windows[ms // WINDOW_MS].append(ms)
            used[ms // WINDOW_MS].append(ms)
    per_s = median(len(windows[window]) / max(1.0, (max(ms) - min(ms)) / 1000) for window, ms in used.items())
    burst = max((_most_within(sorted(ms), BURST_S) for ms in windows.values()), default=1)
    return _Pressure(max(per_s, 1000 / _DAY_MS), burst, slowed[0].reply, slowed[0].stage)


def _most_within(times: list[int], seconds: float) -> int:
    """How many of these moments (ms, sorted) lie together in so short a time, at least 1."""
    return max((bisect_right(times, ms + int(seconds * 1000)) - place for place, ms in enumerate(times)), default=1)
