"""Learned rates as a difference to a configuration file, for an operator to read, change and accept.

Each rate becomes a [[throttles]] table named "lake-<provider>-<source>" for that source at that provider, or at a site
that is no provider's; one that is there already under that name is replaced, everything else stays as it is, comments
too. Warm-ups: `warmup_proposal`.
Pure: text in, text out.
Failures: ValueError with one sentence where the file writes its throttles as a value in brackets, to which no table
can be added.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Container, Iterable
from typing import Any

from zonemta_py.pipeline.findings.toml_text import own_end, tables

NAME_CHARACTERS_MAX = 60
CONFIDENT = ("medium", "high")
_UNENDED = "\n\\ No newline at end of file\n"
"""What `patch` wants to know of a file's last line."""


def fragment(row: dict[str, Any], where: str = "provider") -> str:
    """One table, with what it rests on as a comment. row: of rates.RATES with `proposed`. where: provider or site."""
    only = f"{{ source = {_quoted(row['source'])}, {where} = {_quoted(row['provider'])} }}"
    return "\n".join(
        [
            f"# {row['reason']}; confidence {row['confidence']}, {row['windows']} windows, {row['attempts']} attempts",
            "[[throttles]]",
            f'name = "{throttle_name(row["source"], row["provider"])}"',
            f"only = {only}",
            f'recipients = "{rate_text(row["proposed"])}"',
            "",
        ]
    )


def proposed(
    text: str, rows: Iterable[dict[str, Any]], providers: Container[str], least: Iterable[str] = CONFIDENT
) -> str:
    """The configuration with the rates of that confidence in it. providers: their names. Raises ValueError."""
    wanted = frozenset(least)
    for row in sorted(rows, key=lambda row: (row["provider"], row["source"])):
        if row["proposed"] is not None and row["confidence"] in wanted and row["source"]:
            where = "provider" if row["provider"] in providers else "site"
            text = _put(text, throttle_name(row["source"], row["provider"]), fragment(row, where))
    _check(text)
    return text


def difference(before: str, after: str, name: str) -> str:
    """A unified diff, for `patch` and for reading; "" if nothing changes."""
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    told = difflib.unified_diff(*lines, fromfile=f"a/{name}", tofile=f"b/{name}")
    return "".join(line if line.endswith("\n") else line + _UNENDED for line in told)


def throttle_name(source: str, provider: str) -> str:
    """Of letters, digits and dashes; deterministic."""
    return re.sub(r"[^a-z0-9]+", "-", f"lake-{provider}-{source}".lower()).strip("-")[:NAME_CHARACTERS_MAX]


def rate_text(per_second: float) -> str:
    """In the unit in which it is a number from 2 on, to three digits, rounded down: "48.3/s", "150/min", "30/h"."""
    amounts = [(per_second * seconds, unit) for unit, seconds in (("s", 1), ("min", 60), ("h", 3600))]
    amount, unit = next((each for each in amounts if each[0] >= 2), amounts[-1])
    digits = max(0, 2 - len(str(int(amount)))) + (amount < 100)
    scale = 10 ** min(digits, 2)
    value = max(1 / scale, int(amount * scale) / scale)
    return f"{value:g}/{unit}" if value < 1e5 else f"{int(value)}/{unit}"


def _put(text: str, name: str, table: str) -> str:
    """In place of the table of that name, with the comment that stands right above it; else at the end."""
    for start, end in tables(text):
        throttles = tomllib.loads(text[start:end]).get("throttles")
        if isinstance(throttles, list) and throttles[0].get("name") == name:
            return text[: _comment_above(text, start)] + table + text[own_end(text, start, end) :]
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}{table}"


def _comment_above(text: str, start: int) -> int:
    """One line of comment of ours belongs to the table."""
    above = text.rfind("\n", 0, max(0, start - 1)) + 1
    return above if re.match(r"# .*; confidence ", text[above:start]) else start


def _check(text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(
            f"no [[throttles]] table can be added to this configuration ({error});"
            " write its throttles as [[throttles]] tables"
        ) from None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
