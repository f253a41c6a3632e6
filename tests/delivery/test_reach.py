"""Where strangers may not send us, and who we are."""

from __future__ import annotations

import pytest

from zonemta_py.config import Config, Listener, ServerSection
from zonemta_py.delivery.dns.reachability import LocalIdentity, refusal


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("0.0.0.0", "unspecified"), ("::", "unspecified"), ("127.0.0.1", "loopback"), ("127.255.1.1", "loopback"),
        ("::1", "loopback"), ("10.1.2.3", "private"), ("172.16.0.1", "private"), ("192.168.1.1", "private"),
        ("fd00::1", "private"), ("fec0::1", "private"), ("169.254.169.254", "link-local"), ("fe80::1", "link-local"),
        ("224.0.0.1", "multicast"), ("ff02::1", "multicast"), ("240.0.0.1", "private"), ("255.255.255.255", "private"),
        ("100.64.0.1", "shared"), ("192.0.2.1", "documentation"), ("2001:db8::1", "documentation"),
        ("::ffff:127.0.0.1", "loopback"), ("::ffff:10.0.0.1", "private"), ("64:ff9b::a00:1", "private"),
        ("64:ff9b::7f00:1", "loopback"), ("2002:7f00:1::1", "loopback"), ("2002:c0a8:101::1", "private"),
        ("0.1.2.3", "private"), ("localhost", "not an IP address"), ("010.0.0.1", "not an IP address"),
        ("fe80::1%eth0", "link-local"), ("4000::1", "reserved"),
        ("192.0.0.1", "protocols"), ("192.0.0.200", "protocols"), ("192.88.99.1", "protocols"),
        ("::ffff:192.0.0.9", "protocols"), ("64:ff9b:1::808:808", "protocols"), ("2001:4::1", "protocols"),
        ("3fff::1", "documentation"), ("5f00::1", "protocols"), ("/run/lmtp", "not an IP address"),
    ],
)  # fmt: skip
def test_refused_ranges(address: str, word: str) -> None:
    """Special ranges are refused, also where an IPv6 address only wraps an IPv4 one."""
    assert word in refusal(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808",
     "2002:808:808::1"],
)  # fmt: skip
def test_public_addresses(address: str) -> None:
    """Everything else is free, also as NAT64 and 6to4 write it."""
    assert refusal(address) == ""


def ourselves(*places: tuple[str, int]) -> LocalIdentity:
    listeners = [Listener(name=f"l{n}", address=address, port=port) for n, (address, port) in enumerate(places)]
    return LocalIdentity(Config(server=ServerSection(hostname="MX.Us.test"), listeners=listeners))


def test_our_name() -> None:
    """An exchanger with our own name is us, wherever DNS says it is."""
    us = ourselves(("127.0.0.1", 2525))
    assert us.is_host("mx.us.test", ("8.8.8.8",))
    assert not us.is_host("mx.them.test", ("127.0.0.1",))


def test_our_addresses() -> None:
    """A host at an address at which we listen on port 25 is us; other ports are not where mail for it would go."""
    us = ourselves(("127.0.0.9", 25), ("127.0.0.8", 2525))
    assert us.is_host("x.test", ("8.8.8.8", "127.0.0.9"))
    assert us.at("::ffff:127.0.0.9")
    assert not us.is_host("x.test", ("127.0.0.8",))
    assert us.at("127.0.0.8", 2525)


def test_listening_everywhere() -> None:
    """0.0.0.0 means each address of this machine, and :: those of both families."""
    assert ourselves(("0.0.0.0", 25)).at("127.0.0.1")
    assert not ourselves(("0.0.0.0", 25)).at("192.0.2.77")
    assert ourselves(("::", 25)).at("127.0.0.1")
    assert not ourselves(("::", 25)).at("2001:db8::77")


def test_barred() -> None:
    """Ranges and our own listeners, in words."""
    us = ourselves(("127.0.0.9", 25))
    assert us.barred("127.0.0.9", 25) == "a loopback address"
    assert us.barred("8.8.8.8", 25) == ""
