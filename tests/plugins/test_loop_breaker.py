"""The bundled plugin loop_breaker, loaded by a real host."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Reject, Routing
from zonemta_py.plugin.host import Host, PluginError


def load(**options: Any) -> Host:
    given = {"secret": "very secret"} | options
    return Host.load(Plugins(enabled=["loop_breaker"], options={"loop_breaker": given}))


def envelope(*recipients: str) -> Envelope:
    return Envelope("ann@a.test", [Recipient(one) for one in recipients or ("bob@b.test",)])


async def passed(host: Host, headers: Headers, of: Envelope | None = None) -> Headers:
    await host.call("message_headers", envelope=of or envelope(), headers=headers)
    return headers


async def test_the_example_of_its_page() -> None:
    import plugins.loop_breaker as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    host = Host.load(Config.model_validate(document).plugins)
    assert "X-Loop-Mark" in await passed(host, Headers.parse(b"Subject: x\r\n"))


async def test_a_message_that_comes_again_and_again() -> None:
    """Through whichever servers with the same secret; the same message from elsewhere is not in a loop."""
    headers = Headers.parse(b"Message-ID: <1@a.test>\r\n")
    for _ in range(3):
        await passed(load(), headers)
    with pytest.raises(Reject) as caught:
        await passed(load(), headers)
    assert str(caught.value.reply) == "554 5.4.6 The message is in a loop: it has been here 3 times"
    await passed(load(secret="quite another"), headers)


async def test_marks_of_another_message_prove_nothing() -> None:
    """Whoever copies a mark, or makes one up, stops nothing."""
    headers = await passed(load(passes=1), Headers.parse(b"Message-ID: <1@a.test>\r\n"))
    copied = [(name, value) for name, value in headers if name == "X-Loop-Mark"]
    other = Headers.parse(b"Message-ID: <2@a.test>\r\nX-Loop-Mark: \xc3\xa4\r\nX-Loop-Mark: 00\r\n")
    for name, value in copied:
        other.add(name, value)
    await passed(load(passes=1), other)
    with pytest.raises(Reject):
        await passed(load(passes=1), other)


async def test_received_fields() -> None:
    at_most = Headers.parse(b"Received: from a\r\n" * 5)
    await passed(load(received=5), at_most)
    with pytest.raises(Reject, match="6 Received fields"):
        await passed(load(received=5), Headers.parse(b"Received: from a\r\n" * 6))


async def test_who_has_had_it_is_named_in_delivered_to() -> None:
    """The only recipient: refused at once; one of several: that one bounces, and the others get it."""
    host, section = load(), b"Delivered-To: BOB@b.test\r\nDelivered-To: <eve@b.test>\r\n"
    with pytest.raises(Reject, match="its recipient"):
        await passed(host, Headers.parse(section))
    both = envelope("bob@b.test", "carl@b.test")
    await passed(host, Headers.parse(section), both)
    bob, carl = (Routing(one.address, "default", notes=one.notes) for one in both.recipients)
    await host.call("queue_route", envelope=both, routing=carl)
    with pytest.raises(Reject, match=r"5\.4\.6"):
        await host.call("queue_route", envelope=both, routing=bob)
    await passed(load(delivered_to=False), Headers.parse(section))


async def test_the_secret_is_needed_and_shown_nowhere() -> None:
    with pytest.raises(PluginError, match="option secret"):
        load(secret="short")
    with pytest.raises(PluginError) as caught:
        load(secret="tiny")
    assert "tiny" not in str(caught.value)
