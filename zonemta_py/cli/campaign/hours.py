"""When a campaign goes (`--at`, `--window`, `--until`), by whose clocks, and what is said about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import moment, print_table
from zonemta_py.pipeline.prepare.settings import BestHour
from zonemta_py.queue import questions
from zonemta_py.zones import campaign_hours

FIELD = "time_zone"
"""The column of batches with each recipient's time zone."""
BEST_FIELD, BEST_OTHERWISE = "best_hour", "10:00"
"""The column of batches with each recipient's own hour, and when those go who have none."""
COLUMNS = ("time_zone", "timezone", "time zone", "tz")
"""Names of a list's column that has it, in whatever case."""
_OFFSET = ("Z", "+", "-")
_SHOWN = 8


class SendingTimes(NamedTuple):
    """hours: as the node takes them. column: of the list, "" for none."""

    hours: dict[str, str]
    column: str

    @property
    def best(self) -> bool:
        """Whether each goes at their own hour."""
        return "at_column" in self.hours

    def best_hour(self, counts: Mapping[str, int]) -> BestHour | None:
        """As settings of a plan. counts: values of the column of time zones."""
        if not self.best:
            return None
        zones = {value: zone for value in counts if (zone := campaign_hours.named(value))}
        otherwise = campaign_hours.named(self.hours.get("time_zone", "")) or "UTC"
        return BestHour(FIELD if self.column else "", zones, otherwise)

    def fields(self, fields: dict[str, str]) -> dict[str, str]:
        """Those that go with each recipient. Raises CommandError."""
        if self.best and BEST_FIELD in fields:
            raise CommandError(Exit.USAGE, f"--at best needs the name {BEST_FIELD}; give the template's field another")
        if not self.column:
            return fields
        if fields.get(FIELD, self.column) != self.column:
            sentence = (
                f"the template's field {FIELD} is the column {fields[FIELD]!r}, and time zones are in another one"
            )
            raise CommandError(Exit.USAGE, f"{sentence}; give the template's field another name")
        return fields | {FIELD: self.column}


def given(at: str, window: str, until: str, time_zone: str) -> dict[str, str]:
    """What is said of times, as the node takes it; empty if nothing is. Raises CommandError."""
    at, own = _best(at)
    said = {"at": at, "window": window, "until": until, "at_column": own}
    if not any(said.values()):
        return {"time_zone": time_zone} if time_zone else {}
    said |= {"time_zone": time_zone}
    known = frozenset() if ":" in window else frozenset((window,))  # the nodes know which windows there are
    try:
        campaign_hours.checked(said, known, int(time.time() * 1000))
    except ValueError as wrong:
        raise CommandError(Exit.USAGE, str(wrong)) from None
    return {name: value for name, value in said.items() if value}


def _best(at: str) -> tuple[str, str]:
    """--at best[,HH:MM]: the time of those who have no hour of their own, and the column with those hours."""
    word, _, otherwise = at.partition(",")
    return (otherwise.strip() or BEST_OTHERWISE, BEST_FIELD) if word.strip() == "best" else (at, "")


def meant(said: dict[str, str], column: str) -> bool:
    """Whether there is a time to go by. Arguments as for `asked`. Raises CommandError for places without one."""
    if said.keys() - {"time_zone"}:
        return True
    if said or column:
        option = "--time-zone" if said else "--time-zone-column"
        raise CommandError(Exit.USAGE, f"{option}: there is no time to go by; add --at, --window or --until")
    return False


def asked(said: dict[str, str], column: str, names: list[str]) -> SendingTimes:
    """said: as `given` gives it. column: as it was named. names: the list's columns. Raises CommandError."""
    if not meant(said, column):
        return SendingTimes({}, "")
    column = _column(column, names)
    if not (column or "time_zone" in said) and any(map(_is_local, said.values())):
        raise CommandError(
            Exit.USAGE, "by whose clocks? name the list's column of time zones or countries with --time-zone-column, "
            "or one time zone for all with --time-zone",
        )  # fmt: skip
    return SendingTimes(said | ({"time_zone_column": FIELD} if column else {}), column)


def show_hours(row: questions.CampaignRow) -> None:
    """Who of a campaign waits for which hour, in each time zone."""
    scheduled = row.get("scheduled")
    if not scheduled or not scheduled["zones"]:
        return
    cells = [(one["time_zone"], one["waiting"], moment(one["next_ms"])) for one in scheduled["zones"]]
    waiting = sum(one["waiting"] for one in scheduled["zones"])
    footer = f"{waiting:,} {'' if scheduled['counted'] else 'or more '}wait for their hour"
    print_table(f"When {row['name']} continues", ["time zone", "waiting ", "next"], cells, footer)


def _is_local(text: str) -> bool:
    """Whether it depends on where one is: no offset, and no name of a window, which may have a time zone."""
    return bool(text) and (text[:4].isdigit() or ":" in text) and not any(sign in text[10:] for sign in _OFFSET)


def _column(named: str, names: list[str]) -> str:
    """Raises CommandError."""
    if named and named not in names:
        raise CommandError(
            Exit.DATA, f"--time-zone-column {named!r}: the list has {', '.join(map(repr, names))}; name one of them"
        )
    return named or next((name for name in names if name.lower() in COLUMNS), "")


def told(counts: Mapping[str, int], column: str, otherwise: str) -> list[str]:
    """Sentences about a list's time zones. counts: value of the column → rows."""
    places, unknown = dict[str, int](), dict[str, int]()
    for value, n in counts.items():
        if zone := campaign_hours.named(value):
            places[zone] = places.get(zone, 0) + n
        else:
            unknown[value] = unknown.get(value, 0) + n
    most = sorted(places.items(), key=lambda one: -one[1])
    shown = ", ".join(f"{zone} {n:,}" for zone, n in most[:_SHOWN])
    more = f" and {len(most) - _SHOWN} more time zones" if len(most) > _SHOWN else ""
    sentences = [f"time zones in {column!r}: {shown}{more}"] if most else []
    if unknown:
        texts = ", ".join(repr(value) for value in sorted(unknown, key=lambda one: -unknown[one])[:_SHOWN])
        sentences.append(
            f"{sum(unknown.values()):,} rows have no time zone or country in {column!r} ({texts}): they go by "
            f"{otherwise or 'UTC'}, which --time-zone sets"
        )
    return sentences
