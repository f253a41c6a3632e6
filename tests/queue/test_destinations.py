"""[[destinations]]: settings for some domains, sites and providers, as the queue applies them."""

from collections import Counter
from typing import Any

import pytest

from tests.queue.flow import drain, put_all
from tests.queue.test_sites import Directory, site
from zonemta_py.config import Config, ConfigError
from zonemta_py.mail.classify import NoRoute
from zonemta_py.mail.envelope import Notify
from zonemta_py.processes import checks
from zonemta_py.queue.api import DEFERRED, Delivery
from zonemta_py.queue.reload.apply import prepare, take
from zonemta_py.zones.destinations import Destinations


def directory() -> Directory:
    resolver = Directory()
    resolver.answers = {"x.test": site("big", "giant"), "y.test": site("big", "giant"), "z.test": site("small")}
    return resolver


async def at_once(home: Any) -> list[Delivery]:
    """All that may go at the same time, once the destinations are known to be quick."""
    for delivery in await home.leases():
        await home.settle(delivery)
    return list(await home.leases())


async def retries(home: Any, address: str) -> float:
    """Minutes until the next try of a recipient that is deferred."""
    await home.put(address)
    [delivery] = await home.lease()
    await home.settle(delivery, DEFERRED)
    await home.rest()
    [row] = (await home.queue.ask("list", recipient=address))["rows"]
    return round((row["due_ms"] - home.clock.ms()) / 60_000, 1)


async def test_a_retry_schedule_of_its_own(house: Any) -> None:
    """By domain, by site and by provider; the domain's counts first, key by key."""
    home = await house(
        resolver=directory(), retry={"schedule_min": [5], "jitter": 0},
        destinations=[
            {"name": "x", "domains": ["x.test"], "schedule_min": [1]},
            {"name": "giant", "providers": ["giant"], "schedule_min": [2], "life_h": 1},
            {"name": "small", "sites": ["small"], "schedule_min": [3]},
        ],
    )  # fmt: skip
    assert [await retries(home, f"a@{domain}.test") for domain in "xyz"] == [1, 2, 3]
    await home.move(3601)
    for _ in range(3):
        [delivery] = await home.lease()
        await home.settle(delivery, DEFERRED)
    await home.rest()
    rows = (await home.queue.ask("list", recipient="*.test"))["rows"]
    assert [row["recipient"] for row in rows if row["state"] == "deferred"] == ["a@z.test"], "an hour was their life"


async def test_a_shorter_life_is_found_by_the_sweep(house: Any) -> None:
    """Also of mail that is never tried, because something holds it; other mail lives on."""
    home = await house(
        resolver=directory(), retry={"life_h": 10},
        destinations=[{"name": "x", "domains": ["x.test"], "life_h": 1}],
    )  # fmt: skip
    for domain in ("x.test", "z.test"):
        await home.put(f"a@{domain}", sender="")
    home.queue.core.schedule.policy.stop("zone", "default", 9000, "a rule")
    assert await home.idle()
    await home.move(3700)
    await home.queue.maintenance.sweep()
    await home.rest()
    assert (await home.sizes())["queued"] == 1


async def test_connections_of_its_own(house: Any) -> None:
    """A domain at a shared site that is set apart has its own; limits of the site count all of them."""
    home = await house(
        resolver=directory(),
        destinations=[{"name": "careful", "domains": ["x.test"], "connections_per_destination": 2}],
        throttles=[{"name": "s", "per": ["site"], "connections": 5}],
    )  # fmt: skip
    await put_all(home, 10, "x.test")
    await put_all(home, 10, "y.test")
    sent = await at_once(home)
    assert Counter(delivery.recipients[0].domain for delivery in sent) == {"x.test": 2, "y.test": 3}
    assert {(delivery.recipients[0].domain, tuple(delivery.tables)) for delivery in sent} == {
        ("x.test", ("careful",)), ("y.test", ())
    }  # fmt: skip
    assert {delivery.site for delivery in sent} == {"big"}
    rows = (await home.queue.ask("lanes"))["rows"]
    assert {(row["apart"], tuple(row["tables"])) for row in rows} == {("careful", ("careful",)), ("", ())}


