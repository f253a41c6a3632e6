"""Filters that write dates, numbers, amounts of money and plurals as the recipient's language does (Unicode CLDR, by
Babel): `{{ price|currency('EUR') }}` is €1,234.50 in English, 1.234,50 € in German.

The language is the filter's argument `locale`, else the field `locale`, else the field `language` (de, pt-BR,
zh_Hant_TW), else English. Fields are texts: numbers are written 1234.5, dates as ISO 8601. Failures: ValueError, with
one sentence that names the value.
"""

from __future__ import annotations

import copy
import datetime
import re
import zoneinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import nodes, pass_context
from markupsafe import Markup

from zonemta_py.merge.meter import CALL, MeteredContext, size

if TYPE_CHECKING:
    from babel.core import Locale

COST = 15 * CALL
"""The slowest, a date with its weekday, takes 50 µs."""
NUMBER_END = 10**15
DIGITS_MAX, PATTERN_MAX, TEXT_MAX = 10, 60, 10_000
_NUMBER = re.compile(r"\s*[+-]?\d{1,15}(?:\.\d{1,15})?\s*", re.ASCII)
_LENGTHS = ("short", "medium", "long", "full")
_CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_CODE = re.compile(r"[A-Z]{3}")


@lru_cache(256)
def _locale(name: str) -> Locale:
    from babel.core import Locale, UnknownLocaleError

    wanted = name.strip().partition(".")[0].partition("@")[0].replace("-", "_") or "en"  # de_AT.UTF-8, de_DE@euro
    try:
        if len(wanted) <= 40:
            return Locale.parse(wanted)
    except (UnknownLocaleError, ValueError, TypeError):
        pass
    raise ValueError(f"{name[:40]!r} is not a language such as de or pt-BR")


def _number(value: Any) -> Decimal:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = Decimal(str(value))
            if abs(number) < NUMBER_END:
                return number
        except InvalidOperation:  # of infinity
            pass
    raise ValueError(f"{str(value)[:40]!r} is not a number such as 1234.5")


def _digits(digits: Any) -> int:
    if isinstance(digits, int) and 0 <= digits <= DIGITS_MAX:
        return digits
    raise ValueError(f"{str(digits)[:40]!r} is not a number of decimals from 0 to {DIGITS_MAX}")


def _moment(value: Any) -> datetime.datetime | datetime.date:
    text = value.strip() if isinstance(value, str) else ""
    try:
        return datetime.date.fromisoformat(text) if len(text) == 10 else datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a date such as 2026-12-24 or 2026-12-24T18:00+01:00") from None


def _in_zone(moment: datetime.datetime, zone: Any) -> datetime.datetime:
    """Where an offset is known, as a clock there shows it."""
    if not zone or moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(zoneinfo.ZoneInfo(str(zone)))
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(f"{str(zone)[:40]!r} is not a time zone such as Europe/Berlin") from None


def _pattern(form: Any) -> str:
    if isinstance(form, str) and 0 < len(form) <= PATTERN_MAX:
        return form
    raise ValueError(f"{str(form)[:40]!r} is not a form of a date; use {', '.join(_LENGTHS)}, or such as 'd. MMMM'")


@pass_context
def date(context: MeteredContext, value: Any, form: Any = "long", *, locale: Any = "") -> str:
    """form: short, medium, long, full, or a pattern of CLDR such as "EEEE, d. MMMM"."""
    from babel import dates

    context.spend(COST)
    moment, form = _moment(value), _pattern(form)
    day = moment.date() if isinstance(moment, datetime.datetime) else moment
    return _written(dates.format_date, day, form, locale)


@pass_context
def time(context: MeteredContext, value: Any, form: Any = "short", zone: Any = "", *, locale: Any = "") -> str:
    """zone: in whose time it is written, where the value has an offset."""
    from babel import dates

    context.spend(COST)
    moment = _moment(value)
    if not isinstance(moment, datetime.datetime):
        raise ValueError(f"{str(value)[:40]!r} has no time")
    return _written(dates.format_time, _in_zone(moment, zone).replace(tzinfo=None), _pattern(form), locale)


