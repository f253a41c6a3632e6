"""`zonemta accounts` asks a real queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Noon
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Receipt


def test_what_is_used_is_shown(served: Callable[..., Any], told: Callable[..., Any]) -> None:
    """A row for each quota."""
    house = served(
        Noon(), accounts=[{"name": "shop", "messages": ["5/h", "1000/day"], "recipients": ["20/h"], "sessions": 7}]
    )
    recipients = [Recipient("a@x.test"), Recipient("b@x.test")]

    async def send(queue: Any) -> Receipt:
        return await queue.accept(Envelope("a@src.test", recipients, 5, account="shop"), b"hi\r\n\r\n")

    house.do(send)
    rows = json.loads(told("accounts", "--json").out)
    assert [(row["what"], row["quota"], row["used"], row["left"]) for row in rows] == [
        ("messages", "5/h", 1, 4), ("messages", "1000/day", 1, 999), ("recipients", "20/h", 2, 18),
        ("sessions", "7", 0, 7),
    ]  # fmt: skip
    assert "5/h" in told("accounts").out


def test_without_accounts_it_says_where_they_are_made(served: Callable[..., Any], told: Callable[..., Any]) -> None:
    served()
    assert "[[accounts]]" in told("accounts").out
