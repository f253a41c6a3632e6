"""What a plugin has chosen for some mail fails for that mail only: other mail goes by the same hosts in another way."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.delivery.conftest import KEYWORDS
from zonemta_py.queue.api import DEFERRED, DELIVERED

STEERS = """
async def sender_connecting(delivery, options):
    if delivery.sender == "steered@b.example":
        options.{change}
"""


def stages(results: list[Any]) -> list[tuple[int, str, Any, bool]]:
    return [(one.outcomes[0].verdict, one.outcomes[0].stage, one.down_s, one.chosen) for one in results]


async def test_a_login_of_one_sender_stops_nobody_else(scripted: Any, letter: Any, deliver: Any) -> None:
    """Passwords are not sent without TLS: that is said of this mail, asks nothing of the host, and rests nobody."""
    server = await scripted(keywords=(*KEYWORDS, "AUTH PLAIN"))
    own = letter(server.port, routing={"auth": ["eve", "secret"]})
    results = await deliver(own, letter(server.port), letter(server.port, routing={"auth": ["eve", "secret"]}))
    assert stages(results) == [
        (DEFERRED, "auth", None, True), (DELIVERED, "dot", None, False), (DEFERRED, "auth", None, True)
    ]  # fmt: skip
    assert results[2].outcomes[0].reply == results[0].outcomes[0].reply
    assert server.connections == 2, "a login that was refused rests, and is not tried with each message"


async def test_wrong_credentials_of_one_sender_rest_alone(
    scripted: Any, letter: Any, deliver: Any, tmp_path: Path
) -> None:
    """At a shared relay: the wrong ones are not tried again for a while, the right ones at once."""
    authority = trustme.CA()
    certificate, context = authority.issue_cert("127.0.0.1"), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    server = await scripted(keywords=(*KEYWORDS, "STARTTLS", "AUTH PLAIN"), tls=context)
    right = base64.b64encode(b"\0ann\0right").decode()
    server.auth = lambda given: b"235 2.7.0 ok\r\n" if given == right else b"535 5.7.8 wrong\r\n"

    def of(name: str, password: str) -> Any:
        return letter(server.port, routing={"auth": [name, password]})

    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    results = await deliver(
        of("eve", "wrong"), of("eve", "wrong"), of("ann", "right"), tls="opportunistic",
        sections={"tls": {"ca_file": tmp_path / "ca.pem"}},
    )  # fmt: skip
    assert stages(results) == [
        (DEFERRED, "auth", None, True), (DEFERRED, "auth", None, True), (DELIVERED, "dot", None, False)
    ]  # fmt: skip
    assert server.connections == 2


async def test_the_zones_own_login_rests_its_host(scripted: Any, letter: Any, deliver: Any) -> None:
    """All of its mail has it."""
    server = await scripted(keywords=(*KEYWORDS, "AUTH PLAIN"))
    [result] = await deliver(
        letter(server.port), smart_host="127.0.0.1", username="us", password="secret", tls="required"
    )
    assert (result.down_s, result.chosen) == (0, False)


@pytest.mark.parametrize("change", ["tls = 'required'", "source = '127.0.0.9'", "host = '127.0.0.77'", "port = 1"])
async def test_what_a_plugin_steers_says_nothing_of_the_host(
    scripted: Any, letter: Any, deliver: Any, plugin: Any, change: str
) -> None:
    """TLS, source, host and port of its own; the next message finds the host as it was."""
    server = await scripted({"banner": "4xx"} if "source" in change else {})
    own = letter(server.port)
    own.sender = "steered@b.example"
    [steered] = await deliver(own, host=plugin(STEERS.format(change=change)))
    assert (steered.outcomes[0].verdict, steered.down_s, steered.chosen) == (DEFERRED, None, True)


async def test_a_smart_host_rests_for_nobody_else(scripted: Any, letter: Any, deliver: Any) -> None:
    """It does no TLS, which one message demands (REQUIRETLS): the others still go by it first."""
    first, second = await scripted(), await scripted()
    listed = [f"127.0.0.1:{one.port}" for one in (first, second)]
    results = await deliver(
        letter(first.port, require_tls=True), letter(first.port), hosts=listed, messages_per_connection=1
    )
    assert results[0].outcomes[0].verdict != DELIVERED
    assert (len(first.bodies), len(second.bodies)) == (1, 0)


async def test_lmtp_for_some_mail_to_a_server_of_both(scripted: Any, letter: Any, deliver: Any) -> None:
    """One connection is not for both; what an SMTP server says to LHLO rests nobody else."""
    server = await scripted()
    letters = [letter(server.port), letter(server.port, routing={"protocol": "lmtp"}), letter(server.port)]
    results = await deliver(*letters)
    assert stages(results) == [
        (DELIVERED, "dot", None, False), (DEFERRED, "ehlo", None, True), (DELIVERED, "dot", None, False)
    ]  # fmt: skip
    assert server.connections == 2
    assert sum(line.startswith("LHLO") for line in server.commands) == 1


@pytest.mark.parametrize("given", [{"tls": "implicit"}, {"tls": "required"}])
async def test_tls_that_is_chosen_rests_nobody(scripted: Any, letter: Any, deliver: Any, given: Any) -> None:
    """A server that speaks none, or not from the first byte."""
    server = await scripted({"banner": b"220 no TLS here\r\n"})
    [result] = await deliver(letter(server.port, routing=given))
    assert (result.outcomes[0].verdict, result.down_s, result.chosen) == (DEFERRED, None, True)
