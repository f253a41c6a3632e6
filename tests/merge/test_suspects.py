"""What is good Jinja2 and no good mail is said before anything is sent."""

from collections.abc import Callable

import pytest

from zonemta_py.merge.compile import compile, prepare
from zonemta_py.merge.problems import TemplateRefused
from zonemta_py.merge.source import TemplateSource, Text


def made(**parts: str) -> TemplateSource:
    texts = {name: Text(content, name) for name, content in parts.items()}
    return TemplateSource("t", texts.pop("subject", Text("Hi", "subject")), Text("news@x.example"), **texts)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"text": "Dear *|FNAME|*,"},
            "text:1:6: '*|FNAME|*' is a merge tag of another program, and would be sent as it",
        ),
        ({"text": "Dear %recipient.name%"}, "text:1:6: '%recipient.name%' is a merge tag"),
        ({"text": "Dear %%First_Name%%"}, "'%%First_Name%%' is a merge tag"),
        ({"text": "Dear\n[[name]]"}, "text:2:1: '[[name]]' is a merge tag"),
        ({"text": "Dear {name}"}, "write {{ name }}, or {{ '{name}' }} if it is meant"),
        ({"text": "x", "subject": "For ${first_name}"}, "subject:1:5: '${first_name}' is a merge tag"),
        ({"subject": "Hello\nyou", "text": "x"}, "subject:1:6: a subject is one line; put it on one"),
        ({"html": "<p><a href=''>x</a></p>"}, "html:1:13: the link is empty; write where it leads"),
        (
            {"html": '<a class="b" href="http://localhost/x">x</a>'},
            "no recipient can open the link 'http://localhost/x'",
        ),
        ({"html": "<a href='http://192.168.0.1/{{ name }}'>x</a>"}, "which is of a private network; write its public"),
        (
            {"html": "<a href='htp://shop.example/'>x</a>"},
            "can open the link 'htp://shop.example/'; write it with https",
        ),
        ({"html": "<a href='file:///c:/x.html'>x</a>"}, "can open the link 'file:///c:/x.html'"),
        ({"html": "<a href='https://shop example.com/'>x</a>"}, "'https://shop example.com/', which is no address"),
        ({"html": "<a href='mailto:'>x</a>"}, "html:1:10: the link is empty"),
        (
            {"html": "<p><img alt='' src='file:///c:/logo.png'>"},
            "html:1:21: no recipient can see the image 'file:///",
        ),
        ({"html": '<img src="http://192.168.1.2/a.png">'}, "which is of a private network; write its public"),
        ({"html": "<a href='www.shop.example'>x</a>"}, "'www.shop.example' leads nowhere from a mail"),
        ({"text": "See http://localhost:8000/ and go"}, "text:1:5: no recipient can open the link"),
        ({"html": "<p>x</p><script>let a = 1</script>"}, "html:1:9: mail programs remove or refuse <script>"),
        ({"html": "<FORM action='https://x.example'></FORM>"}, "mail programs remove or refuse <form>"),
        ({"html": "<div>\n<b>x</div>"}, "html:2:1: <b> is not closed; write </b> where it ends"),
        ({"html": "{% if name %}<b>{% endif %}x"}, "html:1:14: <b> is not closed"),
    ],
)
def test_it_is_refused_with_its_place(parts: dict[str, str], said: str) -> None:
    """And with what to write; what is stored already is sent as before."""
    with pytest.raises(TemplateRefused) as refused:
        prepare(made(**parts))
    assert said in "\n".join(map(str, refused.value.problems))
    if "html" in parts:
        parts = parts | {"text": "x"}
    stored = made(**parts)
    compile(
        TemplateSource(stored.file, stored.subject, stored.sender, text=stored.text, html=stored.html, prepared=True)
    )


@pytest.mark.parametrize(
    "parts",
    [
        {"text": "{{ '{name}' }} {{ '*|FNAME|*' }} 100% of {1} [1] {} [[1]] a*|b 50%%"},
        {"text": "x", "subject": "{% if a is\n defined %}x{% endif %}y\n"},
        {"html": "<style>p {color:red} a{margin:0}</style><p style='color:{{ c }}'>x<br>y<img src='https://x.example/a.png'><p>z"},
        {"html": "<a href='{{ url }}'>x</a><a href='#top'>y</a><a href='mailto:a@x.example?subject=x'>z</a>"},
        {"html": "<a href='https://{{ shop }}.example/'>x</a><a href='tel:1'>1</a><a name=q></a>"},
        {"html": '<a href="https://x.example/?a={{ b }}&amp;c">y</a>'},
        {"html": "{% if a is defined %}<b>{% else %}<b class='x'>{% endif %}x</b>"},
        {"html": "<img src='{{ logo }}'><img src='//x.example/a.png'><img src='data:image/png;base64,AAAA'>"},
        {"html": "<img src='https://x.example/{{ a }}.png'><!-- <img src='http://localhost/a.png'> -->"},
        {"html": "<!-- {old} <form> --><table><tr><td>x</table>"},
    ],
)  # fmt: skip
def test_what_is_usual_is_good(parts: dict[str, str]) -> None:
    """Other braces, styles, addresses that fields make, elements that end by themselves, branches."""
    prepare(made(**parts))


def test_a_default_stands_for_an_empty_cell(rendered: Callable[..., bytes]) -> None:
    """A list has the column for all, and a value for some."""
    for value in ("", "  "):
        assert b"\r\n\r\nHi=20you,=200" in rendered({"a": value}, text="Hi {{ a|default('you') }}, {{ 0|d(7) }}")
    assert b"Hi=20Ann" in rendered({"a": "Ann"}, text="Hi {{ a|default('you') }}")
