"""Everything wrong with a template is found before the first message, with its place and a remedy."""

from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.merge.compile import compile, prepare, problems
from zonemta_py.merge.problems import TemplateRefused
from zonemta_py.merge.source import TemplateSource, Text

COLUMNS = ["email", "first_name"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": "a\nb {{ x y }}"}, "text:2:8: expected token"),
        ({"text": "a\nb {{ x ? }}"}, "text:2:8: unexpected char '?'"),
        ({"text": "a\n{% endif %}"}, "text:2:4: encountered unknown tag 'endif'"),
        ({"text": "a\n{% if recipient %}"}, "unexpected end of template"),
        ({"text": "{{ firstname }}"}, "text:1:4: the list has no column 'firstname'; did you mean first_name?"),
        ({"text": "{%- if zip -%}x{% endif %}"}, "text:1:8: the list has no column 'zip'; it has email, first_name"),
        ({"text": "{{ email.__class__ }}"}, "text:1:9: .__class__ is not allowed"),
        ({"text": "{{ email['__class__'] }}"}, "names that begin with _ are not allowed"),
        ({"text": "{{ email.format(1) }}"}, "text:1:9: .format is not allowed"),
        ({"text": "{{ email.upper }}"}, ".upper is not allowed"),
        ({"text": "{{ email|uper }}"}, "text:1:10: there is no filter 'uper'; did you mean upper?"),
        ({"text": "{{ email is odd_one }}"}, "there is no test 'odd_one'"),
        ({"text": "{{ lipsum() }}"}, "there is no function lipsum()"),
        ({"text": "{{ [email][0]() }}"}, "only functions and methods with a name"),
        ({"text": "{% include 'x' %}"}, "text:1:4: include is not allowed"),
        ({"text": "{% for a in [1] recursive %}{% endfor %}"}, "recursive loops are not allowed"),
        ({"text": "{{ 2 ** 9 }}"}, "Pow is not allowed"),
        ({"html": "<p>\n<a href={{ email }}>"}, "html:2:9: {{ email }} is used in a tag outside quotes"),
        ({"html": "<b {% if email %}title='x'{% endif %}>"}, "html:1:4: {% if email %} is used in a tag"),
        ({"html": "<script>{{ email }}</script>"}, "html:1:9: a script cannot contain fields"),
        ({"html": "<style>p { color: {{ email }} }</style>"}, "html:1:19: a style sheet cannot depend on fields"),
        ({"html": "<p>x\n<img src='cid:logo'>"}, "html:2:15: there is no inline image 'logo'"),
        ({"mjml": "<mjml>\n<mj-body><mj-txt></mj-txt></mj-body></mjml>"}, "mjml:2:10: MJML has no <mj-txt>"),
        ({"mjml": "<mjml><mj-body>\n"}, "mjml:1:7: <mj-body> is never closed; write </mj-body>"),
        ({"mjml": "<mjml><mj-body></mjml></mj-body>"}, "</mjml> closes nothing here; close <mj-body> of line 1 first"),
        ({"mjml": "<mjml><mj-include path='/etc/passwd' /></mjml>"}, "replace <mj-include> by the text itself"),
        ({"mjml": "Hello"}, "mjml:1:1: the MJML does not compile"),
        ({"text": "x", "headers": (("X Y", Text("a", "h")),)}, "h:1:1: 'X Y' is not the name of a header field"),
        ({"text": "x", "headers": (("X:\r\nBcc", Text("a", "h")),)}, "is not the name of a header field"),
        ({"text": "x", "headers": (("bcc", Text("a", "h")),)}, "the header bcc is made from"),
        ({"text": "x", "sender": "nobody"}, "sender:1:1: From: 'nobody' is not an email address"),
        ({"text": "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}"}, "text:1:1: an expression is nested too deeply"),
        ({"text": "{% for a in 'x' %}" * 60 + "{% endfor %}" * 60}, "nested too deeply"),
        ({}, "template: there is neither text nor html nor mjml"),
    ],
)
def test_a_bad_template_is_refused(source: Callable[..., TemplateSource], given: dict[str, Any], said: str) -> None:
    """File, line, column, what is wrong; the remedy is behind a semicolon."""
    with pytest.raises(TemplateRefused) as refused:
        compile(prepare(source(**given), COLUMNS))
    assert any(str(problem).startswith(said) or said in str(problem) for problem in refused.value.problems)
    assert all("; " in problem.sentence for problem in refused.value.problems)


def test_all_problems_are_told_at_once(source: Callable[..., TemplateSource]) -> None:
    """In the order they stand; nobody mends one to find the next."""
    found = problems(source(subject="{{ a }}", text="{{ b }}\n{{ c }}"), ["x"])
    assert [(one.file, one.line) for one in sorted(found)] == [("subject", 1), ("text", 1), ("text", 2)]
    with pytest.raises(TemplateRefused, match="and 2 more"):
        prepare(source(subject="{{ a }}", text="{{ b }}\n{{ c }}"), ["x"])


def test_names_that_may_be_missing_are_no_problem(source: Callable[..., TemplateSource]) -> None:
    """Asked for with `is defined` or default; loop variables, macros and built-in names are no fields."""
    text = (
        "{{ a|default('') }}{% if b is defined %}{% endif %}{{ recipient }}{{ campaign }}"
        "{% for c in range(2) %}{{ c }}{{ loop.index }}{% endfor %}{% macro d(e) %}{{ e }}{% endmacro %}{{ d('x') }}"
    )
    assert problems(source(text=text), []) == []
    assert problems(source(text="{{ anything }}"), None) == []


def test_what_is_stored_is_what_was_prepared(source: Callable[..., TemplateSource]) -> None:
    """Prepared, packed, unpacked: the same messages; nothing of MJML or CSS is needed any more."""
    prepared = prepare(source(mjml="<mjml><mj-body><mj-raw><p>{{ x }}</p></mj-raw></mj-body></mjml>"))
    stored = TemplateSource.unpack(prepared.pack())
    assert stored == prepared
    assert stored.mjml is None
    made = [compile(one).render({"x": "y"}, "a@example.com", "may", "now") for one in (prepared, stored)]
    assert made[0] == made[1]


def test_a_source_of_another_version_is_refused(source: Callable[..., TemplateSource]) -> None:
    """Never read as something else."""
    packed = bytearray(source(text="x").pack())
    packed[3 if packed[0] == 0xDC else 1] = 99
    with pytest.raises(ValueError, match="version 99"):
        TemplateSource.unpack(bytes(packed))
