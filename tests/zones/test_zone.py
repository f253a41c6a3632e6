"""Destinations: what connections are counted by."""

import pytest

from zonemta_py.config import Zone
from zonemta_py.zones.zone import destination, named


def test_without_a_smart_host_the_domain_is_the_destination() -> None:
    """The key is the domain in lower case, without a final dot, and its MX records are to be looked up."""
    assert destination(Zone(name="z", port=26), "Example.COM.") == ("example.com", "", 26)


def test_a_smart_host_takes_everything() -> None:
    """All domains of the zone share one destination, and so its limits."""
    zone = Zone(name="z", host="relay.example.org", port=587)
    assert (
        destination(zone, "a.com") == destination(zone, "b.com") == ("relay.example.org:587", "relay.example.org", 587)
    )


@pytest.mark.parametrize(("host", "key"), [("::1", "[::1]:25"), ("192.0.2.1", "192.0.2.1:25"), ("mx", "mx:25")])
def test_addresses_of_version_6_get_brackets(host: str, key: str) -> None:
    """So that the port can be told from the address."""
    assert named(host, 25).key == key
