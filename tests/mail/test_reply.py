"""Replies: code, enhanced code and text taken apart and put together."""

from __future__ import annotations

import pytest

from zonemta_py.mail.reply import Reply, decoded


@pytest.mark.parametrize(
    ("code", "lines", "reply"),
    [
        (250, ["2.0.0 ok"], Reply(250, "2.0.0", "ok")),
        (250, ["ok"], Reply(250, "", "ok")),
        (250, [""], Reply(250, "", "")),
        (550, ["5.1.1 no", "5.1.1 such user"], Reply(550, "5.1.1", "no such user")),
        (550, ["5.1.1"], Reply(550, "5.1.1", "")),
        (450, ["5.1.1 of another class"], Reply(450, "", "5.1.1 of another class")),
        (550, ["5.1.1234 too long"], Reply(550, "", "5.1.1234 too long")),
        (550, ["first", "5.7.1 later"], Reply(550, "5.7.1", "first later")),
    ],
)
def test_from_lines(code: int, lines: list[str], reply: Reply) -> None:
    """The enhanced code counts where it begins a line and its class is the code's (RFC 2034 4)."""
    assert Reply.from_lines(code, lines) == reply


def test_text() -> None:
    """What is empty leaves no gap."""
    assert str(Reply(550, "5.1.1", "no")) == "550 5.1.1 no"
    assert str(Reply(250)) == "250"


@pytest.mark.parametrize(
    ("code", "positive", "permanent"),
    [(250, True, False), (354, True, False), (450, False, False), (550, False, True), (199, False, False)],
)
def test_classes(code: int, positive: bool, permanent: bool) -> None:
    """2xx and 3xx are positive, 5xx permanent, everything else neither."""
    assert (Reply(code).positive, Reply(code).permanent) == (positive, permanent)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Boîte pleine".encode(), "Boîte pleine"),
        ("Boîte pleine".encode("latin-1"), "Boîte pleine"),
        ("ящик полон".encode("koi8-r"), "ящик полон".encode("koi8-r").decode("latin-1")),
        ("Почтовый ящик переполнен".encode()[:-1], "Почтовый ящик переполне\ufffd"),
    ],
)
def test_letters_in_any_charset_are_kept(line: bytes, text: str) -> None:
    """UTF-8, also cut off; else a letter for each byte, so that the charset can still be found."""
    assert decoded(line) == text
