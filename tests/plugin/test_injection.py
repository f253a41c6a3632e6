"""`api.inject`: what can never be right is said where it is called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Any

import pytest

from zonemta_py.mail.envelope import Recipient
from zonemta_py.plugin import InjectionRefused, PluginApi, Reply, StoredMessage
from zonemta_py.plugin.injection import Injection


class Taken:
    """What the process would be handed."""

    def __init__(self) -> None:
        self.wanted: list[Injection] = []

    async def __call__(self, wanted: Injection) -> StoredMessage:
        self.wanted.append(wanted)
        return StoredMessage("1")


@pytest.fixture
def taken() -> Taken:
    return Taken()


@pytest.fixture
def api(taken: Taken) -> PluginApi:
    made = PluginApi("news")
    made.provide(injects=taken)
    return made


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"recipients": "ann@x.test"}, "recipients must be a list of addresses, not str"),
        ({"recipients": []}, "a message needs recipients; give at least one address"),
        ({"recipients": ["ann"]}, "'ann' is not an email address; write name@domain"),
        ({"recipients": [7]}, "an address must be a text, not int"),
        ({"recipients": ["a@b.test\r\nDATA"]}, "is not an email address; write name@domain"),
        ({"sender": "ann"}, "'ann' is not an email address"),
        ({"sender": None}, "sender must be a text, not NoneType"),
        ({"message": None}, "a message must be bytes, str, EmailMessage or an async iterator, not NoneType"),
        ({"key": "k" * 201}, "is not a text of up to 200 letters"),
        ({"key": "a\nb"}, "is not a text of up to 200 letters"),
        ({"priority": 10}, "priority 10 is not a whole number from -9 to 9"),
        ({"priority": True}, "priority True is not a whole number"),
        ({"campaign": "a b"}, "campaign 'a b' is not a name"),
        ({"tenant": 3}, "tenant must be a text, not int"),
        ({"zone": b"bulk"}, "zone must be a text, not bytes"),
        ({"hold_until": "tomorrow"}, "hold_until must be UNIX seconds or a datetime, not 'tomorrow'"),
        ({"hold_until": datetime(2040, 1, 1)}, "hold_until has no time zone"),
        ({"hold_until": float("nan")}, "hold_until must be UNIX seconds"),
        ({"notes": {"a": object()}}, "notes must be a dict that JSON knows, of up to 8,192 bytes"),
        ({"notes": {"a": "x" * 9000}}, "notes must be a dict that JSON knows"),
    ],
)
async def test_what_can_never_be_right(api: PluginApi, taken: Taken, arguments: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"message": b"Subject: x\r\n\r\n", "recipients": ["ann@x.test"]} | arguments
    with pytest.raises((ValueError, TypeError)) as raised:
        await api.inject(**given)
    assert sentence in str(raised.value)
    assert not taken.wanted


async def _all(blocks: AsyncIterator[bytes]) -> bytes:
    return b"".join([block async for block in blocks])


async def test_what_is_handed_on(api: PluginApi, taken: Taken) -> None:
    mail = EmailMessage()
    mail["Subject"] = "hello"
    mail.set_content("Hi")
    notes = {"of": [1]}
    until = datetime.now(UTC) + timedelta(hours=1)
    people: list[str | Recipient] = ["ann@X.test", "ann@x.test", Recipient("bob@bücher.test")]
    await api.inject(mail, people, "me@src.test", "k", zone="bulk", notes=notes, hold_until=until)
    notes["of"].append(2)
    [wanted] = taken.wanted
    envelope = wanted.envelope
    assert [one.address for one in envelope.recipients] == ["ann@x.test", "bob@xn--bcher-kva.test"]
    assert (envelope.user, envelope.protocol, envelope.sending_zone) == ("plugin:news", "PLUGIN", "bulk")
    assert envelope.notes == {"of": [1]}
    assert envelope.hold_until_ms == int(until.timestamp() * 1000)
    assert (await _all(wanted.blocks)).startswith(b"Subject: hello\n")


async def test_an_iterator_of_something_else(api: PluginApi, taken: Taken) -> None:
    async def texts() -> AsyncIterator[Any]:
        yield "text"

    await api.inject(texts(), ["ann@x.test"])
    with pytest.raises(TypeError, match="the message's iterator gave str, not bytes"):
        await _all(taken.wanted[0].blocks)


async def test_without_a_queue() -> None:
    with pytest.raises(RuntimeError, match=r"there is no queue to hand in to; use api\.inject in a process of"):
        await PluginApi("news").inject(b"", ["ann@x.test"])


def test_a_refusal_says_whether_to_try_again() -> None:
    assert InjectionRefused(Reply(451, "4.3.0", "Later")).temporary
    assert not InjectionRefused(Reply(550, "5.7.1", "Never")).temporary
    assert str(InjectionRefused(Reply(550, "5.7.1", "Never"))) == "550 5.7.1 Never"
