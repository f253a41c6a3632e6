"""Opens and clicks: which links of a message's HTML change, and that nothing else does."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.merge.html.tracking import CHARACTERS_MAX, LINKS_MAX, Tracking, tracked

OURS = "https://mail.example"
BOTH = Tracking(lambda target: f"{OURS}/c/{quote(target, safe='')}", f"{OURS}/o/x", OURS)
LINKS = BOTH._replace(picture="")
_MADE = re.compile(rf"{OURS}/c/([^\"'<> ]*)")


def back(html: str) -> str:
    """With the targets in place again."""
    return _MADE.sub(lambda found: unquote(unescape(found[1])).replace("&", "&amp;"), html)


@pytest.mark.parametrize(
    "html",
    [
        '<a href="https://x.example/?a=1&amp;b=2">x</a>',
        "<A class=b HREF='http://x.example'>x</A>",
        '<area shape="rect" href="https://x.example/a">',
        '<a title="a > b" href="https://x.example/">x</a>',
        '<a\nhref = "https://x.example/"\n>x</a>',
    ],
)
def test_links_change(html: str) -> None:
    assert OURS in tracked(html, LINKS)
    assert back(tracked(html, LINKS)) == html


def test_a_link_without_quotes_gets_them() -> None:
    assert tracked("<a href=https://x.example/>x</a>", LINKS).startswith(f'<a href="{OURS}/c/https%3A')


@pytest.mark.parametrize(
    "html",
    [
        '<a href="mailto:a@x.example">x</a>', '<a href="tel:+1">x</a>', '<a href="#top">x</a>', '<a href="">x</a>',
        '<a href="/there">x</a>', '<a name="https://x.example">x</a>', '<a href="javascript:x">x</a>',
        f'<a href="{OURS}/u/token">unsubscribe</a>', '<a data-track="no" href="https://x.example">x</a>',
        '<a href="https://x.example" data-track=no>x</a>', '<link href="https://x.example/a.css">',
        '<!-- <a href="https://x.example">x</a> -->', '<style>a:after { content: "<a href=\'https://x\'>" }</style>',
        '<script>"<a href=\'https://x.example\'>"</script>', '<img src="https://x.example/a.png">',
        '<a data-href="https://x.example">x</a>', '<p title=\'<a href="https://x.example">\'>x</p>',
        '<a href="https://x.example/ä">x</a>', '<a href="https://x.example/{{ a }}">x</a>', "<a href='https://x",
        '<abbr href="https://x.example">x</abbr>', f'<a href="https://x.example/{"x" * 2_000}">x</a>',
    ],
)  # fmt: skip
def test_what_stays(html: str) -> None:
    assert tracked(html, LINKS) == html


def test_the_picture_is_at_the_end() -> None:
    assert tracked("<html><BODY><p>x</p></BODY></html>", BOTH).endswith('style="border:0"></BODY></html>')
    assert tracked("x", BOTH).startswith("x<img ")


def test_limits() -> None:
    """What is larger than anybody's newsletter stays as it is."""
    assert tracked("x" * (CHARACTERS_MAX + 1), BOTH) == "x" * (CHARACTERS_MAX + 1)
    many = '<a href="https://x.example/">x</a>' * (LINKS_MAX + 5)
    assert tracked(many, LINKS).count(OURS) == LINKS_MAX


PARTS = (
    "<a ", 'href="', "href='", "https://x.example/", '"', "'", ">", "<!--", "-->", "<script>", "</script>", "=",
)  # fmt: skip


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=40).map("".join))
def test_whatever_the_html_is(html: str) -> None:
    """Only targets change."""
    if OURS not in html:
        assert _bare(back(tracked(html, LINKS))) == _bare(html)


def _bare(html: str) -> str:
    """Without what may differ: quotes, blanks around a target, how a character is written."""
    return "".join(unescape(html).replace('"', "").split())
