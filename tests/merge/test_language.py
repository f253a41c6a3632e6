"""What templates can do is bounded: work, sizes, names."""

import quopri
from collections.abc import Callable

import pytest

from zonemta_py.merge.compile import compile
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.merge.source import TemplateSource


def text(made: bytes) -> str:
    return quopri.decodestring(made.partition(b"\r\n\r\n")[2]).decode().strip()


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("{{ a|upper ~ '-' ~ (b ~ a) }}", "X-yx"),
        ("{% for word in 'one two'.split() %}{{ loop.index }}{{ word }} {% endfor %}", "1one 2two"),
        ("{{ a * 2 if a is number else b|replace('y', 'z') }}", "z"),
        ("{% macro twice(v) %}{{ v }}{{ v }}{% endmacro %}{{ twice(a) }}", "xx"),
        (
            "{% set n = namespace(sum=0) %}{% for i in range(4) %}{% set n.sum = n.sum + i %}{% endfor %}{{ n.sum }}",
            "6",
        ),
        ("{{ '%.2f'|format('3.14159'|float) }} {{ '%s!' % a }}", "3.14 x!"),
        ("{{ missing|default('you') }}{% if nobody is defined %}!{% endif %}", "you"),
        ("{% for i in range(3) if i != 1 %}{{ i }}{% else %}none{% endfor %}", "02"),
        ("{% for k, v in [(a, 1), (b, 2)] %}{{ k }}{{ v }}{% endfor %}{{ {'k': a}['k'] }}", "x1y2x"),
        ("{{ 2.567|round(1) }} {{ ['b', 'a']|sort|join(',') }}", "2.6 a,b"),
    ],
)
def test_everyday_templates_work(rendered: Callable[..., bytes], template: str, result: str) -> None:
    """The language is Jinja2's."""
    assert text(rendered({"a": "x", "b": "y"}, text=template)) == result


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
        "{% for a in range(10000) %}{% for b in range(10000) if false %}{% endfor %}{% endfor %}",
        "{% for a in range(10000) %}{{ x }}{% endfor %}",
        "{% for a in range(10000) %}" + "lots of text " * 100 + "{% endfor %}",
        "{{ range(1000000)|join }}",
        "{{ 'a' * 1000000000 }}",
        "{% set n = namespace(v=x) %}{% for i in range(99) %}{% set n.v = n.v ~ n.v %}{% endfor %}",
        "{% set n = namespace(v=x) %}{% for i in range(99) %}{% set n.v = n.v + n.v %}{% endfor %}",
        "{% set n = namespace(v=9) %}{% for i in range(99) %}{% set n.v = n.v * n.v %}{% endfor %}",
        "{% set n = namespace(v=x) %}{% for i in range(99) %}{% set n.v = n.v|replace('x', 'xx') %}{% endfor %}",
        "{% set n = namespace(v=[]) %}{% for i in range(99) %}{% set n.v = [n.v, n.v] %}{% endfor %}{{ n.v }}",
        "{% set n = namespace(v=[1], w=[1]) %}{% for i in range(99) %}{% set n.v = [n.v, n.v] %}"
        "{% set n.w = [n.w, n.w] %}{% endfor %}{{ n.v == n.w }}",
        "{{ {'a': range(3)} == 1 }}",
        "{% macro m(v) %}{{ v }}{{ v }}{% endmacro %}" + "{{ " + "m(" * 40 + "x" + ")" * 40 + " }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ '%999999999s' % x }}",
        "{{ '%*d' % (99999999, 1) }}",
        "{{ x|round(999999999) }}",
    ],
)
def test_nothing_runs_long_or_fills_memory(rendered: Callable[..., bytes], template: str) -> None:
    """A refusal with a sentence, soon."""
    with pytest.raises(RenderRefused, match=r"^text: .*; correct the field or the template") as refused:
        rendered({"x": "x" * 1000}, text=template)
    assert "undefined" not in str(refused.value)


def test_a_render_does_not_use_up_the_next_ones_work(source: Callable[..., TemplateSource]) -> None:
    """The budget is each message's own."""
    made = compile(source(text="{% for i in range(9000) %}{{ x }}{% endfor %}"))
    first = made.render({"x": "y" * 300}, "a@example.com", "may", "now")
    assert made.render({"x": "y" * 300}, "a@example.com", "may", "now") == first
