"""One spelling for each domain."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.addresses.domain import canonical


@pytest.mark.parametrize(
    ("domain", "spelt"),
    [
        ("Example.COM.", "example.com"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("_tls.bücher.example", "_tls.xn--bcher-kva.example"),
        ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("💩.example", "💩.example"),
        ("", ""),
    ],
)
def test_spellings(domain: str, spelt: str) -> None:
    """IDNA 2008: ß is a letter of its own, full-width dots are dots, underscores stay, an emoji is no domain."""
    assert canonical(domain) == spelt


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30))
def test_the_spelling_of_a_spelling_is_itself(domain: str) -> None:
    """Whatever the text, nothing breaks, and asking twice changes nothing."""
    once = canonical(domain)
    assert canonical(once) == once
