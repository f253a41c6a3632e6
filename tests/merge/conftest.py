"""Templates made in a line, and messages parsed again by the standard library."""

import email
import email.policy
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any

import pytest

from zonemta_py.merge.compile import compile
from zonemta_py.merge.source import TemplateSource, Text

DATE = "Fri, 01 May 2026 08:00:00 +0000"


@pytest.fixture(scope="session")
def source() -> Callable[..., TemplateSource]:
    """source(text="…", html="…") → Source; strings become texts."""

    def make(**given: Any) -> TemplateSource:
        values = {"subject": "News", "sender": "News <news@example.com>"} | given
        texts = {name: Text(value, name) if isinstance(value, str) else value for name, value in values.items()}
        return TemplateSource("template", **texts)

    return make


@pytest.fixture(scope="session")
def parse() -> Callable[[bytes], EmailMessage]:
    return lambda message: email.message_from_bytes(message, policy=email.policy.default)  # type: ignore[return-value]


@pytest.fixture(scope="session")
def rendered(source: Callable[..., TemplateSource]) -> Callable[..., bytes]:
    """rendered({"name": "Ada"}, text="…") → message to ada@example.com."""

    def render(fields: dict[str, str], **given: Any) -> bytes:
        return compile(source(**given)).render(fields, "ada@example.com", "may", DATE)

    return render
