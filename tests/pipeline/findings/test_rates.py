"""Rates: a provider's limit is found where it is, and what is proposed is a configuration."""

import random
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config.limits import rate
from zonemta_py.pipeline.findings.rate_proposal import difference, fragment, proposed, rate_text, throttle_name
from zonemta_py.pipeline.findings.rates import RATES, Measures, curve, rates
from zonemta_py.pipeline.findings.windows import WINDOW_S, Counted

LIMIT = 50.0


def window(number: int, per_s: float, limit: float) -> Counted:
    """What a provider that takes `limit` a second, and puts off the rest, makes of a steady stream."""
    attempts = round(per_s * WINDOW_S)
    throttled = max(0, attempts - round(limit * WINDOW_S))
    none: dict[str, Any] = {}
    return Counted(number * WINDOW_S, attempts, attempts - throttled, throttled, throttled, 0, 0, none, none)


def test_a_provider_that_defers_above_fifty_a_second() -> None:
    """Windows at all rates from 5 to 100 a second: the rate proposed is near the limit, with high confidence."""
    chance = random.Random(5)
    found = curve([window(n, chance.uniform(5, 100), LIMIT) for n in range(400)])
    assert found.proposed == pytest.approx(LIMIT, rel=0.05)
    assert found.confidence == "high"


@given(st.integers(0, 1000), st.floats(0.5, 500), st.floats(1.2, 4))
def test_whatever_the_limit_is(seed: int, limit: float, above: float) -> None:
    """Between what was clean and what was throttled, never above the latter."""
    chance = random.Random(seed)
    found = curve([window(n, chance.uniform(0.1, above) * limit, limit) for n in range(300)])
    assert found.proposed is not None
    assert 0.9 * limit <= found.proposed <= 1.1 * limit


def test_a_provider_that_punishes_is_judged_by_what_was_clean() -> None:
    """One that refuses everything above its limit lets little through, which must not become the rate."""
    rows = [window(n, 10 + n % 10, LIMIT) for n in range(60)] + [window(60 + n, 60, 3) for n in range(30)]
    assert curve(rows).proposed == pytest.approx(19, rel=0.05)


def highest_clean(every: list[Counted], measures: Measures) -> float | None:
    """By its definition."""
    for top in sorted(every, key=lambda window: -window.attempts):
        rate = top.attempts / WINDOW_S
        near = [window for window in every if 0.8 * rate <= window.attempts / WINDOW_S <= rate]
        clean = [window for window in near if window.throttled / window.attempts <= measures.clean_max]
        if top in clean and len(clean) >= measures.least_windows and len(near) - len(clean) <= len(near) // 20:
            return rate
    return None


@given(st.lists(st.tuples(st.integers(30, 60), st.booleans() | st.just(True)), max_size=80), st.integers(1, 8))
def test_the_highest_clean_rate_is_that_of_its_definition(rows: list[tuple[int, bool]], least: int) -> None:
    """Whatever stands near it, clean or throttled."""
    measures = Measures(least_windows=least)
    every = [
        window(number, attempts / WINDOW_S, 1e9 if clean else 0.5 * attempts / WINDOW_S)
        for number, (attempts, clean) in enumerate(rows)
    ]
    assert curve(every, measures).clean == highest_clean(every, measures)


def test_many_windows_of_which_none_is_clean_cost_no_more_each() -> None:
    """A pair that was throttled for months is as quick to judge, for each of its windows, as one of a day."""

    def calls(windows: int) -> int:
        every, seen = [window(n, 1 + n / windows, 0.5) for n in range(windows)], 0

        def count(_: object, what: str, __: object) -> None:
            nonlocal seen
            seen += what == "call"

        sys.setprofile(count)
        try:
            curve(every)
        finally:
            sys.setprofile(None)
        return seen

    assert calls(1000) < 12 * calls(100)


def test_no_proposal_without_having_seen_the_limit() -> None:
    """Never throttled, or too seldom: the highest clean rate is known, a limit is not."""
    found = curve([window(n, 20, LIMIT) for n in range(50)])
    assert (found.clean, found.proposed, found.confidence) == (20, None, "none")
    assert "never throttled" in found.reason
    assert curve([*(window(n, 20, LIMIT) for n in range(50)), window(99, 80, LIMIT)]).proposed is None
    assert curve([]).reason.startswith("too few windows")


def test_the_rate_of_a_simulation(attempts: Any) -> None:
    """From attempts as the lake has them: one pair is throttled above 0.5/s, the other never; warm-ups count days."""
    chance = random.Random(6)
    rows: list[dict[str, Any]] = []
    for number in range(100):
        sent = round(chance.uniform(0.1, 1.0) * WINDOW_S)
        for n in range(sent):
            slow = (
                {"verdict": "deferred", "class": "rate", "code": 421, "reply": "too fast"} if n >= WINDOW_S / 2 else {}
            )
            rows.append({"provider": "google", "days": (number + n / sent) * WINDOW_S / 86_400, **slow})
        rows += [{"provider": "yahoo", "days": number * WINDOW_S / 86_400} for _ in range(40)]
    found = {row.provider: row for row in rates(attempts(rows)).collect()}
    assert found["google"].asDict().keys() == {part.split()[0] for part in RATES.split(", ")}
    assert found["google"].proposed == pytest.approx(0.5, rel=0.1)
    assert (found["google"].last_day_good, found["yahoo"].last_day_good) == (False, True)
    assert found["yahoo"].proposed is None
    assert (found["yahoo"].good_days, found["yahoo"].best_day, found["yahoo"].next_day) == (1, 4000, 5_000)


