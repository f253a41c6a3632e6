"""The bundled plugin default_headers, loaded by a real host; its fields go through the real MTA in test_bundled_run."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Delivery
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError

ABOUT = {"user": "ann", "origin": "192.0.2.7"}
ENVELOPE = Envelope("ann@a.test", [], origin="192.0.2.7", origin_name="pc", user="ann")


def load(*fields: dict[str, Any], zones: tuple[str, ...] = ()) -> Host:
    options = {"default_headers": {"fields": list(fields)} if fields else {}}
    return Host.load(Plugins(enabled=["default_headers"], options=options), Configured(frozenset(zones)))


async def received(host: Host, section: bytes = b"Subject: x\r\n", envelope: Envelope = ENVELOPE) -> Headers:
    headers = Headers.parse(section)
    await host.call("message_headers", envelope=envelope, headers=headers)
    return headers


async def sent(host: Host, section: bytes = b"Subject: x\r\n", zone: str = "bulk", about: Any = None) -> Headers:
    headers = Headers.parse(section)
    delivery = Delivery(1, "m1", zone, "b.test", "ann@a.test", [Recipient("bob@b.test")], 100, 1, about=about or ABOUT)
    await host.call("sender_headers", delivery=delivery, headers=headers)
    return headers


async def test_the_client_is_named_unless_told_otherwise() -> None:
    """And nobody can write the field instead of us."""
    headers = await sent(load(), b"X-Originating-IP: [127.0.0.1]\r\nSubject: x\r\n")
    assert headers.all("x-originating-ip") == ["[192.0.2.7]"]
    assert "x-originating-ip" not in await sent(load({"name": "X-A", "value": "b"}))


async def test_the_example_of_its_page() -> None:
    import plugins.default_headers as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    host = Host.load(Config.model_validate(document).plugins, Configured(frozenset(("default", "bulk"))))
    headers = await sent(host, b"X-Mailer: y\r\nSubject: x\r\n")
    assert headers.build() == b"Subject: x\r\nX-Originating-IP: [192.0.2.7]\r\nX-Sent-For: ann@a.test by bulk\r\n"
    assert "X-Sent-For" not in await sent(host, zone="default")


@pytest.mark.parametrize(
    ("action", "there", "then"),
    [
        ("replace", ["1", "2"], ["new"]),
        ("replace", [], ["new"]),
        ("missing", ["1"], ["1"]),
        ("missing", [], ["new"]),
        ("add", ["1"], ["1", "new"]),
        ("remove", ["1", "2"], []),
    ],
)
async def test_actions(action: str, there: list[str], then: list[str]) -> None:
    value = {} if action == "remove" else {"value": "new"}
    section = b"".join(f"X-A: {one}\r\n".encode() for one in there) + b"Subject: x\r\n"
    assert (await sent(load({"name": "X-A", "action": action} | value), section)).all("x-a") == then


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"users": ["an?"]}, True),
        ({"users": ["[a]nn"]}, False),
        ({"users": ["bob"]}, False),
        ({"users": ["*"], "senders": ["*.test"]}, True),
        ({"users": ["*"], "senders": ["b.test"]}, False),
        ({"users": ["*"], "zones": ["bu*"]}, True),
        ({"users": ["*"], "zones": ["default"]}, False),
    ],
)
async def test_conditions(condition: dict[str, Any], holds: bool) -> None:
    """The same at reception, for what is known only there."""
    headers = await sent(load({"name": "X-A", "value": "{user}"} | condition))
    assert headers.all("x-a") == (["ann"] if holds else [])
    if "zones" not in condition:
        headers = await received(load({"name": "X-A", "value": "{user} {helo}"} | condition))
        assert headers.all("x-a") == (["ann pc"] if holds else [])


async def test_what_is_not_known_is_not_written() -> None:
    """A field of mail without login, which a client has forged, is taken out all the same."""
    forged, nobody = (
        b"X-User: admin\r\nSubject: x\r\n",
        Envelope("ann@a.test", [], origin="192.0.2.7", origin_name="pc"),
    )
    host = load({"name": "X-User", "value": "{user}"})
    assert (await sent(host, forged, about={"origin": "192.0.2.7"})).all("x-user") == []
    host = load({"name": "X-User", "value": "{user} {helo}"})
    assert (await received(host, forged, nobody)).all("x-user") == []


async def test_no_value_breaks_the_header_section() -> None:
    """HELO is the client's to choose."""
    host = load({"name": "X-Helo", "value": "{helo}"})
    headers = await received(host, envelope=Envelope("", [], origin_name="a\r\nBcc: eve@e.test"))
    assert headers.build() == b"Subject: x\r\nX-Helo: a Bcc: eve@e.test\r\n"
    headers = await received(host, envelope=Envelope("", [], origin_name="müller"))
    assert headers.build().isascii()
    assert headers.decoded("x-helo") == "müller"


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ({"name": "X A", "value": "b"}, "is not the name of a header field"),
        ({"name": "X-A", "value": "{what}"}, "{what} is not known; there are helo, id"),
        ({"name": "X-A", "value": "{origin.x}"}, "is not known"),
        ({"name": "X-A", "value": "{"}, "for a brace"),
        ({"name": "X-A", "value": "a\nb"}, "line end"),
        ({"name": "X-A"}, "give X-A a value"),
        ({"name": "X-A", "value": "b", "action": "remove"}, "has no value"),
        ({"name": "X-A", "value": "{helo} {zone}"}, "needs helo of reception and zone of sending; make two fields"),
        ({"name": "X-A", "value": "b", "zones": ["bluk"]}, "there is no zone 'bluk'; there are bulk, default"),
    ],
)
def test_mistakes(field: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(field, zones=("default", "bulk"))
    assert sentence in str(caught.value)