async def test_settings_by_provider_hold_once_dns_has_answered(house: Any) -> None:
    """Connections, recipients per delivery and idle time of all its sites."""
    table = {"name": "giant", "providers": ["giant"]}
    settings = {"connections_per_destination": 3, "recipients_per_delivery": 2, "idle_s": 1}
    home = await house(resolver=directory(), destinations=[table | settings])
    for count in (2, 9):
        await home.put(*(f"r{number}@x.test" for number in range(count)))
        await home.put(*(f"r{number}@z.test" for number in range(count)))
    sent = await at_once(home)
    sizes = Counter((delivery.site, len(delivery.recipients), delivery.idle_s) for delivery in sent)
    assert sizes == {("big", 2, 1): 3, ("small", 9, 5): 1}


async def test_what_waits_is_recovered_with_its_settings(house: Any) -> None:
    """The names of parked keys say what is set apart; and mail that no table sets apart any more goes on."""
    tables = [{"name": "careful", "domains": ["x.test"], "connections_per_destination": 1}]
    home = await house(resolver=directory(), destinations=tables, queue={"window": 100})
    await put_all(home, 300, "x.test")
    await put_all(home, 4, "y.test")
    assert Counter(delivery.recipients[0].domain for delivery in await at_once(home)) == {"x.test": 1, "y.test": 3}
    await home.crash()
    assert Counter(delivery.recipients[0].domain for delivery in await at_once(home)) == {"x.test": 1, "y.test": 2}
    home.options["destinations"] = []
    await home.crash()
    assert Counter(delivery.recipients[0].domain for delivery in await drain(home)) == {"x.test": 298, "y.test": 2}
    await home.sound()


async def test_a_stop_of_the_domain_counts_before_its_table(house: Any) -> None:
    """It waits apart because it is stopped, and goes by its table again afterwards."""
    tables = [{"name": "careful", "domains": ["x.test"], "connections_per_destination": 1}]
    home = await house(resolver=directory(), destinations=tables)
    await put_all(home, 3, "x.test")
    await home.queue.ask("stop", kind="destination", name="x.test")
    assert await drain(home) == []
    await home.queue.ask("lift", kind="destination", name="x.test")
    sent = await drain(home)
    assert [delivery.tables for delivery in sent] == [["careful"]] * 3


async def test_smart_hosts_for_a_domain_need_no_dns(house: Any) -> None:
    """Also where DNS says that there is no such domain."""
    resolver = directory()
    resolver.answers["in.test"] = NoRoute(550, "5.1.2", "does not exist")
    home = await house(
        resolver=resolver,
        destinations=[{"name": "in", "domains": ["*.in.test", "in.test"], "hosts": ["10.0.0.1:2525", "10.0.0.2"]}],
    )
    await home.put("a@in.test", "b@sub.in.test")
    await home.put("a@z.test")
    sent = {delivery.recipients[0].domain: delivery for delivery in await drain(home)}
    relayed = sent["in.test"]
    assert (relayed.host, relayed.port, len(relayed.recipients), relayed.tables) == ("10.0.0.1", 2525, 2, ["in"])
    assert relayed.site.startswith("10.0.0.1:2525+")
    assert (sent["z.test"].host, sent["z.test"].site) == ("", "small")
    assert resolver.asked == ["z.test"]
    await home.crash()
    await home.sound()


async def test_smart_hosts_for_a_provider(house: Any) -> None:
    """Wherever DNS says that a domain's mail goes to that provider; with mx, one domain's recipients at a time."""
    home = await house(
        resolver=directory(), destinations=[{"name": "via", "providers": ["giant"], "hosts": ["10.0.0.1", "mx"]}]
    )
    await home.put("a@x.test", "b@y.test", "c@z.test")
    sent = await drain(home)
    assert sorted((delivery.recipients[0].domain, delivery.host, delivery.destination) for delivery in sent) == [
        ("x.test", "10.0.0.1", "x.test"), ("y.test", "10.0.0.1", "y.test"), ("z.test", "", "z.test"),
    ]  # fmt: skip


