"""When a campaign's mail may go, in each recipient's own time zone: from when on, in which hours, until when.

Times without an offset are those that the recipient's clocks show, so that one campaign is at nine o'clock everywhere.
Where clocks go forward past such a time, it is when they do so; where they go back past it, it is the first time.

    at, until   "09:00" (at only: the first time that it is nine there, once the campaign exists), "2026-11-24"
                (at: as that day begins; until: as it ends), "2026-11-24 09:00", or with an offset or Z: the same moment
                everywhere
    window      "09:00-17:00", "mon-fri 09:00-17:00", or the name of one of [[windows]]

Pure. Moments are UNIX ms.

A time zone is named by IANA's name, a country (ISO 3166-1, two letters) or a locale with one (de_AT). Of a country with
several it is the one in which most of its people live. Countries and their zones are those of zone.tab (package
tzdata), which lists the most populous zone first only where that agrees with geography; `MOST` has the others.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from zonemta_py.config.limits import DAYS, Day, Window
from zonemta_py.mail.schedule_fields import InvalidValue
from zonemta_py.zones.window import local, local_ms

MOST = {
    "AU": "Australia/Sydney", "BR": "America/Sao_Paulo", "CA": "America/Toronto", "FM": "Pacific/Pohnpei",
    "RU": "Europe/Moscow", "UA": "Europe/Kyiv", "UK": "Europe/London", "UZ": "Asia/Tashkent",
}  # fmt: skip
"""Country → time zone, where the first of zone.tab is another; and what is no code, but written as one."""
_LOCALE = re.compile(r"[A-Za-z]{2,3}[-_](?:[A-Za-z]{4}[-_])?([A-Za-z]{2})(?:[.@].*)?")
_COUNTRY = re.compile(r"[A-Za-z]{2}")


@lru_cache(4096)
def named(text: str) -> str:
    """Its IANA name; "" if it names none."""
    text = text.strip()
    if _COUNTRY.fullmatch(text):
        return _countries().get(text.upper(), "")
    if found := _LOCALE.fullmatch(text):
        return _countries().get(found[1].upper(), "")
    try:
        return ZoneInfo(text).key if text else ""
    except (KeyError, ValueError, OSError):  # unknown, a path out of the database, a folder of it
        return ""


@cache
def _countries() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in resources.files("tzdata").joinpath("zoneinfo", "zone.tab").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            country, _, zone, *_ = line.split("\t")
            found.setdefault(country, zone)
    return found | MOST


LAST_ZONE = "Etc/GMT+12"
"""Where every day ends last."""
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_WINDOW = re.compile(r"(?:([a-z]{3}(?:[-,][a-z]{3})*) +)?(\d\d:\d\d-\d\d:\d\d)", re.ASCII)
_DAY = datetime.timedelta(days=1)
_WRITE = (
    "write 09:00, 2026-11-24, '2026-11-24 09:00' (both as the recipient's clocks show it) or 2026-11-24T09:00+01:00"
)


class CampaignHours(NamedTuple):
    """As above; "" where nothing is said. time_zone: of recipients whose own is not known. time_zone_column, at_column:
    names of the columns that have each recipient's own time zone (as `named` takes it), and "HH:MM"."""

    at: str = ""
    window: str = ""
    until: str = ""
    time_zone: str = ""
    time_zone_column: str = ""
    at_column: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that every batch must have."""
        return tuple(name for name in (self.time_zone_column, self.at_column) if name)


class Times(NamedTuple):
    """Of one recipient: where it is, from when on, until when (0: no end)."""

    time_zone: str
    from_ms: int
    until_ms: int


def checked(given: dict[str, Any], window_names: frozenset[str], now_ms: int) -> CampaignHours | None:
    """None if nothing is said. window_names: of [[windows]]. Raises ValueError with one sentence."""
    hours = said(given)
    if hours is None:
        return None
    _check_at(hours.at)
    if hours.at_column and not _TIME.fullmatch(hours.at):
        raise InvalidValue("times of a column need one for those who have none; give at as a time of day such as 09:00")
    if hours.window and ":" in hours.window:
        window(hours.window)
    elif hours.window and hours.window not in window_names:
        there = f"; there are {', '.join(sorted(window_names))}" if window_names else ""
        raise InvalidValue(
            f"there is no window {hours.window[:80]!r}{there}; write hours such as 09:00-17:00, or add it"
        )
    if hours.time_zone and not named(hours.time_zone):
        what = f"{hours.time_zone[:80]!r} is not a time zone"
        raise InvalidValue(f"{what}; give an IANA name such as Europe/Berlin, or a country such as DE")
    _check_until(hours, now_ms)
    return hours


def said(given: dict[str, Any]) -> CampaignHours | None:
    """As given, unchecked."""
    hours = CampaignHours(**{name: str(value).strip() for name, value in given.items() if value})
    return hours if any(hours) else None


def _check_at(at: str) -> None:
    if at and not _TIME.fullmatch(at):
        _parsed(at, "at")


def _check_until(hours: CampaignHours, now_ms: int) -> None:
    if not hours.until:
        return
    if _TIME.fullmatch(hours.until):
        raise InvalidValue(f"until {hours.until!r} names no day; write 2026-11-24, or '2026-11-24 18:00'")
    _parsed(hours.until, "until")
    if (ends := ends_ms(hours)) <= now_ms:
        raise InvalidValue(f"until {hours.until!r} is in the past; give a later time")
    if hours.at and moment_ms(hours.at, LAST_ZONE, now_ms) >= ends:
        raise InvalidValue(f"it may go from {hours.at!r} on, and only until {hours.until!r}; give a later end")


def of(hours: CampaignHours, since_ms: int, columns: list[str], values: list[str]) -> Times:
    """Of one recipient. since_ms: when its campaign began. values: of `columns`."""
    own = _value(hours.time_zone_column, columns, values)
    at = _value(hours.at_column, columns, values).strip()
    return _times(hours, since_ms, own, at if _TIME.fullmatch(at) else hours.at)


def _value(name: str, columns: list[str], values: list[str]) -> str:
    return values[columns.index(name)] if name and name in columns else ""


@lru_cache(8192)
def _times(hours: CampaignHours, since_ms: int, own: str, at: str) -> Times:
    zone = named(own) or named(hours.time_zone) or "UTC"
    from_ms = moment_ms(at, zone, since_ms) if at else 0
    return Times(zone, from_ms, moment_ms(hours.until, zone, since_ms, end=True) if hours.until else 0)


def words(hours: Mapping[str, str] | None) -> str:
    """A campaign's hours in words; "" if it has none."""
    if not hours or not (hours["at"] or hours["window"] or hours["until"]):
        return ""
    theirs = f"by the clocks of {hours['time_zone'] or 'UTC'}"
    if column := hours["time_zone_column"]:
        otherwise = f", else {hours['time_zone']}" if hours["time_zone"] else ""
        theirs = f"by their own clocks (column {column}{otherwise})"
    if hours["at_column"]:
        hours = {**hours, "at": f"each recipient's own hour (column {hours['at_column']}), else {hours['at']}"}
    said = [(word, hours[name]) for word, name in (("from", "at"), ("in", "window"), ("until", "until"))]
    return ", ".join([*(f"{word} {text}" for word, text in said if text), theirs])


