"""MTA-STS: its DNS record, its policy file, the hosts it names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.tls.mta_sts import MAX_AGE_MAX_S, Sts, parse, record_id

GOOD = "version: STSv1\r\nmode: enforce\r\nmx: mail.d.test\r\nmx: *.d.test\r\nmax_age: 86400\r\n"


@pytest.mark.parametrize(
    ("texts", "id"),
    [
        (["v=STSv1; id=20160831085700Z;"], "20160831085700Z"),
        (["v=STSv1;id=1"], "1"),
        (["v=spf1 -all", "v=STSv1 ; id=a1; new=thing"], "a1"),
        (["v=STSv1; id=1", "v=STSv1; id=2"], ""),
        (["v=STSv10; id=1"], ""),
        (["id=1; v=STSv1"], ""),
        (["v=STSv1; id=" + "a" * 33], ""),
        (["v=STSv1; id=a-b"], ""),
        (["v=STSv1"], ""),
        ([], ""),
    ],
)
def test_record(texts: list[str], id: str) -> None:
    """Exactly one record that begins with v=STSv1, with an id of 1 to 32 letters and digits (RFC 8461 3.1)."""
    assert record_id(texts) == id


def test_policy() -> None:
    """The file of RFC 8461 3.2: CRLF or LF, any number of mx."""
    expected = Sts("d.test", "1", "enforce", ("mail.d.test", "*.d.test"), 86400)
    assert parse("d.test", "1", GOOD) == parse("d.test", "1", GOOD.replace("\r\n", "\n")) == expected
    assert parse("d.test", "1", "\n".join(expected.lines())) == expected


def test_first_value_counts() -> None:
    """Of a field that is there twice the first one counts, unknown ones are ignored; max_age is at most a year."""
    text = GOOD.replace("max_age: 86400", "max_age: 99999999\nmode: none\nmax_age: 1\nfuture: yes")
    policy = parse("d.test", "1", text)
    assert (policy.mode, policy.max_age_s) == ("enforce", MAX_AGE_MAX_S)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("version: STSv1", "version: STSv2"),
        ("version: STSv1\r\n", ""),
        ("mode: enforce", "mode: strict"),
        ("max_age: 86400", "max_age: -1"),
        ("max_age: 86400", "max_age: ٣"),
        ("max_age: 86400\r\n", ""),
        ("mx: mail.d.test", "mx: *"),
        ("mx: mail.d.test", "mx: a.*.test"),
        ("mx: mail.d.test", "no colon"),
        ("mx: mail.d.test\r\nmx: *.d.test\r\n", ""),
    ],
)
def test_bad_policies(before: str, after: str) -> None:
    """A policy that does not say all it must is none."""
    with pytest.raises(ValueError, match="the policy"):
        parse("d.test", "1", GOOD.replace(before, after))


def test_mode_none_needs_no_mx() -> None:
    """A domain that leaves MTA-STS says mode: none, and need not name hosts (RFC 8461 3.2)."""
    assert parse("d.test", "1", "version: STSv1\nmode: none\nmax_age: 60\n").mode == "none"


@pytest.mark.parametrize(
    ("pattern", "host", "named"),
    [
        ("mx.d.test", "MX.D.Test.", True),
        ("*.d.test", "a.d.test", True),
        ("*.d.test", "a.b.d.test", False),
        ("*.d.test", "d.test", False),
        ("d.test", "a.d.test", False),
    ],
)
def test_names(pattern: str, host: str, named: bool) -> None:
    """* is one label, the leftmost (RFC 8461 4.1)."""
    assert Sts("d.test", "1", "enforce", (pattern,), 1).names(host) is named


@given(st.text(max_size=200))
@settings(max_examples=100)
def test_anything(text: str) -> None:
    """Whatever a host serves is a policy, or a ValueError."""
    record_id([text])
    with contextlib.suppress(ValueError):
        assert parse("d.test", "1", text).mode in ("enforce", "testing", "none")