async def test_a_zone_with_smart_hosts_is_one_destination(house: Any) -> None:
    """Its connections count together, and it can be suspended by the name that `lanes` shows."""
    zone = {"name": "default", "hosts": ["10.0.0.1:2525", "10.0.0.2"], "connections_per_destination": 3}
    home = await house(zones=[zone])
    await put_all(home, 5, "x.test")
    await put_all(home, 5, "y.test")
    sent = await home.leases()
    assert (len(sent), {delivery.port for delivery in sent}) == (3, {2525})
    [row] = (await home.queue.ask("lanes"))["rows"]
    await home.queue.ask("stop", kind="destination", name=row["site"])
    for delivery in sent:
        await home.settle(delivery)
    assert await home.leases() == []


async def test_source_addresses_for_a_destination(house: Any) -> None:
    """Its own pool instead of the zone's."""
    addresses = {"a": "127.0.0.2", "b": "127.0.0.3"}
    pools = [{"name": name, "sources": [{"address": address}]} for name, address in addresses.items()]
    home = await house(
        resolver=directory(), pools=pools, zones=[{"name": "default", "pool": "a"}],
        destinations=[{"name": "giant", "providers": ["giant"], "pool": "b"}],
    )  # fmt: skip
    for domain in ("x.test", "z.test"):
        await home.put(f"a@{domain}")
    sent = {delivery.recipients[0].domain: delivery.source for delivery in await drain(home)}
    assert sent == {"x.test": "127.0.0.3", "z.test": "127.0.0.2"}


def test_the_most_exact_rule_counts() -> None:
    """Exact before *.suffix before *, whatever the order in the file; one that names the zone before one for all."""
    rules = {"all": ["*"], "sub": ["*.x.test"], "exact": ["a.x.test"], "zoned": ["b.test"], "any": ["b.test"]}
    tables: list[dict[str, Any]] = [{"name": name, "domains": rule, "life_h": 1} for name, rule in rules.items()]
    tables[3]["zones"] = ["bulk"]
    for order in (tables, tables[::-1]):
        config = Config.model_validate({"zones": [{"name": "default"}, {"name": "bulk"}], "destinations": order})
        found, (default, bulk) = Destinations(config), config.zones
        for zone, domain, name in (
            (default, "a.x.test", "exact"), (default, "b.x.test", "sub"), (default, "x.test", "all"),
            (default, "b.test", "any"), (bulk, "b.test", "zoned"), (bulk, "A.x.TEST", "exact"),
        ):  # fmt: skip
            assert found.of(zone, domain, "", "").terms.names == (name,)


def test_each_key_comes_from_the_nearest_table_that_has_it() -> None:
    """Domain, then site, then provider, then the zone and [retry]."""
    tables = [
        {"name": "d", "domains": ["x.test"], "life_h": 1},
        {"name": "s", "sites": ["*.big.test"], "life_h": 2, "idle_s": 2},
        {"name": "p", "providers": ["giant"], "life_h": 3, "idle_s": 3, "tls": "required"},
    ]
    config = Config.model_validate({"destinations": tables})
    terms = Destinations(config).of(config.zones[0], "x.test", "mx.big.test+12345678", "giant").terms
    assert terms.names == ("d", "s", "p")
    assert (terms.retry.life_h, terms.zone.idle_s, terms.zone.tls) == (1, 2, "required")
    assert (terms.zone.connections_per_destination, terms.retry.delay_notice_h) == (20, 4)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"destinations": [{"name": "a", "providers": ["gogle"], "life_h": 1}]}, "did you mean 'google'"),
        (
            {"throttles": [{"name": "t", "only": {"provider": "yaho"}, "messages": "1/s"}]},
            r"throttles\[t\].only.provider: .*'yahoo'",
        ),
        (
            {"destinations": [{"name": "a", "providers": ["google", "zzzz"], "life_h": 1}]},
            "'zzzz'; use one of .*google",
        ),
    ],
)
def test_a_provider_that_nobody_knows_is_refused(sections: dict[str, Any], said: str) -> None:
    """It would be for no mail, in silence. The file of the configuration counts."""
    with pytest.raises(ConfigError, match=said):
        checks.check_others(Config.model_validate(sections))
    good = {"name": "t", "only": {"provider": "goo*"}, "messages": "1/s"}
    checks.check_others(Config.model_validate({"throttles": [good]}))


