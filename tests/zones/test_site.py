"""Sites, their keys and order, loops, and whose hosts they are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config import ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.zones.site import Providers, Site, order, shuffled, site_key, without_ourselves

HOSTS = st.sampled_from([f"mx{number}.example" for number in range(6)])
EXCHANGES = st.lists(st.tuples(st.integers(0, 50), HOSTS), max_size=8)
NAMED = {
    "google": "aspmx.l.google.com", "microsoft": "example-com.mail.protection.outlook.com",
    "yahoo": "mta5.am0.yahoodns.net", "apple": "mx01.mail.icloud.com", "comcast": "mx1h1.comcast.net",
    "att": "al-ip4-mx-vip1.prodigy.net", "cox": "cxr.mx.a.cloudfilter.net", "charter": "mx0.charter.net",
    "gmx": "mx00.gmx.net", "telekom": "mx00.t-online.de", "orange": "smtp-in.orange.fr", "free": "mx1.free.fr",
    "sfr": "smtp-in.sfr.fr", "laposte": "smtpz4.laposte.net", "libero": "smtp-in.libero.it", "mailru": "mxs.mail.ru",
    "yandex": "mx.yandex.ru", "qq": "mx3.qq.com", "netease": "163mx01.mxmail.netease.com", "naver": "mx1.naver.com",
    "zoho": "mx.zoho.eu", "proton": "mail.protonmail.ch", "fastmail": "in1-smtp.messagingengine.com",
    "seznam": "mx1.seznam.cz", "wp": "mx.wp.pl", "onet": "mx.poczta.onet.pl", "proofpoint": "mx0a-00.pphosted.com",
    "mimecast": "eu-smtp-inbound-1.mimecast.com", "barracuda": "d1.ess.barracudanetworks.com",
    "ironport": "mx1.hc1.iphmx.com", "messagelabs": "cluster1.eu.messagelabs.com",
    "trendmicro": "example.in.tmes.trendmicro.eu", "sophos": "mx-01-eu-west-1.prod.hydra.sophos.com",
    "ovh": "mx1.mail.ovh.net", "ionos": "mx00.ionos.de", "amazon": "inbound-smtp.us-east-1.amazonaws.com",
    "rackspace": "mx1.emailsrvr.com",
}  # fmt: skip


@settings(max_examples=60)
@given(EXCHANGES, st.randoms(use_true_random=False))
def test_key_is_of_the_set(exchanges: list[tuple[int, str]], chance: random.Random) -> None:
    """The order of records and the case of names do not matter; the key has no blank, no "/" and no "~"."""
    mixed = [(preference, host.upper() + ".") for preference, host in exchanges]
    chance.shuffle(mixed)
    key = site_key("a.example", exchanges)
    assert site_key("A.Example." if not exchanges else "b.example", mixed) == key
    assert not set(key) & set(" /~")


@settings(max_examples=60)
@given(EXCHANGES, EXCHANGES)
def test_other_sets_have_other_keys(one: list[tuple[int, str]], two: list[tuple[int, str]]) -> None:
    """Hosts and who is preferred to whom count; the numbers do not."""
    if one and two:
        assert (site_key("x", one) == site_key("x", two)) is (tiers(one) == tiers(two))


def tiers(exchanges: list[tuple[int, str]]) -> list[set[str]]:
    """Hosts that are equals, the most preferred first; each once."""
    found: list[set[str]] = []
    for number in sorted({number for number, _ in exchanges}):
        hosts = {host for preference, host in exchanges if preference == number}.difference(*found)
        found += [hosts] if hosts else []
    return found


def test_numbers_of_preference() -> None:
    """The same order under other numbers is the same site; equals that are not equals elsewhere are another."""
    one = [(10, "a1.test"), (20, "a2.test"), (20, "a3.test"), (30, "a4.test")]
    two = [(5, "a1.test"), (7, "a2.test"), (7, "a3.test"), (9, "a4.test")]
    other = [(5, "a1.test"), (7, "a2.test"), (8, "a3.test"), (9, "a4.test")]
    assert site_key("x", one) == site_key("y", two) != site_key("z", other)
    assert site_key("x", [*one, (40, "a1.test")]) == site_key("x", one)  # a second, worse place is never used


def test_keys_can_be_read() -> None:
    """One host: that host. Several: the most preferred one and a hash. None: the domain. Literals as they are."""
    assert site_key("d.example", [(10, "mx.example.")]) == site_key("e.example", [(5, "MX.example")]) == "mx.example"
    assert site_key("d.example", [(20, "b.example"), (10, "c.example")]).startswith("c.example+")
    assert site_key("D.example.", []) == "d.example"
    assert site_key("[2001:db8::1]", []) == "[2001:db8::1]"
    assert site_key("x", [(1, "a b/c~d.example")]) == "a=20b=2fc=7ed.example"


def site(*mx: tuple[int, str]) -> Site:
    hosts = tuple((host, ("2001:db8::1", "192.0.2.1", "192.0.2.2")) for _, host in mx)
    return Site("key", "", hosts, mx, 60, False)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), HOSTS), unique_by=lambda one: one[1]), st.integers())
def test_order_keeps_preferences(mx: list[tuple[int, str]], seed: int) -> None:
    """Lower preferences first, every host once, IPv4 before IPv6."""
    preference = {host: number for number, host in mx}
    ordered = order(site(*mx), random.Random(seed))
    assert [preference[host] for host, _ in ordered] == sorted(preference.values())
    assert {host for host, _ in ordered} == set(preference)
    assert all(addresses[2] == "2001:db8::1" for _, addresses in ordered)


def test_equals_share() -> None:
    """Hosts of one preference, and the addresses of a host, each come first about as often."""
    chance = random.Random(1)
    found = [order(site((10, "a"), (10, "b"), (20, "c")), chance) for _ in range(400)]
    assert 150 < sum(one[0][0] == "a" for one in found) < 250
    assert 150 < sum(one[0][1][0] == "192.0.2.1" for one in found) < 250
    assert shuffled(["::1", "192.0.2.1"], chance) == ["192.0.2.1", "::1"]


def test_loops_end() -> None:
    """We, our equals and those less preferred go (RFC 5321 5.1); without us nothing does."""
    mx = ((10, "a"), (20, "us"), (20, "b"), (30, "c"), (40, "us2"))
    assert without_ourselves(mx, {"us", "us2"}) == ((10, "a"),)
    assert without_ourselves(mx, {"a"}) == ()
    assert without_ourselves(mx, {"elsewhere"}) == mx


@pytest.mark.parametrize(("provider", "host"), NAMED.items())
def test_shipped_groups(provider: str, host: str) -> None:
    """The provider is known by the host that its customers' MX records name."""
    assert Providers.load(shipped("providers.toml")).of([host], "customer.example") == provider


