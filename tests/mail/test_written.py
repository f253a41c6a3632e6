"""Addresses with what people and spreadsheets write around them."""

import time

import pytest

from zonemta_py.mail.addresses.written import bare


@pytest.mark.parametrize(
    "text",
    [
        "a@b.net", " a@b.net\u00a0", "\ufeffa@b.net", "<a@b.net>", "Ann <a@b.net>", '"Ann" <a@b.net>', "Ann<a@b.net>",
        '"M., Ann" <a@b.net>', "M., Ann < a@b.net >", '"Ann <old> \\"x\\"" <a@b.net>', "a@b.net <a@b.net>",
        "'a@b.net' <a@b.net>", '"a@b.net" <A@B.net>', "mailto:a@b.net", "MAILTO:a%40b.net?subject=x%0A",
        "Ann <mailto:a@b.net>", '"c@d.net" <a@b.net>',
    ],
)  # fmt: skip
def test_the_address_alone(text: str) -> None:
    """Names, brackets and links are taken off."""
    assert bare(text).lower() == "a@b.net"


@pytest.mark.parametrize(
    "text",
    ["a@b.net, c@d.net", "Ann <a@b.net>, Bob <c@d.net>", "c@d.net <a@b.net>", "a@b.net <x>", "<a@b.net", "a@b.net>",
     '"x" <a@b.net', "<<a@b.net>>", "a@b.net; c@d.net", "mailtoa@b.net", '"<"@b.net', ""],
)  # fmt: skip
def test_what_may_mean_somebody_else_stays_as_it_is(text: str) -> None:
    """Nothing is guessed; the parser refuses it with its own reason."""
    assert bare(text) == text


def test_no_text_takes_long() -> None:
    """Quotes, brackets and backslashes in any number."""
    start = time.process_time()
    for piece in ('"', "<", "\\", '"\\', '""', '"a" <', "a@"):
        bare(piece * 5_000 + "x")
        bare((piece * 5_000)[:1_999] + "x")
    assert time.process_time() - start < 5