async def test_rests_of_its_own(house: Any) -> None:
    """A domain's too, which is kept apart for that: others at the same site rest as ever."""
    home = await house(
        resolver=directory(), retry={"down_s": 100},
        destinations=[{"name": "x", "domains": ["x.test"], "down_s": 5, "down_max_s": 7}],
    )  # fmt: skip
    for domain in ("x.test", "y.test"):
        await home.put(f"a@{domain}")
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED, down_s=0)
    rows = {row["name"]: row for row in await home.queue.ask("standing") if row["kind"] == "resting"}
    rests = {name.split()[1]: round((row["until_ms"] - home.clock.ms()) / 1000) for name, row in rows.items()}
    assert rests == {"x>big": 5, "big": 100}


def test_the_name_and_the_private_networks_of_a_destination() -> None:
    """They take the place of the zone's."""
    table = {"name": "a", "domains": ["x.test"], "hostname": "out.test", "allow_private": True}
    config = Config.model_validate({"destinations": [table]})
    found = Destinations(config).of(config.zones[0], "x.test", "", "")
    assert (found.terms.zone.hostname, found.terms.zone.allow_private, found.apart) == ("out.test", True, "a")


@pytest.mark.parametrize(
    ("table", "told"), [({"providers": ["giant"]}, 1), ({"sites": ["big"]}, 1), ({"sites": ["b"]}, 0)]
)
async def test_a_delay_is_told_after_a_crash_as_before_it(house: Any, table: dict[str, Any], told: int) -> None:
    """By the table of the site or provider, too, if the result was stable and the notice was not."""
    home = await house(resolver=directory(), destinations=[{"name": "t", "delay_notice_h": 1, **table}])
    await home.put("a@x.test", sender="s@src.test", notify=Notify.DELAY)
    await home.move(3700)
    [delivery] = await home.lease()
    home.queue.settling.apply = lambda settlement: None
    await home.settle(delivery, DEFERRED)
    await home.crash()
    rows = (await home.queue.ask("list", all=True))["rows"]
    assert sum(row["recipient"] == "s@src.test" for row in rows) == told


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"name": "a", "life_h": 1}, "is for nothing; give it domains, sites or providers"),
        ({"name": "a", "domains": ["x.test"]}, "sets nothing; give it a setting"),
        ({"name": "a", "domains": ["x.test"], "life_h": 1, "zones": ["no"]}, "there is no zone 'no'"),
        ({"name": "a", "domains": ["X.test."], "life_h": 1}, "both claim domains 'x.test'"),
        ({"name": "a", "sites": ["x"], "pool": "no"}, "there is no pool 'no'"),
        ({"name": "a", "sites": ["x"], "hosts": ["mx"]}, '"mx" can only be the last of several'),
        ({"name": "a", "sites": ["x"], "hosts": ["b:25", "b"]}, "b port 25 is there twice"),
        ({"name": "a", "sites": ["x"], "hosts": [{"host": "b", "username": "u"}]}, "needs tls = 'required'"),
    ],
)
def test_tables_that_make_no_sense(table: dict[str, Any], said: str) -> None:
    """One sentence, with the remedy."""
    others = [{"name": "other", "domains": ["x.test"], "life_h": 2}] if "X.test." in table.get("domains", ()) else []
    with pytest.raises(ValueError, match=said):
        Config.model_validate({"destinations": [*others, table]})


async def test_a_reload_takes_other_tables(house: Any) -> None:
    """What waits goes by them at once: set apart, by other smart hosts, or as if there were none."""
    home = await house(resolver=directory())
    await put_all(home, 6, "x.test")
    for tables, seen in (
        ([{"name": "a", "domains": ["x.test"], "idle_s": 1}], ("", ["a"], 1)),
        ([{"name": "b", "providers": ["giant"], "hosts": ["10.0.0.1", "10.0.0.2"]}], ("10.0.0.1", ["b"], 5)),
        ([], ("", [], 5)),
    ):
        home.options["destinations"] = tables
        take(home.queue, prepare(home.config, home.queue.core.hooks, home.resolver))
        [delivery] = await home.lease()
        assert (delivery.host, delivery.tables, delivery.idle_s) == seen
        await home.settle(delivery)
    assert len(await drain(home)) == 3
    await home.sound()
