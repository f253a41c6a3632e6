"""The time zone that a text names: an IANA name, a country (ISO 3166-1, two letters) or a locale with one (de_AT).

Of a country with several time zones it is the one in which most of its people live. Countries and their zones are those
of zone.tab (package tzdata), which lists the most populous zone first only where that agrees with geography; `MOST` has
the others. Pure, but for reading that file and those of the system's zones once each.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

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
