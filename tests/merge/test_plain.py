"""Text made from HTML: what a reader of the HTML would see."""

import re
from collections.abc import Callable

import pytest

from zonemta_py.merge.html.plain import plain_text
from zonemta_py.merge.source import TemplateSource


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>One\n  two<p>three<br>four", "One two\n\nthree\nfour\n"),
        ("<h1>A &amp; B</h1><ul><li>x<li>y</ul>z", "A & B\n\n* x\n* y\n\nz\n"),
        ('<a href="https://e.com/">Go <b>on</b></a>', "Go on <https://e.com/>\n"),
        ('<a href="https://e.com/">https://e.com/</a> <a href="#x">x</a>', "https://e.com/ x\n"),
        ('<a href="https://e.com/"><img alt="Logo" src="x"></a><img src="y">', "Logo <https://e.com/>\n"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</table>", "a b\nc\n"),
        ('<title>t</title><style>p{}</style><div style="display: none">pre<br></div>seen', "seen\n"),
        ("<!-- gone --><!--keep-->x", "keepx\n"),
        ("a<hr>b", "a\n" + "-" * 40 + "\nb\n"),
        ("", "\n"),
    ],
)
def test_plain_text(markup: str, text: str) -> None:
    """Blocks are lines, links lead somewhere, what is hidden stays so."""
    assert plain_text(markup, re.compile("keep")) == text


def test_fields_in_it_are_not_escaped(rendered: Callable[..., bytes], source: Callable[..., TemplateSource]) -> None:
    """The made text is a template as well, of plain text."""
    message = rendered({"x": "a&b"}, html='<p>{% if x %}<a href="https://e.com/{{ x }}">{{ x }}</a>{% endif %}</p>')
    assert b"\r\n\r\na&b <https://e.com/a&b>\r\n" in message
