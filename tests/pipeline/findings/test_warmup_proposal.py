"""Warm-ups of new addresses as a difference to a configuration: it applies, it is taken, and it says no more."""

import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.config import load
from zonemta_py.config.sources import Warmup
from zonemta_py.pipeline.findings.rate_proposal import difference
from zonemta_py.pipeline.findings.warmup_proposal import CAPS, comment, proposed

END = datetime(2026, 5, 31, tzinfo=UTC)
BASE = """\
[[pools]]
name = "news"
[[pools.sources]]
address = "192.0.2.10"
[[pools.sources]]
address = '192.0.2.11'  # the new one
weight = 2
[[pools]]
name = "other"
[[pools.sources]]
address = "192.0.2.11"
[[pools.sources]]
address = "2001:DB8::1"
warmup = "careful"

[[warmups]]
name = "careful"
caps = [50, 600, 9000]

[[zones]]
name = "campaigns"
pool = "news"
default = true"""


def row(source: str = "192.0.2.11", provider: str = "google", days: int = 5, **values: Any) -> dict[str, Any]:
    """Of rates.RATES, of a source that was first seen so many days before the end."""
    usual = {"good_days": 3, "best_day": 700, "last_day_good": True, "since": END - timedelta(days=days), "until": END}
    return {"source": source, "provider": provider} | usual | values


OLD = row("192.0.2.10", days=90)


def test_the_difference_applies_and_is_a_configuration(tmp_path: Path) -> None:
    """`patch` takes it, `zonemta config check` too; both pools warm the address up, from where it bears least."""
    file = tmp_path / "zonemta.toml"
    file.write_text(BASE)
    said = difference(BASE, proposed(BASE, [OLD, row(), row(provider="yahoo", best_day=300)]), file.name)
    subprocess.run(["patch", "-p1"], input=said, text=True, cwd=tmp_path, check=True, capture_output=True)
    command = [sys.executable, "-m", "zonemta_py", "config", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = load(file)
    assert [(one.address, one.warmup) for pool in found.pools for one in pool.sources] == [
        ("192.0.2.10", ""), ("192.0.2.11", "lake-192-0-2-11"),
        ("192.0.2.11", "lake-192-0-2-11"), ("2001:db8::1", "careful"),
    ]  # fmt: skip
    assert [(one.name, one.caps[0]) for one in found.warmups] == [("careful", 50), ("lake-192-0-2-11", 500)]
    assert found.warmups[1].caps == [cap for cap in CAPS if cap >= 500]
    removed = [line for line in said.splitlines()[2:] if line.startswith("-")]
    assert removed == ["-default = true"]  # which gets its line end


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([OLD, row(days=60)], BASE),
        ([row()], BASE),
        ([OLD, row(last_day_good=None)], BASE),
        ([OLD, row(best_day=10**6)], BASE),
        ([OLD, row("192.0.2.99")], BASE),
        ([OLD, row("2001:db8::1")], BASE),
        ([OLD, row()], 'warmups = [{ name = "x" }]\n' + BASE.replace("[[warmups]]", "[[tenants]]")),
        ([OLD, row()], '[[pools]]\nname = "news"\nsources = [{ address = "192.0.2.11" }]\n'),
        ([OLD, row()], BASE.replace("weight = 2", 'warmup = ""')),
        ([OLD, row()], BASE.replace('name = "careful"', 'name = "lake-192-0-2-11"').replace('"careful"', '""')),
        ([], BASE),
    ],
)
def test_who_needs_none_gets_none(rows: list[dict[str, Any]], text: str) -> None:
    """Known long; the lake is as young; too little sent; warm; not in the file, or warmed up; tables in brackets,
    and what an operator has decided, are left alone."""
    assert proposed(text, rows) == text


def test_proposed_again_it_changes_nothing() -> None:
    """Once it is accepted, the queue takes the steps."""
    once = proposed(BASE, [OLD, row()])
    assert once != BASE
    assert proposed(once, [OLD, row(best_day=5000)]) == once


def test_a_bad_day_repeats_the_cap() -> None:
    """It begins with what was borne."""
    after = tomllib.loads(proposed(BASE, [OLD, row(last_day_good=False)]))
    assert after["warmups"][-1]["caps"][0] == 500


def test_an_address_elsewhere_is_another_matter() -> None:
    """A listener may have the source's address: it gets no line, and the pools get theirs all the same."""
    text = '[[listeners]]\naddress = "192.0.2.11"\nport = 25\n\n' + BASE
    after = proposed(text, [OLD, row()])
    assert tomllib.loads(after)["listeners"] == tomllib.loads(text)["listeners"]
    assert after.count('warmup = "lake-192-0-2-11"') == 2


@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_whatever_stands_in_the_journal(source: str, provider: str) -> None:
    """The text stays TOML, with or without a warm-up more."""
    tomllib.loads(proposed(BASE, [OLD, row(source, provider), row(provider=provider)]))


def test_the_next_step_by_the_files_schedule_is_said() -> None:
    """By the caps that are configured, with the order that takes it; without a schedule only how its days went."""
    went = "at google: 3 good days, the best with 700 attempts; the last one went well"
    assert comment(row(), BASE) == f"# 192.0.2.11 {went}\n"
    said = comment(row("2001:db8::1"), BASE)
    assert said.startswith(f"# 2001:db8::1 {went}; the next step of careful is 9000 recipients; ")
    assert said.endswith("`zonemta warmup set 2001:db8::1 google 3` sets it\n")
    assert "600 recipients" in comment(row("2001:db8::1", last_day_good=False), BASE)
    assert "no cap; " in comment(row("2001:db8::1", best_day=9000), BASE)


def test_the_shipped_schedule() -> None:
    """Is the configuration's own."""
    assert Warmup(name="x").caps == list(CAPS)
