"""What a reply means: temporary or permanent, and whether the destination rests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail import classify
from zonemta_py.mail.classify import CONNECTING, NoRoute, judge
from zonemta_py.mail.reply import Reply

STAGES = [
    "connect", "banner", "ehlo", "tls", "auth", "mail", "rcpt", "data", "body", "dot", "dns", "plugin",
    "proxy", "source",
]  # fmt: skip
REPLIES = st.builds(Reply, st.integers(0, 999), st.sampled_from(["", "4.2.2", "5.2.2", "5.5.3"]), st.just("x"))


@pytest.mark.parametrize(
    ("code", "enhanced", "stage", "permanent", "down"),
    [
        (450, "4.2.1", "rcpt", False, False),
        (550, "5.1.1", "rcpt", True, False),
        (554, "", "banner", False, True),
        (550, "", "ehlo", False, True),
        (535, "5.7.8", "auth", False, True),
        (421, "", "dot", False, True),
        (552, "", "rcpt", False, False),
        (552, "5.5.3", "rcpt", False, False),
        (552, "5.2.2", "rcpt", True, False),
        (552, "", "dot", True, False),
        (556, "5.1.10", "dns", True, False),
        (451, "4.4.3", "dns", False, True),
        (451, "4.4.1", "proxy", False, False),
        (451, "4.4.1", "source", False, False),
        (199, "", "mail", False, False),
        (700, "", "mail", False, False),
    ],
)
def test_the_table(code: int, enhanced: str, stage: str, permanent: bool, down: bool) -> None:
    """Each row is a line of the theory at the top of the file."""
    judgement = judge(Reply(code, enhanced, "x"), stage)
    assert (judgement.permanent, judgement.down) == (permanent, down)


@settings(max_examples=200)
@given(REPLIES, st.sampled_from(STAGES))
def test_unknown_means_temporary(reply: Reply, stage: str) -> None:
    """Only 5xx is ever permanent, never before MAIL; and the reply that is recorded agrees with the verdict."""
    judgement = judge(reply, stage)
    assert not judgement.permanent or reply.permanent
    assert not (judgement.permanent and stage in CONNECTING)
    assert judgement.reply.permanent is judgement.permanent
    assert not (judgement.permanent and judgement.down)


ERRORS = [
    classify.Unreachable, classify.ConnectionLost, classify.ReplyTimeout, classify.ReplyGarbled, classify.TlsFailed,
    classify.AuthFailed,
]  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("stage", STAGES)
def test_errors_of_our_own_are_temporary(kind: type[classify.DeliveryError], stage: str) -> None:
    """Whatever breaks between us and a server says nothing about the message."""
    error = kind(stage, "why")
    assert error.temporary
    assert error.reply.code == 451
    assert error.reply.enhanced.startswith("4.")
    assert error.reply.text.endswith("why")


def test_errors_read_well_and_inherit_the_standard_ones() -> None:
    """The sentence says what was awaited; callers may catch OSError."""
    error = classify.ConnectionLost("data")
    assert str(error) == "451 4.4.2 connection lost while waiting for the reply to DATA"
    assert isinstance(error, ConnectionError)
    assert isinstance(classify.ReplyTimeout("dot"), TimeoutError)
    assert not classify.NoRoute(550, "5.1.2", "x").temporary


OWN = [
    (NoRoute(550, "5.1.2", "domain quota-exceeded.test does not exist"), "host-unknown"),
    (NoRoute(556, "5.1.10", "domain spam.test takes no mail (null MX, RFC 7505)"), "host-unknown"),
    (NoRoute(550, "5.4.4", "no mail exchanger of ratelimit.test has an address"), "host-unknown"),
    (NoRoute(550, "5.1.2", "domain relay.test has neither MX nor address records"), "host-unknown"),
    (NoRoute(550, "5.4.4", "blacklist.test is at 10.0.0.1, a private address: mail is not sent there"), "host-unknown"),
    (NoRoute(451, "4.4.4", "blacklist.test is at 10.0.0.1, a private address: mail is not sent there"), "network"),
    (NoRoute(554, "5.4.6", "mail for virus.test would come back to this machine"), "network"),
    (NoRoute(451, "4.4.3", "DNS lookup of full.test (MX) failed: SERVFAIL"), "network"),
    (NoRoute(451, "4.4.4", "host ptr.test has no address; correct its name or its DNS records"), "network"),
    (classify.Unreachable("connect", "192.0.2.1: connection refused"), "network"),
    (classify.ConnectionLost("dot"), "network"),
    (classify.ReplyTimeout("connect", "192.0.2.1 through proxy quota"), "network"),
    (classify.ReplyGarbled("banner", "500 user unknown"), "protocol"),
    (classify.TlsFailed("tls", "certificate of spam.test is not trusted"), "tls"),
    (classify.AuthFailed("auth", "the server does not offer AUTH"), "relay-denied"),
    (classify.ProxyFailed("quota.test: hung up"), "network"),
    (classify.SourceUnusable("192.0.2.7 is not an address of this machine"), "network"),
]


@pytest.mark.parametrize(("error", "kind"), OWN)
def test_what_no_server_said_has_its_class_whatever_it_names(error: classify.DeliveryError, kind: str) -> None:
    """Also where only its text is left."""
    assert (error.reply_class, classify.own_class(error.reply)) == (kind, kind)


@pytest.mark.parametrize(
    "text", ["user unknown", "domain of sender does not exist", "connection lost patience with you"]
)
def test_what_a_server_said_has_none(text: str) -> None:
    reply = Reply(550, "5.1.1", text)
    assert (classify.ReplyRefused("rcpt", reply=reply).reply_class, classify.own_class(reply)) == ("", "")
