"""Orders to stop what there is not, or what nothing would be held by: refused, with what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from zonemta_py.mail.classify import NoRoute
from zonemta_py.queue.api import DEFERRED
from zonemta_py.zones.site import Site


class Directory:
    """Where the queue asks DNS: every domain but those of .invalid has a host of its own, gmail.com is Google's."""

    async def site(self, domain: str, now: float) -> Site:
        if domain.endswith(".invalid"):
            raise NoRoute(550, "5.1.2", f"domain {domain} does not exist")
        host = "mx.google.test" if domain == "gmail.com" else domain
        provider = "google" if domain == "gmail.com" else ""
        return Site(host, provider, ((host, ("127.0.0.1",)),), ((10, host),), 60, False)


async def stop(home: Any, kind: str, name: str) -> int:
    return int(await home.queue.ask("stop", kind=kind, name=name, cause="told to"))


async def refused(home: Any, kind: str, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        await stop(home, kind, name)
    assert await home.queue.ask("standing") == []


async def test_behind_a_smart_host(house: Any) -> None:
    """All mail goes to the smart host: it can be stopped by its name, and each domain by itself."""
    home = await house(zones=[{"name": "default", "host": "relay.test", "port": 2525}])
    await home.put("a@gmail.com")
    await refused(home, "destination", "gmailcom", r"there are relay\.test:2525, or give a recipient domain$")
    await refused(home, "domain", "*.gmail.com", r"'.*' is not a recipient domain such as example\.com$")
    await refused(home, "destination", "relay.test", r"its name is 'relay\.test:2525'")
    for kind in ("destination", "domain"):
        await refused(home, kind, "relay.test:587", "there is no destination|is not a recipient domain")
    assert await stop(home, "destination", "relay.test:2525") == 1
    assert await home.leases() == []


async def test_a_destination_by_the_name_in_records(house: Any) -> None:
    """Where a table keeps mail apart, `zonemta trace` and the journal have its name before the site's: an order by that
    name stops the site, and is not taken for one about nothing."""
    table = {"name": "slow", "domains": ["slow.test"], "connections_per_destination": 2}
    home = await house(zones=[{"name": "default", "host": "relay.test", "port": 2525}], destinations=[table])
    await home.put("a@slow.test")
    assert await stop(home, "destination", "slow>relay.test:2525") == 1
    assert [row["name"] for row in await home.queue.ask("standing")] == ["relay.test:2525"]
    assert await home.leases() == []


async def test_a_domain_that_does_not_exist(house: Any) -> None:
    """A slip of the pen is no order; a provider that nothing was sent to yet can be stopped."""
    home = await house(resolver=Directory())
    await home.put("a@gmail.com")
    [delivery] = await home.lease()
    await home.settle(delivery, DEFERRED, delay_s=100)
    await refused(home, "destination", "gogle.invalid", "there is no destination 'gogle.invalid'.* does not exist")
    await refused(home, "destination", "mx.gogle.test.invalid", "did you mean 'mx.google.test'")
    await stop(home, "destination", "gmail.com")
    assert [(row["kind"], row["name"]) for row in await home.queue.ask("standing")] == [("domain", "gmail.com")]
    for name in ("google", "microsoft", "mx.google.test", "elsewhere.example"):
        await stop(home, "destination", name)


@pytest.mark.parametrize("kind", ["tenant", "campaign"])
async def test_flows(kind: str, house: Any) -> None:
    """Of those that mail has come in for, in memory or not; after a crash too."""
    home = await house()
    await refused(home, kind, "spring", f"no mail of a {kind} 'spring' has come in$")
    await home.put("a@x.test", **{kind: "spring"})
    await refused(home, kind, "sprng", "did you mean 'spring'")
    await refused(home, kind, "autumn", "there are spring")
    [delivery] = await home.lease()
    await home.settle(delivery, DEFERRED, delay_s=1000)
    await home.rest()
    await home.crash()
    assert await stop(home, kind, "spring") == 0
    assert (await home.queue.ask("standing"))[0]["name"] == "spring"