def ends_ms(hours: CampaignHours) -> int:
    """When it is too late for every recipient; 0: never."""
    return moment_ms(hours.until, LAST_ZONE, 0, end=True) if hours.until else 0


def moment_ms(text: str, time_zone: str, since_ms: int, end: bool = False) -> int:
    """end: a day alone is meant with all its hours. Raises ValueError."""
    if found := _TIME.fullmatch(text):
        day, time = local(time_zone, since_ms).date(), datetime.time(int(found[1]), int(found[2]))
        days = (day + number * _DAY for number in range(-1, 3))
        moments = [local_ms(time_zone, datetime.datetime.combine(one, time)) for one in days]
        return next(ms for ms in moments if ms >= since_ms)
    day_time, alone = _parsed(text, "at")
    if alone and end:
        day_time += _DAY
    if day_time.tzinfo is not None:
        return int(day_time.timestamp() * 1000)
    return local_ms(time_zone, day_time)


def _parsed(text: str, name: str) -> tuple[datetime.datetime, bool]:
    """A date, with or without time and offset; whether it is a day alone. Raises ValueError."""
    found = _DATE.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        zone = (found[3] or "").replace("Z", "+00:00")
        return datetime.datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{zone}"), not found[2]
    except ValueError:
        raise InvalidValue(f"{name} {text[:80]!r} is not a time; {_WRITE}") from None


@lru_cache(256)
def window(text: str) -> Window:
    """Hours as they are written, in the recipient's time zone. Raises ValueError."""
    found = _WINDOW.fullmatch(text.lower())
    try:
        if found is None:
            raise ValueError
        return Window(name="hours", days=_days(found[1] or ""), hours=found[2])
    except (ValidationError, ValueError):
        sentence = "write 09:00-17:00 or 'mon-fri 09:00-17:00', or the name of one of [[windows]]"
        raise InvalidValue(f"the window {text[:80]!r} are no hours; {sentence}") from None


def _days(text: str) -> list[Day]:
    """ "mon-wed,fri" → those days; "" → all. Raises ValueError."""
    found = list[Day]()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        at, count = DAYS.index(first), (DAYS.index(last or first) - DAYS.index(first)) % 7 + 1
        found += [DAYS[(at + number) % 7] for number in range(count)]
    return list(dict.fromkeys(found)) or [*DAYS]
