"""Which list mail is of, by its List-Id, and the list's name as scopes have it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.list_id import kept, list_name, list_of, list_scope, list_title
from zonemta_py.queue.suppression.entry import checked_scope

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
IDS = (
    st.text(st.characters(codec="utf-8", exclude_characters="<>"), min_size=1, max_size=90).map(str.strip).filter(bool)
)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("<weekly.shop.example>", "weekly.shop.example"),
        ("Weekly Deals <Weekly.Shop.Example>", "weekly.shop.example"),
        ('"All <of> them" < weekly.shop.example > (a comment)', "weekly.shop.example"),
        ("weekly.shop.example", "weekly.shop.example"),
        ("", ""),
        ("  ", ""),
        ("News <>", ""),
    ],
)
def test_whose_name_it_is(value: str, name: str) -> None:
    """What stands between the angle brackets, else all of it; case does not matter (RFC 2919 3)."""
    assert list_name(value) == name
    assert list_of({"subject": "x", "list-id": value}) == name
    assert list_of({"subject": "x"}) == list_of({}) == list_of(None) == ""


@pytest.mark.parametrize(
    ("value", "title"),
    [
        ('  "Weekly\n  Deals" <weekly.shop.example>', "Weekly Deals"),
        ('"The \\"best\\" deals" <weekly.shop.example>', 'The "best" deals'),
        ("<weekly.shop.example>", ""),
        ("weekly.shop.example", ""),
        ("\x00Deals <weekly.shop.example>", ""),
        ("", ""),
    ],
)
def test_what_people_call_it(value: str, title: str) -> None:
    """The phrase before the brackets, for pages: in one line, never with what could end a text of a link."""
    assert list_title(value) == title


@given(IDS, IDS)
def test_two_lists_never_become_one(one: str, other: str) -> None:
    """Whatever they are called, they can be written as a scope; and so can those of a tenant."""
    assert NAME.fullmatch(list_name(f"<{one}>"))
    assert (list_name(f"<{one}>") == list_name(f"News <{other}>")) == (one.lower() == other.lower())
    for tenant in ("", "Acme"):
        assert checked_scope(list_scope(list_name(one), tenant)) == list_scope(list_name(one), tenant)


@pytest.mark.parametrize("pair", [("a b.example", "a_b.example"), ("a" * 64, "a" * 65), ("-x", "x"), ("é", "è")])
def test_names_that_would_be_alike(pair: tuple[str, str]) -> None:
    """What is replaced or cut leaves a trace; the name can still be read."""
    first, second = map(list_name, pair)
    assert first != second
    assert re.fullmatch(r"(a_b\.example|a{54}|x|_|list)-[0-9a-f]{8}", first)


def test_a_long_phrase_does_not_hide_the_list() -> None:
    """Of a value that is longer than what is kept, the identifier stays."""
    names = {list_name(kept(f"{'Weekly deals ' * 20}<{name}.shop.example>")) for name in ("a", "b")}
    assert names == {"a.shop.example", "b.shop.example"}
    assert kept("News <a.shop.example>") == "News <a.shop.example>"
