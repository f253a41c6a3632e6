"""No template takes long or fills memory, whatever it is made of. Times are of the processor, with much room: what is
not counted runs for minutes."""

import re
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zonemta_py.merge.compile import compile, prepare, problems
from zonemta_py.merge.problems import RenderRefused, TemplateRefused
from zonemta_py.merge.source import File, TemplateSource, Text

CPU_S, MEMORY_BYTES = 4.0, 64_000_000
FIELDS = {
    "x": "x" * 40_000, "y": "x" * 39_999 + "y", "words": "a." * 5_000, "tags": "<a>" * 1_500, "wide": "漢é" * 1_000,
    "hex": "f" * 3_000,
}  # fmt: skip


def within(template: str, fields: dict[str, str] = FIELDS, times: int = 1) -> str:
    """Renders it as HTML within bounds; why it was refused, or ""."""
    made = compile(TemplateSource("t", Text("s"), Text("a@b.example"), html=Text(template), prepared=True))
    said = ""
    began = time.process_time()
    for _ in range(times):
        try:
            made.render(fields, "a@b.example", "c", "d")
        except RenderRefused as refused:
            said = str(refused)
    took = (time.process_time() - began) / times
    tracemalloc.start()
    try:
        made.render(fields, "a@b.example", "c", "d")
    except RenderRefused:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert took < CPU_S, f"{took:.1f} s for {template[:300]}"
    assert peak < MEMORY_BYTES, f"{peak:,} bytes for {template[:300]}"
    return said


BODIES = [
    "{% if x == y %}{% endif %}",
    "{% if x < y < x %}{% endif %}",
    "{% if 'xxxxxxxxxy' in x %}{% endif %}",
    "{% if [x, 1] == [y, 1] %}{% endif %}",
    "{% set q = x[::-1] %}",
    "{% set q = x[1:] %}",
    "{% set n.v = n.v + [x[1:]] %}",
    "{% set n.v = n.v + words.split('.') %}",
    "{% set n.v = n.v + range(10000)|list %}",
    "{% set n.v = n.v + wide|list %}",
    "{% if x is lower %}{% endif %}",
    "{% if 'y' is in x %}{% endif %}",
    "{% if x is eq y %}{% endif %}",
    "{% set q = [" + "1," * 2_000 + "] %}",
    "{% set q = range(10000)|list %}",
    "{% set q = range(10000)|unique|list %}",
    "{% set q = x|list|sort %}",
    "{% set q = words|title %}",
    "{% set q = tags|striptags %}",
    "{% set q = wide|urlencode %}",
    "{% set q = x|trim(y) %}",
    "{% set q = x.strip(y) %}",
    "{% set q = x|replace('xxxxxxxxxxxxy', '') %}",
    "{% set q = {'a': 1, 'b': [1, 2, 3]} %}",
    "{% if loop.changed(x) %}{% endif %}",
    "{{ loop.cycle('a', 'b') }}",
    "{{ '%.99f' % 1e300 }}",
    "{{ m('') }}",
    "{{ wide }}",
    "{% set n.v = n.v|list + [1] %}",
    "",
]


@pytest.mark.parametrize("body", BODIES)
def test_loops_end(body: str) -> None:
    """A hundred million turns of whatever there is: refused with a sentence, soon, and in little memory."""
    template = (
        "{% macro m(v) %}{{ v }}{% endmacro %}{% set n = namespace(v=['']) %}"
        "{% for a in range(10000) %}{% for b in range(10000) %}" + body + "{% endfor %}{% endfor %}"
    )
    assert "does more than 4,000,000 characters of work" in within(template)


@pytest.mark.parametrize(
    "template",
    [
        "{% if '%999999999d' is odd %}{% endif %}",
        "{% if '%999999999d' is divisibleby 3 %}{% endif %}",
        "{% set n = namespace(v=x) %}{% for i in range(99) %}{% set n.v = n.v|forceescape %}{% endfor %}{{ n.v }}",
        "{% set q = hex|int(0, 16) %}{{ q - 1 }}",
        "{% for a in range(9999) %}{{ x[:2000]|e }}{% endfor %}",
    ],
)
def test_single_expressions_end(template: str) -> None:
    """What is dear at once is refused, too."""
    assert within(template)


def test_the_budget_is_the_messages(source: Callable[..., TemplateSource]) -> None:
    """Parts share it: many header fields are no way around."""
    half = "{% for i in range(9000) %}{{ x }}{% endfor %}"
    fields = {"x": "y" * 250}
    assert compile(source(text=half)).render(fields, "a@b.example", "c", "d")
    with pytest.raises(RenderRefused, match="characters of work"):
        compile(source(text=half, html=half)).render(fields, "a@b.example", "c", "d")