ROW = {
    "source": "192.0.2.1", "provider": "google", "proposed": 48.31, "confidence": "high", "reason": "r", "windows": 9,
    "attempts": 900, "good_days": 3, "best_day": 700, "last_day_good": True, "next_day": 1000,
}  # fmt: skip
BASE = """\
# ours
[server]
hostname = "mx.example.org"  # keep

[[pools]]
name = "p"
sources = [
  { address = "192.0.2.1", hostname = "a.example.org" },
  { address = "2001:db8::1", hostname = "b.example.org" },
]

[[zones]]
name = "default"
pool = "p"

[[throttles]]
name = "all"
connections = 50

# the last one
[learning]
initial = 3
"""

KNOWN = ("google", "microsoft")
"""Providers."""


def check(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "new.toml").write_text(text)
    command = [sys.executable, "-m", "zonemta_py", "config", "check", str(folder / "new.toml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_proposal_is_a_configuration(tmp_path: Path) -> None:
    """`zonemta config check` takes it; all that was in the file is still there; the difference says no more."""
    rows = [
        ROW,
        ROW | {"source": "2001:db8::1", "provider": "own.example.net", "proposed": 0.004},
        ROW | {"proposed": None},
    ]
    after = proposed(BASE, rows, KNOWN)
    done = check(after, tmp_path)
    assert done.returncode == 0, done.stderr
    tables = tomllib.loads(after)["throttles"]
    assert [table.get("recipients") for table in tables] == [None, "48.3/s", "14.4/h"]
    assert tables[1]["only"] == {"source": "192.0.2.1", "provider": "google"}
    assert tables[2]["only"] == {"source": "2001:db8::1", "site": "own.example.net"}, "it is no provider's"
    assert after.startswith(BASE)
    changed = [line for line in difference(BASE, after, "z.toml").splitlines()[3:] if line[0] != " "]
    assert changed
    assert all(line.startswith("+") for line in changed)


def test_a_later_proposal_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    """The same pair has one table, wherever it stands by then; the same rate again changes nothing."""
    first = proposed(BASE, [ROW], KNOWN)
    assert proposed(first, [ROW], KNOWN) == first
    between = first + '\n# mine\n[[throttles]]\nname = "z"\nconnections = 1\n'
    later = proposed(between, [ROW | {"proposed": 2.0}], KNOWN)
    assert [table["name"] for table in tomllib.loads(later)["throttles"]] == ["all", "lake-google-192-0-2-1", "z"]
    assert later.count("confidence") == 1
    assert later == between.replace('"48.3/s"', '"2/s"')


def test_only_what_is_known_well_is_proposed() -> None:
    """Low confidence is for reading, unless the operator asks for it."""
    assert proposed(BASE, [ROW | {"confidence": "low"}], KNOWN) == BASE
    assert "48.3" in proposed(BASE, [ROW | {"confidence": "low"}], KNOWN, ("low",))


def test_throttles_in_brackets_are_not_overwritten() -> None:
    """A file to which no table can be added is left alone, with a sentence."""
    with pytest.raises(ValueError, match=r"no \[\[throttles\]\] table can be added"):
        proposed('throttles = [{ name = "x", connections = 1 }]\n', [ROW], KNOWN)


@given(st.floats(0.0006, 1e6))
def test_rates_are_written_as_the_configuration_reads_them(per_second: float) -> None:
    """Not faster than learned, but for the last digit, and not slower by more than a few parts in a hundred."""
    read = rate(rate_text(per_second))
    assert 0.9 * per_second <= read.amount / read.seconds <= per_second * 1.0001


@given(st.text(min_size=1, max_size=80), st.text(max_size=80))
def test_any_source_and_provider_make_a_table(source: str, provider: str) -> None:
    """Whatever stands in the journal, the text stays TOML, and the name is one that the configuration allows."""
    table = tomllib.loads(fragment(ROW | {"source": source, "provider": provider}))["throttles"][0]
    assert table["only"] == {"source": source, "provider": provider}
    assert throttle_name(source, provider).startswith("lake")


TRAP = '''\
[server]
banner = """
[[throttles]]
name = "lake-google-192-0-2-1"
recipients = "1/s"
"""

[[throttles]]
name = "lake-google-192-0-2-1"
only = { source = "192.0.2.1", provider = "google", tenant = [
  "[a]",
] }
recipients = "1/s"
'''


def test_what_only_looks_like_a_table_is_none() -> None:
    """In a string of several lines, or in brackets: the table itself is replaced, and all of it."""
    before, after = tomllib.loads(TRAP), tomllib.loads(proposed(TRAP, [ROW], KNOWN))
    assert after["server"] == before["server"]
    assert [one["recipients"] for one in after["throttles"]] == ["48.3/s"]


def test_tables_apart_stay_where_they_are() -> None:
    """An operator keeps throttles in several places, each under its comment: only the one that changes does."""
    text = BASE + "\n# mine\n[[throttles]]\n" + 'name = "lake-google-192-0-2-1"\nrecipients = "1/s"\n\n# end\n[dns]\n'
    after = proposed(text, [ROW], KNOWN)
    assert [line for line in text.splitlines() if line not in after.splitlines()] == ['recipients = "1/s"']
    assert after.index("# mine") < after.index("48.3/s") < after.index("# end")