@pass_context
def date_time(context: MeteredContext, value: Any, form: Any = "long", zone: Any = "", *, locale: Any = "") -> str:
    from babel import dates

    context.spend(COST)
    moment = _moment(value)
    if not isinstance(moment, datetime.datetime):
        raise ValueError(f"{str(value)[:40]!r} has no time")
    moment, form = _in_zone(moment, zone).replace(tzinfo=None), _pattern(form)
    if form not in _LENGTHS:
        return _written(dates.format_datetime, moment, form, locale)
    found = _locale(str(locale))
    day = dates.format_date(moment.date(), form, locale=found)
    hour = dates.format_time(moment, "short", locale=found)  # nobody reads seconds, or the zone of a clock on the wall
    return str(found.datetime_formats[form]).replace("'", "").replace("{0}", hour).replace("{1}", day)


def _written(write: Any, value: Any, form: str, locale: Any) -> str:
    found = _locale(str(locale))
    try:
        return str(write(value, form, locale=found))
    except (KeyError, AttributeError, TypeError, ValueError):
        raise ValueError(f"{form!r} is not a form of a date; use {', '.join(_LENGTHS)}, or such as 'd. MMMM'") from None


@pass_context
def number(context: MeteredContext, value: Any, decimals: Any = None, *, locale: Any = "") -> str:
    """decimals: how many are written; None: as many as there are, three at most."""
    context.spend(COST)
    found, written = _locale(str(locale)), _number(value)
    pattern = found.decimal_formats[None]
    if decimals is not None:
        pattern = copy.copy(pattern)
        pattern.frac_prec = (_digits(decimals), _digits(decimals))
    return str(pattern.apply(written, found))


@pass_context
def currency(context: MeteredContext, value: Any, code: Any, *, locale: Any = "") -> str:
    """code: ISO 4217, such as EUR; it has as many decimals as that currency."""
    from babel import numbers

    context.spend(COST)
    found, written = _locale(str(locale)), _number(value)
    if not isinstance(code, str) or not _CODE.fullmatch(code) or not numbers.is_currency(code):
        raise ValueError(f"{str(code)[:40]!r} is not a currency such as EUR")
    return str(numbers.format_currency(written, code, locale=found))


@pass_context
def percent(context: MeteredContext, value: Any, decimals: Any = 0, *, locale: Any = "") -> str:
    """Of a share: 0.25 is 25 %."""
    context.spend(COST)
    found, written = _locale(str(locale)), _number(value)
    pattern = copy.copy(found.percent_formats[None])
    pattern.frac_prec = (_digits(decimals), _digits(decimals))
    return str(pattern.apply(written, found))


@pass_context
def plural(context: MeteredContext, value: Any, *, locale: Any = "", **texts: Any) -> Any:
    """The text for that many: `n|plural(one='# letter', other='# letters')`; # is the number. Languages have up to six:
    zero, one, two, few, many, other; what is not given is `other`."""
    if wrong := texts.keys() - set(_CATEGORIES):
        raise ValueError(f"plural has no {min(wrong)!r}; give {', '.join(_CATEGORIES)}")
    if "other" not in texts:
        raise ValueError("plural needs other='…', the text for all numbers that have none of their own")
    found, counted = _locale(str(locale)), _number(value)
    text = texts.get(found.plural_form(counted), texts["other"])
    if not isinstance(text, str) or len(text) > TEXT_MAX:
        raise ValueError(f"a text of plural is not a text of up to {TEXT_MAX:,} characters")
    written = str(found.decimal_formats[None].apply(counted, found))
    context.spend(COST + size(text) + text.count("#") * len(written))
    return text.replace("#", Markup(written) if isinstance(text, Markup) else written)


FILTERS: dict[str, Any] = {
    "date": date, "time": time, "datetime": date_time, "number": number, "currency": currency, "percent": percent,
    "plural": plural,
}  # fmt: skip


def localize(tree: nodes.Template) -> nodes.Template:
    """Each of these filters that names no locale gets that of the recipient's fields, if the list has one."""
    for use in list(tree.find_all(nodes.Filter)):
        if use.name in FILTERS and not any(one.key == "locale" for one in use.kwargs):
            locale: Any = nodes.Keyword("locale", _of_fields(use), lineno=use.lineno)
            use.kwargs = [*use.kwargs, locale]
            if tree.environment is not None:
                use.set_environment(tree.environment)
    return tree


def _of_fields(use: nodes.Filter) -> nodes.Expr:
    """locale|default(language|default(''))"""
    found: nodes.Expr = nodes.Const("", lineno=use.lineno)
    for name in ("language", "locale"):
        field = nodes.Name(name, "load", lineno=use.lineno)
        found = nodes.Filter(field, "default", [found], [], None, None, lineno=use.lineno)
    return found