def test_header_fields_are_short(source: Callable[..., TemplateSource]) -> None:
    """Encoded words are made one character at a time."""
    made = compile(source(subject="{{ x }}", text="x"))
    with pytest.raises(RenderRefused, match="Subject: it has 10,001 characters; make it 10,000 or less"):
        made.render({"x": "é" * 10_001}, "a@b.example", "c", "d")


_PIECES = st.sampled_from(
    ["{{ x }}", "{{ words|title }}", "{{ wide|e }}", "{{ x|upper|lower }}", "{{ n.v|join(x[:9]) }}", "text ",
     "{{ n.v|length }}", "{{ words.split('.')|sort|join }}", "{{ x ~ y }}", "{{ loop.index if loop is defined }}",
     "{{ m(x[:99]) }}", "{{ 1 + 2 * 3 // 4 - 5 % 6 }}", "{{ tags|striptags|wordcount }}", "{{ '%05d' % 7 }}",
     "{% set n.v = n.v + [x[1:]] %}", "{% set n.t = n.t ~ x %}", "{{ n.t in x }}", "{{ n.v == [x, y] }}",
     "{% set n.v = [x, y]|unique|list %}", "{% set n.t = n.t|replace('x', 'xx') %}", "{{ n.t == y }}",
     "{{ x is lower or y is upper }}", "{{ [1, [2, (3, x)], {'a': y}]|length }}", "{{ hex|int(0, 16) }}",
     "{{ range(9999)|reverse|first }}", "{% set n.v = range(9)|list %}", "{{ n.v|min }}", "{{ x|urlencode }}",
     "{% set b %}{{ x }}{% endset %}", "{{ x|default(y)|truncate(99) }}", "{{ n.t.split('x')|length }}"]
)  # fmt: skip
_TEMPLATES = st.recursive(
    st.lists(_PIECES, min_size=1, max_size=6).map("".join),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["range(10000)", "x", "words.split('.')", "n.v", "[1, x, y]"]), inner).map(
            lambda made: "{% for l in " + made[0] + " %}" + made[1] + "{% endfor %}"
        ),
        inner.map(lambda made: "{% if x %}" + made + "{% endif %}"),
        st.tuples(inner, inner).map("".join),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=_TEMPLATES)
def test_whatever_it_is_made_of(body: str) -> None:
    """Loops in loops of all that the language has."""
    within("{% macro m(v) %}{{ v }}{{ v }}{% endmacro %}{% set n = namespace(v=[''], t=x) %}" + body)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"html": "{{ x }}" * 3_400}, "more than 10,000 Jinja2 tokens"),
        ({"text": "{% set a = [" + "1," * 100_000 + "] %}"}, "more than 10,000 Jinja2 tokens"),
        ({"text": "x" * (1024 * 1024 + 1)}, "1,048,577 characters; use 1,048,576 at most"),
        ({"subject": "x" * 10_001, "text": "x"}, "10,001 characters"),
        ({"text": "x", "headers": tuple((f"X-{n}", Text("a")) for n in range(101))}, "there are 101 headers"),
        ({"text": "{{ " + "9" * 5000 + " }}"}, "write a shorter number"),
        ({"html": "(cid:" * 20_000}, ""),
        ({"html": "'cid:a' " * 20_000}, "there is no inline image 'a'"),
        ({"html": "{{ a.b }}" * 1_500}, ".b is not allowed"),
        ({"html": '<img src="' + "x" * 200 + '">' + "<img " * 100_000}, "no recipient can see the image"),
        ({"html": "<p>" + " " * 200_000 + "x</p>"}, ""),
        ({"html": "<p title='" + " " * 200_000 + "'>x <img alt='" + " " * 200_000 + "'></p>"}, ""),
    ],
)
def test_looking_at_a_template_ends(source: Callable[..., TemplateSource], given: dict[str, object], said: str) -> None:
    """Too much of anything is said so; nothing takes time that grows with the square of its length."""
    began = time.process_time()
    if said:
        with pytest.raises(TemplateRefused, match=re.escape(said)):
            prepare(source(**given))
    else:
        prepare(source(**given))
    assert time.process_time() - began < 5 * CPU_S


@pytest.mark.parametrize(
    "file",
    [
        {"attachments": (File("a", "text/plain\n.\nMAIL FROM:<x@y.example>", b""),)},
        {"attachments": (File("a", "multipart/mixed", b""),)},
        {"images": (File("logo>\r\n.\r\nRCPT", "image/png", b""),)},
    ],
)
def test_names_and_kinds_of_files_end_no_line(source: Callable[..., TemplateSource], file: dict[str, object]) -> None:
    """They come from whoever puts a template, and stand in the header section of a part."""
    bad = source(text="x", **file)
    assert problems(bad)
    with pytest.raises(TemplateRefused, match=r"is not a media type|cannot name an inline image"):
        compile(bad)
