"""Dates, numbers, amounts and plurals in the recipient's language."""

import quopri
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.merge.compile import compile, fields, problems
from zonemta_py.merge.meter import WORK_MAX
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.merge.source import TemplateSource

FIELDS = {"price": "1234.5", "day": "2026-12-24", "at": "2026-12-24T23:30+00:00", "n": "1"}


def text(made: bytes) -> str:
    found = quopri.decodestring(made.partition(b"\r\n\r\n")[2]).decode().strip()
    return found.replace("\u202f", " ").replace("\xa0", " ")


@pytest.mark.parametrize(
    ("template", "english", "german"),
    [
        ("{{ price|currency('EUR') }}", "€1,234.50", "1.234,50 €"),
        ("{{ price|currency('JPY') }}", "¥1,234", "1.234 ¥"),
        ("{{ price|number }}", "1,234.5", "1.234,5"),
        ("{{ price|number(2) }}", "1,234.50", "1.234,50"),
        ("{{ 0.256|percent }}", "26%", "26 %"),
        ("{{ 0.256|percent(1) }}", "25.6%", "25,6 %"),
        ("{{ day|date }}", "December 24, 2026", "24. Dezember 2026"),
        ("{{ day|date('short') }}", "12/24/26", "24.12.26"),
        ("{{ day|date('EEEE') }}", "Thursday", "Donnerstag"),
        ("{{ at|date }}", "December 24, 2026", "24. Dezember 2026"),
        ("{{ at|datetime(zone='Europe/Berlin') }}", "December 25, 2026, 12:30 AM", "25. Dezember 2026, 00:30"),
        ("{{ at|time }}", "11:30 PM", "23:30"),
        ("{{ n|plural(one='# letter', other='# letters') }}", "1 letter", "1 letter"),
        ("{{ (price|float)|plural(one='# letter', other='# letters') }}", "1,234.5 letters", "1.234,5 letters"),
    ],
)
def test_as_the_language_has_it(rendered: Callable[..., bytes], template: str, english: str, german: str) -> None:
    for more, expected in (
        ({}, english), ({"language": ""}, english), ({"language": "de"}, german), ({"language": "DE-at"}, None),
        ({"language": "en", "locale": "de_DE.UTF-8"}, german),
    ):  # fmt: skip
        made = text(rendered(FIELDS | more, text=template))
        assert expected in (None, made)


def test_the_locale_of_a_filter_comes_first(rendered: Callable[..., bytes]) -> None:
    template = "{{ day|date(locale='fr') }}, {{ day|date(locale=tongue|default('pt-BR')) }}"
    made = text(rendered(FIELDS | {"language": "de"}, text=template))
    assert made == "24 décembre 2026, 24 de dezembro de 2026"


def test_plurals_of_languages_that_have_more_than_two(rendered: Callable[..., bytes]) -> None:
    template = "{{ n|plural(one='# plik', few='# pliki', other='# plików') }}"
    made = [text(rendered({"n": str(n), "language": "pl"}, text=template)) for n in (1, 2, 5, 22)]
    assert made == ["1 plik", "2 pliki", "5 plików", "22 pliki"]


def test_fields_of_the_language_are_taken_from_the_list(source: Callable[..., TemplateSource]) -> None:
    """If it has them: nothing asks for them."""
    made = source(text="{{ day|date }}")
    assert fields(made) == {"day", "language", "locale"}
    assert problems(made, ["day"]) == []
    assert fields(source(text="{{ day|date(locale='de') }}")) == {"day"}


def test_in_html_texts_are_escaped(rendered: Callable[..., bytes]) -> None:
    made = text(rendered({"n": "2"}, html="<p>{{ n|plural(one='a', other='# & more') }}</p>"))
    assert "2 &amp; more" in made


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ 'soon'|date }}", "'soon' is not a date such as 2026-12-24"),
        ("{{ day|time }}", "'2026-12-24' has no time"),
        ("{{ at|time(zone='Mars') }}", "'Mars' is not a time zone"),
        ("{{ day|date('QQQQQQQQ') }}", "is not a form of a date; use short"),
        ("{{ day|date(locale='Deutsch') }}", "'Deutsch' is not a language such as de"),
        ("{{ '1.234,5'|number }}", "'1.234,5' is not a number such as 1234.5"),
        ("{{ '1e99999999'|number }}", "is not a number"),
        ("{{ ('9999999999999999'|float)|number }}", "is not a number"),
        ("{{ price|number(400000000) }}", "is not a number of decimals from 0 to 10"),
        ("{{ price|currency('Euro') }}", "'Euro' is not a currency such as EUR"),
        ("{{ price|currency('ZZZ') }}", "'ZZZ' is not a currency"),
        ("{{ n|plural(one='x') }}", "plural needs other="),
        ("{{ n|plural(other='x', lots='y') }}", "plural has no 'lots'"),
    ],
)
def test_what_cannot_be_written_is_said(rendered: Callable[..., bytes], template: str, sentence: str) -> None:
    with pytest.raises(RenderRefused, match="text: ") as refused:
        rendered(FIELDS, text=template)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "use", ["'9'|number", "day|date('full')", "'1'|plural(other='#' * 1)", f"1|plural(other='{'#' * 9_000}')"]
)
def test_they_cost_what_they_take(source: Callable[..., Any], use: str) -> None:
    """No template writes more of them than its budget has room for."""
    use = use.replace("'#' * 1", "'#'")
    loop = f"{{% for i in range(10000) %}}{{{{ {use} }}}}{{% endfor %}}"
    with pytest.raises(RenderRefused, match=f"{WORK_MAX:,} characters of work"):
        compile(source(text=loop)).render(FIELDS, "a@x.test", "may", "Fri, 01 May 2026 08:00:00 +0000")
