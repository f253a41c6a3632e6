"""A warm-up's next step as a difference to a configuration file, for an operator to read, change and accept.

An address that is new in the lake, is in a pool of the file and has no `warmup` there gets one: a [[warmups]] schedule
"lake-<address>" that continues from where it is at the provider that accepts least, and the line in its
[[pools.sources]] tables. New is one first seen in the last 30 days of a lake that reaches back further: an address that
has always sent little is not to be held back. An address that has a schedule needs no change, for the queue takes its
steps, by days that went well however little was sent; `comment` says which step what was borne stands for, and the
order that takes it. Pure: text in, text out. Tables that are written in brackets, and names that are taken, are left
alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zonemta_py.pipeline.findings.toml_text import tables

CAPS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 40_000, 75_000, 150_000, 250_000, 500_000)
"""The schedule that a warm-up has if nothing else is configured."""
NEW = datetime.timedelta(days=30)
_BEFORE = datetime.timedelta(days=1)
_ADDRESS = re.compile(r"^[ \t]*address[ \t]*=.*\n?", re.MULTILINE)
_Rows = Iterable[Mapping[str, Any]]


def comment(row: Mapping[str, Any], text: str) -> str:
    """How a source's days went, and what the next one brings by the file's schedule. row: of rates.RATES."""
    where = f"# {row['source']} at {row['provider']}: {row['good_days']} good days"
    went = {True: "the last one went well", False: "the last one went badly", None: "no day had enough mail to judge"}
    where += f", the best with {row['best_day'] or 0} attempts; {went[row['last_day_good']]}"
    schedule = _schedule(row["source"], tomllib.loads(text))
    if schedule is None or row["last_day_good"] is None:
        return where + "\n"
    step = _step(row, schedule["caps"])
    then = f"{schedule['caps'][step]} recipients" if step < len(schedule["caps"]) else "no cap"
    number = step + 1 if step < len(schedule["caps"]) else "warm"
    order = f"zonemta warmup set {row['source']} {row['provider']} {number}"
    return (
        f"{where}; the next step of {schedule['name']} is {then}; `zonemta warmup` shows the cap, `{order}` sets it\n"
    )


def proposed(text: str, rows: _Rows) -> str:
    """The configuration with warm-ups for new addresses in it."""
    for source, found in sorted(_new(rows).items()):
        least = min((CAPS[_step(row, CAPS)] for row in found if _step(row, CAPS) < len(CAPS)), default=None)
        if least is not None:
            text = _with(text, source, found, [cap for cap in CAPS if cap >= least])
    return text


def _new(rows: _Rows) -> dict[str, list[Mapping[str, Any]]]:
    """Source → its rows with days that tell, of those that are new in the lake."""
    known = [row for row in rows if row["since"] is not None and row["source"]]
    if not known:
        return {}
    begin, end = min(row["since"] for row in known), max(row["until"] for row in known)
    first: dict[str, Any] = {}
    for row in known:
        first[row["source"]] = min(row["since"], first.get(row["source"], row["since"]))
    new = {source for source, since in first.items() if since >= max(end - NEW, begin + _BEFORE)}
    telling = [row for row in known if row["source"] in new and row["last_day_good"] is not None]
    return {row["source"]: [other for other in telling if other["source"] == row["source"]] for row in telling}


def _step(row: Mapping[str, Any], caps: Sequence[int]) -> int:
    """Place of the next day's cap; len(caps): none. A bad day repeats the cap that was borne."""
    borne = sum(cap <= (row["best_day"] or 0) for cap in caps)
    return borne if row["last_day_good"] else max(0, borne - 1)


def _with(text: str, source: str, found: _Rows, caps: Sequence[int]) -> str:
    """With one schedule more, and the source's tables naming it; the text as it was where that cannot be."""
    was = tomllib.loads(text)
    name = re.sub(r"[^a-z0-9]+", "-", f"lake-{source}".lower()).strip("-")
    theirs = [one for one in _sources(was) if _same(one.get("address"), source)]
    if any(one.get("warmup") for one in theirs) or name in {one.get("name") for one in was.get("warmups", [])}:
        return text
    if any("warmup" in one or "warmup_since" in one for one in theirs):
        return text  # warmup = "" is a decision
    after = text
    for start, end in reversed(tables(text)):
        part = text[start:end]
        line = _ADDRESS.search(part)
        if line and _same(_address(tomllib.loads(part)), source):
            whole = part[: line.end()] if line[0].endswith("\n") else part[: line.end()] + "\n"
            after = f'{after[:start]}{whole}warmup = "{name}"\n{after[start + line.end() :]}'
    why = "; ".join(
        f"{row['provider']}: {row['good_days']} good days, the best with {row['best_day'] or 0}" for row in found
    )
    after += f'\n# {_one_line(why)}\n[[warmups]]\nname = "{name}"\ncaps = {list(caps)}\n'
    return after if _is(after, was, source, name) else text


def _is(text: str, was: Mapping[str, Any], source: str, name: str) -> bool:
    """Whether the text says what was said, and the warm-up, and no more."""
    try:
        now = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    theirs = [one for one in _sources(now) if _same(one.get("address"), source)]
    if not theirs or any(one.pop("warmup", "") != name for one in theirs):
        return False
    added = now["warmups"].pop()
    if not now["warmups"] and "warmups" not in was:
        del now["warmups"]
    return bool(added["name"] == name) and now == was


def _sources(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [source for pool in told.get("pools", []) for source in pool.get("sources", [])]


def _address(part: Mapping[str, Any]) -> object:
    """Of a [[pools.sources]] table that stands by itself; None of any other."""
    pools = part.get("pools")
    sources = pools.get("sources") if isinstance(pools, dict) else None
    return sources[0].get("address") if isinstance(sources, list) else None


def _schedule(source: str, told: Mapping[str, Any]) -> dict[str, Any] | None:
    """{name, caps} of the source's warm-up in the file."""
    names = [one["warmup"] for one in _sources(told) if _same(one.get("address"), source) and one.get("warmup")]
    plans = {one.get("name"): one.get("caps", CAPS) for one in told.get("warmups", [])}
    return {"name": names[0], "caps": plans[names[0]]} if names and names[0] in plans else None


def _same(some: object, other: str) -> bool:
    try:
        return ipaddress.ip_address(str(some)) == ipaddress.ip_address(other)
    except ValueError:
        return False


def _one_line(text: str) -> str:
    """What a comment of TOML may hold."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