def test_hosts_before_domains() -> None:
    """The most preferred host that somebody has decides, else the domain; names that only look alike do not count."""
    providers = Providers({"google.com": "google", "eu.google.com": "eu", "p.net": "filter"}, {"gmail.com": "google"})
    assert providers.of(["mx.p.net", "aspmx.l.google.com"], "gmail.com") == "filter"
    assert providers.of(["own.example", "MX.Google.com."], "x.example") == "google"
    assert providers.of(["a.eu.google.com"], "x.example") == "eu"
    assert providers.of([], "gmail.com") == providers.of(["relay.example"], "sub.GMAIL.com") == "google"
    assert providers.of(["mxgoogle.com"], "notgmail.com") == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("providers = 1", "leave only those"),
        ("[other]", "leave only those"),
        ("[[providers]]", "has no valid name"),
        ('[[providers]]\nname = "A b"', "has no valid name"),
        ('[[providers]]\nname = "a"', "neither mx nor domains"),
        ('[[providers]]\nname = "a"\nmx = ["x.y"]\nhost = 1', "unknown key host"),
        ('[[providers]]\nname = "a"\nmx = "x.y"', "is not a list"),
        ('[[providers]]\nname = "a"\nmx = ["*.x.y"]', "is not a lower-case domain"),
        ('[[providers]]\nname = "a"\nmx = ["x.y"]\n[[providers]]\nname = "a"\nmx = ["z"]', "appears twice"),
        ('[[providers]]\nname = "a"\nmx = ["x.y"]\n[[providers]]\nname = "b"\nmx = ["x.y"]', "is a's already"),
        ("[[", "is not TOML"),
    ],
)
def test_mistakes_in_the_file(text: str, words: str, tmp_path: Path) -> None:
    """Each is one sentence that names the file, the place and the remedy."""
    path = tmp_path / "providers.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Providers.load(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there, or is no text, says so."""
    with pytest.raises(ConfigError, match="cannot be read"):
        Providers.load(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Providers.load(tmp_path / "binary")
