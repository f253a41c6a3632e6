"""The options of `zonemta campaign send` as settings of a plan. Raises CommandError with the option's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.mail.address import AddressRefused, parse_mailbox
from zonemta_py.pipeline.prepare.settings import Cap, Lane
from zonemta_py.pipeline.prepare.source.dialect import ADDRESS_COLUMNS, recipient_column

SHARES = ("deferred", "bounced", "blocked", "complaints")
DEFAULT_BOUNDS = {"least": 100, "deferred": 0.5, "bounced": 0.1, "blocked": 0.05, "complaints": 0.002}
CANARY_LEAST = 10
"""Attempts below which shares of a canary are not meaningful."""
SEEDS_MAX = 100
STATUS_COLUMNS = frozenset(("status", "subscription_status", "subscriber_status", "list_status"))
"""What other programs call the column that says who wants mail, in lower case with underscores."""
_LEFT = frozenset((
    "blocklisted", "blacklisted", "unsubscribed", "cleaned", "bounced", "complained", "disabled", "inactive", "deleted",
    "suppressed", "opted out", "opted-out", "optout", "spam", "invalid", "unconfirmed",
))  # fmt: skip
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


def mapping(given: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """--map NAME=COLUMN → name in the template → column; columns not mapped keep their names, and one that no template
    could name, such as First Name, is First_Name and first_name."""
    pairs = {}
    for one in given:
        name, equals, column = one.partition("=")
        if not equals or not name.isidentifier() or not column:
            raise CommandError(Exit.USAGE, f"--map {one!r} is not NAME=COLUMN; write, for instance, --map email=E-Mail")
        pairs[name] = column
    taken = set(pairs.values())
    free = [name for name in names if name not in taken]
    found = {name: name for name in free if name.isidentifier()} | pairs
    for name in free:
        spelt = re.sub(r"\W+", "_", name.strip())
        for one in (spelt, spelt.lower()) if not name.isidentifier() and spelt.isidentifier() else ():
            found.setdefault(one, name)
    return found


def status_column(name: str) -> bool:
    return "_".join(name.lower().split()) in STATUS_COLUMNS


def left(values: dict[str, int], column: str) -> str:
    """A sentence about rows whose column says that they want no mail; "" if there are none. values: how many have
    each."""
    gone = {value: count for value, count in values.items() if value.strip().lower() in _LEFT}
    if not gone:
        return ""
    told = ", ".join(f"{value} ({count:,})" for value, count in sorted(gone.items()))
    without = ", ".join(f"'{value}'" for value in sorted(gone))
    return f'{column} says that some want no mail: {told}; `--where "{column} not in ({without})"` leaves them out'


def with_recipient(fields: dict[str, str], list_: str, names: list[str]) -> dict[str, str]:
    """The fields with one of ADDRESS_COLUMNS among them; a column such as E-Mail is taken for email."""
    if any(name in fields for name in ADDRESS_COLUMNS):
        return fields
    if column := recipient_column(names):
        return fields | {"email": column}
    there = f"; it has {', '.join(map(repr, names))}" if names else "; it has no columns at all"
    raise CommandError(
        Exit.DATA, f"{list_}: no column is known as the recipient's address{there}; map one with --map email=COLUMN"
    )


def lanes(zones: Iterable[str], sources: Iterable[str]) -> tuple[Lane, ...]:
    """--zone ZONE[=WEIGHT], --source [ZONE/]ADDRESS[=WEIGHT]."""
    weights = dict(_weighted("--zone", one) for one in zones)
    found = [_source(one, weights) for one in sources]
    served = {lane.zone for lane in found}
    if lost := served - weights.keys() - {""}:
        raise CommandError(Exit.USAGE, f"--source names zone {sorted(lost)[0]}, which no --zone does; add --zone")
    # A zone's weight is shared out among its sources.
    whole = {zone: sum(lane.weight for lane in found if lane.zone == zone) for zone in served}
    shared = [Lane(one.zone, one.source, weights.get(one.zone, 1) * one.weight / whole[one.zone]) for one in found]
    return (*shared, *(Lane(zone, "", weight) for zone, weight in weights.items() if zone not in served)) or (Lane(),)


def _source(one: str, weights: dict[str, float]) -> Lane:
    text, weight = _weighted("--source", one)
    zone, slash, address = text.rpartition("/")
    if not slash and len(weights) > 1:
        raise CommandError(Exit.USAGE, f"--source {one}: name its zone, one of {', '.join(weights)}; write ZONE/{one}")
    return Lane(zone or next(iter(weights), ""), address, weight)


def _weighted(option: str, text: str) -> tuple[str, float]:
    name, equals, weight = text.partition("=")
    try:
        value = float(weight) if equals else 1.0
    except ValueError:
        value = 0.0
    if not name or not 0 < value < float("inf"):
        raise CommandError(Exit.USAGE, f"{option} {text!r}: give a weight above 0, such as {name or 'a'}=2")
    return name, value


def caps(given: Iterable[str]) -> tuple[Cap, ...]:
    """--cap ADDRESS/PROVIDER=N[,N…]: how many on the first day, the second …; the last repeats."""
    found = []
    for one in given:
        way, _, numbers = one.rpartition("=")
        source, slash, provider = way.rpartition("/")
        days = numbers.split(",")
        if not slash or not all(day.strip().isdigit() for day in days):
            raise CommandError(
                Exit.USAGE, f"--cap {one!r}: write ADDRESS/PROVIDER=N,N… such as 192.0.2.1/google=500,1000,2000"
            )
        found.append(Cap(source, provider, tuple(int(day) for day in days)))
    return tuple(found)


def share(option: str, text: str) -> float:
    """ "2%" or "0.02" → 0.02."""
    found = _PERCENT.fullmatch(text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= value <= 1:
        raise CommandError(Exit.USAGE, f"{option} {text!r} is not a share; write 2% or 0.02")
    return value


def bounds(text: str) -> dict[str, float]:
    """ "deferred=30%,blocked=0.01,least=200"; "none" for no bounds, "" for the defaults."""
    if text == "none":
        return {}
    found = dict(DEFAULT_BOUNDS)
    for one in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = one.partition("=")
        if name == "least" and value.isdigit():
            found[name] = int(value)
        elif name in SHARES:
            found[name] = share(f"--bounds {name}", value)
        else:
            known = ", ".join(("least", *SHARES))
            raise CommandError(
                Exit.USAGE, f"--bounds: {one!r} is not a bound; the bounds are {known}, written like deferred=30%"
            )
    return found


def for_canary(bounds: dict[str, float], canary: int) -> dict[str, float]:
    """Bounds that half of a canary (recipients, 0: none) is enough for, or a small one would never be judged."""
    if not bounds or not canary:
        return bounds
    return bounds | {"least": min(bounds["least"], max(CANARY_LEAST, canary // 2))}


def seeds(text: str) -> tuple[str, ...]:
    """Addresses between commas, or of a file, one a line, where # begins a comment."""
    if not text:
        return ()
    given = text.split(",")
    if "@" not in text:
        try:
            given = [line.partition("#")[0] for line in Path(text).read_text("utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CommandError(Exit.NO_INPUT, f"--seeds {text}: cannot be read ({reason}); name a file") from None
    found = tuple(dict.fromkeys(filter(None, (one.strip() for one in given))))
    for one in found:
        try:
            parse_mailbox(one)
        except AddressRefused:
            raise CommandError(Exit.USAGE, f"--seeds: {one!r} is not an address; write name@domain") from None
    if not 1 <= len(found) <= SEEDS_MAX:
        raise CommandError(Exit.USAGE, f"--seeds has {len(found)} addresses; give 1 to {SEEDS_MAX}")
    return found
