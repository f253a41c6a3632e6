"""Jinja2 survives MJML and CSS: nothing lost, doubled or moved; the markup around it is what was asked for."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.merge.compile import compile, prepare
from zonemta_py.merge.html.markup import protect
from zonemta_py.merge.problems import TemplateRefused, ToolMissing
from zonemta_py.merge.source import TemplateSource, Text

PIECES = st.sampled_from(
    ["<p>", "</p>", "text ", "{{ a }}", "{% if a %}x{% endif %}", '<a href="{{ u }}?a=%}&b=1">', "</a>", "{{ '}}' }}",
     "<!-- {{ a }} -->", "{% raw %}{{ x }}{% endraw %}", "zq0z", "&amp;", '{{ "a>b" }}', "<title>{{ a }}</title>"]
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(pieces=st.lists(PIECES, max_size=12))
def test_protected_markup_comes_back(pieces: list[str]) -> None:
    """To the letter, and without any Jinja2 while it is away."""
    content = "".join(pieces)
    away = protect(Text(content))
    assert not any(sign in away.markup for sign in ("{{", "{%"))
    assert away.restore(away.markup) == content


def test_css_is_inlined_around_jinja(source: Callable[..., TemplateSource]) -> None:
    """Rules become style attributes; expressions in text, attributes, styles and tables stay where they were."""
    html = (
        "<style>p, td { color: red } @media (max-width: 9px) { p { color: blue } }</style>"
        "<table>{% for c in name %}<tr><td>{{ c }}</td></tr>{% endfor %}</table>"
        "<p style='width: {{ w }}px' title=\"{% if w %}1{% endif %}\">{{ name }} &amp; {{ 'a>b' }}</p>"
    )
    prepared = prepare(source(html=html)).html
    assert prepared
    assert '{% for c in name %}<tr><td style="color: red;">{{ c }}</td></tr>{% endfor %}' in prepared.content.replace(
        "<tbody>", ""
    ).replace("</tbody>", "")
    assert "{{ w }}px" in prepared.content
    assert 'title="{% if w %}1{% endif %}"' in prepared.content
    assert "{{ name }} &amp; {{ 'a>b' }}</p>" in prepared.content
    assert "@media" in prepared.content


def test_html_without_a_style_sheet_is_left_as_it_is(source: Callable[..., TemplateSource]) -> None:
    """Byte for byte."""
    assert prepare(source(html="<P>a<br/>{{ b }}")).html == Text("<P>a<br/>{{ b }}", "html")


def test_mjml_keeps_jinja_in_its_place(source: Callable[..., TemplateSource]) -> None:
    """Between sections, in attributes and in text."""
    mjml = """<mjml><mj-head><mj-title>{{ a }}</mj-title><mj-preview>{% if a %}{{ a }}{% endif %}</mj-preview></mj-head>
    <mj-body>{% for s in a %}<mj-section><mj-column><mj-text color="{{ c }}">{{ s }}!</mj-text>
    <mj-button href="https://example.com/?a={{ a|urlencode }}&amp;b=1">{{ "a > b" }}</mj-button>
    </mj-column></mj-section>{% endfor %}</mj-body></mjml>"""
    made = compile(source(mjml=mjml)).html_text({"a": "xyz", "c": "teal"}, "a@example.com", "may")
    assert [made.count(f"{letter}!</div>") for letter in "xyz"] == [1, 1, 1]
    assert made.count("color:teal") == 3
    assert made.count('href="https://example.com/?a=xyz&amp;b=1"') == 3
    assert made.count("a &gt; b</a>") == 3
    assert "<title>xyz</title>" in made
    assert "fonts.googleapis" not in made


def test_a_tag_that_the_tools_would_lose_is_refused(source: Callable[..., TemplateSource]) -> None:
    """Rather than mean something else."""
    mjml = "<mjml>{% if a %}<mj-body></mj-body>{% endif %}</mjml>"
    with pytest.raises(TemplateRefused, match=r"is not allowed here|does not compile"):
        prepare(source(mjml=mjml))


@pytest.mark.parametrize(
    ("module", "given"), [("mjml", {"mjml": "<mjml></mjml>"}), ("css_inline", {"html": "<style></style>"})]
)
def test_a_missing_tool_says_what_to_install(
    source: Callable[..., TemplateSource], monkeypatch: pytest.MonkeyPatch, module: str, given: dict[str, str]
) -> None:
    """And what needs no tool works without."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolMissing, match=r"pip install 'zonemta-py\[campaign\]'"):
        prepare(source(**given))
    assert prepare(source(html="<p>x</p>")).html


@pytest.mark.parametrize("unit", ["<", '"', "< ", "<3", "'"])
def test_markup_without_tags_is_read_once(unit: str) -> None:
    """Work grows with length, not with its square: the longest template is done, however it is broken."""
    content = unit * (1_000_000 // len(unit))
    assert protect(Text(content)).markup == content


@pytest.mark.parametrize(
    ("begun", "end"),
    [
        ("<a ", ">"), ("<a href='", ">"), ('<a href="x', ">"), ("</a ", ">"), ("<!--", "-->"),
        ("<![if x", ">"), ("<?", ">"), ("<style>p {", "</style>"), ("<title>x", "</title>"),
        ("<!", ">"), ("<style ", ">"),
    ],
)  # fmt: skip
def test_what_never_ends_is_refused_where_it_begins(begun: str, end: str) -> None:
    """Python's parser would read to the end of the text from each of ten thousand such beginnings."""
    with pytest.raises(TemplateRefused) as refused:
        protect(Text("<p>{{ a > b }}</p>\n  " + begun * 10_000))
    (problem,) = refused.value.problems
    assert problem.line == 2
    assert f"never ends; write {end} behind it" in str(problem)


@pytest.mark.parametrize(
    "content",
    [
        '<p class="a"">x</p>', "<p title=it's>x</p><p>it's</p>", '<a href="x>y">z</a>', "a < b, 5 <6, x<3",
        "<!-- a > b < c --><!--[if mso]><i><![endif]-->", "<style>a > b { content: '<' }</style>", "<![endif]>",
        '<img src="data:image/png;base64,' + "A" * 500_000 + '">', '<b title="{{ \'<\' }}">', "{# < #}", "<br/ >",
    ],
)  # fmt: skip
def test_what_ends_is_taken(content: str) -> None:
    """Also where a quote, or a smaller-than sign, means nothing to a browser."""
    protect(Text(content))
