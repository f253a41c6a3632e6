"""AUTH: what a client answers becomes a user name and a password, or a refusal."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.authentication import Unusable, credentials


def answers(*lines: bytes) -> tuple[list[bytes], Callable[[bytes], Coroutine[Any, Any, bytes]]]:
    """A client that gives these lines; and the challenges that it gets."""
    asked, given = list[bytes](), iter(lines)

    async def ask(challenge: bytes) -> bytes:
        asked.append(challenge)
        return next(given)

    return asked, ask


async def test_plain_is_asked_for_what_the_command_did_not_bring() -> None:
    asked, ask = answers(b64encode(b"\0ann\0secret") + b"\r")
    assert await credentials(ask, "PLAIN") == (b"ann", b"secret")
    assert asked == [b""]


async def test_plain_with_an_initial_response_asks_nothing() -> None:
    asked, ask = answers()
    assert await credentials(ask, "PLAIN", b64encode(b"\0ann\0secret").decode()) == (b"ann", b"secret")
    assert asked == []


@pytest.mark.parametrize("initial", [None, b64encode(b"ann").decode()])
async def test_login_asks_for_name_and_password_in_the_words_that_clients_compare(initial: str | None) -> None:
    lines = [b64encode(b"secret")] if initial else [b64encode(b"ann"), b64encode(b"secret")]
    asked, ask = answers(*lines)
    assert await credentials(ask, "LOGIN", initial) == (b"ann", b"secret")
    assert asked == [b64encode(b"Username:"), b64encode(b"Password:")][-len(lines) :]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"*", replies.LOGIN_CANCELLED),
        (b"no base64!", replies.NOT_BASE64),
        (b64encode(b"ann and no NUL"), replies.NOT_PLAIN),
        (b64encode(b"a\0b\0c\0d"), replies.NOT_PLAIN),
    ],
)
async def test_what_contains_no_credentials_is_refused(line: bytes, reply: object) -> None:
    _, ask = answers(line)
    with pytest.raises(Unusable) as refused:
        await credentials(ask, "PLAIN")
    assert refused.value.reply == reply


async def test_an_initial_response_of_nothing_is_written_as_an_equals_sign() -> None:
    """RFC 4954 4."""
    _, ask = answers()
    with pytest.raises(Unusable) as refused:
        await credentials(ask, "PLAIN", "=")
    assert refused.value.reply == replies.NOT_PLAIN
