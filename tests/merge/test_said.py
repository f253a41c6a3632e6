"""Header fields of a template that are said to this server: heard, and in no message."""

from collections.abc import Callable

import pytest

from zonemta_py.merge.compile import compile, prepare
from zonemta_py.merge.problems import TemplateRefused
from zonemta_py.merge.schedule_fields import fixed, list_id, said
from zonemta_py.merge.source import TemplateSource, Text


def headers(**fields: str) -> tuple[tuple[str, Text], ...]:
    return tuple((name.replace("_", "-"), Text(value, "t", 3, 5)) for name, value in fields.items())


def test_they_are_heard_and_leave_with_no_message(source: Callable[..., TemplateSource]) -> None:
    """Whatever their case; the first of several speaks."""
    made = prepare(
        source(text="x", headers=headers(x_deliver_after="3600", X_Window="office", x_window="night", X_Mine="y"))
    )
    assert said(made) == {"X-Deliver-After": "3600", "X-Window": "office"}
    message = compile(made).render({}, "a@b.example", "c", "d").lower()
    assert b"x-mine: y" in message
    assert b"x-deliver" not in message
    assert b"x-window" not in message


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ({"X_Time_Zone": "{{ zone }}"}, "t:3:5: X-Time-Zone is the same for all recipients of a batch; write it"),
        ({"X_Campaign": "x"}, "t:3:5: X-Campaign is a setting of the campaign, not of its template; remove it, and"),
        ({"x_sending_zone": "x"}, "send with --zone"),
        ({"X_Priority_Level": "1"}, "send with --priority"),
        ({"X_Unsubscribe": "List"}, "t:3:5: X-Unsubscribe: list needs a List-Id that is the same for all recipients"),
        ({"X_Unsubscribe": "list", "List_Id": "<{{ a }}.example>"}, "X-Unsubscribe: list needs a List-Id"),
    ],
)
def test_what_cannot_be_heard_is_said(
    source: Callable[..., TemplateSource], field: dict[str, str], sentence: str
) -> None:
    """A template that says it is refused, with the remedy."""
    with pytest.raises(TemplateRefused) as refused:
        prepare(source(text="x", headers=headers(**field)))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [("Weekly\n <weekly.example>", "Weekly <weekly.example>"), ("<{{ a }}.example>", ""), ("{# no #}<a.example>", "")],
)
def test_of_which_list_it_is(source: Callable[..., TemplateSource], given: str, said: str) -> None:
    """Only where that is the same for all; the field is in every message."""
    made = prepare(source(text="x", headers=headers(List_ID=given, list_id="<other.example>")))
    assert list_id(made) == said
    assert list_id(prepare(source(text="x"))) == ""
    good = prepare(source(text="x", headers=headers(List_Id="<weekly.example>", X_Unsubscribe="list")))
    assert b"List-Id: <weekly.example>" in compile(good).render({}, "a@b.example", "c", "d")


@pytest.mark.parametrize("src", ["logo.png", "/home/ann/logo.png", "../x.gif", "C:"])
@pytest.mark.parametrize("element", ["<img alt='x' src='{}'>", '<p><IMG\n  SRC = "{}"/></p>'])
def test_an_image_that_only_the_writer_has_is_named(
    source: Callable[..., TemplateSource], element: str, src: str
) -> None:
    """A path on one's own disk shows nothing to a reader."""
    with pytest.raises(TemplateRefused, match="no recipient can see the image"):
        prepare(source(html=element.format(src + "x.png" if src == "C:" else src)))


@pytest.mark.parametrize(
    "src",
    ["https://x.example/a.png", "//x.example/a", "data:image/png;base64,AA", "{{ x }}/a.png", "http://x.example/y"],
)
def test_images_that_readers_can_have_are_good(source: Callable[..., TemplateSource], src: str) -> None:
    """By address, in the message, or made of fields."""
    prepare(source(html=f'<img src="{src}"><a name="src=\'x\'">y</a>'))


def test_what_zones_and_plugins_may_choose_by(source: Callable[..., TemplateSource]) -> None:
    """Fields that are the same for all, but for those that are in no message; as much of each as of any mail."""
    made = prepare(
        source(
            text="x", headers=headers(X_Kind="a\n b", x_kind="c", X_Own="{{ n }}", X_Window="office", X_Long="x" * 300)
        )
    )
    found = fixed(made)
    assert (found["x-kind"], found["x-long"]) == ("a b", "x" * 200)
    assert found.keys().isdisjoint({"x-own", "x-window"})
    assert found["from"]
