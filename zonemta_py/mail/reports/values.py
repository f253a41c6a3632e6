"""Numbers, times and addresses as makers of reports write them: with blanks, as text, as floats."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address
from typing import Any

from zonemta_py.mail.reports.unpacking import ReportRefused

COUNT_MAX = 10**12
"""Messages or sessions: nobody has as many in a report."""
TIME_MAX_S = 1 << 34
_MS_FROM = 10**11
"""A time that is larger is in milliseconds."""
LINE_CHARACTERS_MAX = 255


def line(value: Any, most: int = LINE_CHARACTERS_MAX) -> str:
    """One line, printable and short; "" for what is no text and no number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value) if abs(value) < COUNT_MAX else ""
    if not isinstance(value, str):
        return ""
    said = " ".join(value[: most * 4].split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in said)[:most]


def domain(value: Any) -> str:
    """In lower case, without a dot at its end."""
    return line(value).lower().rstrip(".")


def count(value: Any) -> int:
    """0 for what is no number, or below. Raises ReportRefused."""
    if isinstance(value, str):
        said = value.strip()
        if len(said) > 40:
            raise ReportRefused("it has a count that is no number")
        try:
            value = float(said.replace(",", "")) if said else 0
        except ValueError:
            return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return 0
    if value > COUNT_MAX:
        raise ReportRefused(f"it has a count above {COUNT_MAX:,}")
    return max(0, int(value))


def time_s(value: Any) -> int:
    """UNIX time; of a date as ISO 8601 writes it, too. 0 if there is none. Raises ReportRefused."""
    if isinstance(value, str):
        said = value.strip()[:40]
        if said and not said.replace(".", "", 1).isdigit():
            try:
                told = datetime.fromisoformat(said)
            except ValueError:
                return 0
            return _bounded(int((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()))
        value = float(said) if said else 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return 0
    if value in (float("inf"), float("-inf")):
        return _bounded(-1)
    return _bounded(int(value / 1000) if value > _MS_FROM else int(value))


def _bounded(seconds: int) -> int:
    if not 0 <= seconds < TIME_MAX_S:
        raise ReportRefused("it is about no time that there could be")
    return seconds


def address(value: Any) -> str:
    """An IP address in its usual spelling, one of IPv4 also where it is written as IPv6; "" for anything else."""
    try:
        found = ip_address(line(value, 64).strip("[]").partition("%")[0])
    except ValueError:
        return ""
    return str(found.ipv4_mapped or found) if isinstance(found, IPv6Address) else str(found)
