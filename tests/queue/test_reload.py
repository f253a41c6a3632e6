"""Another configuration for a queue that runs, in this process; the clock is the test's."""

import asyncio
import gc
from collections import deque
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import pytest

from tests.queue.flow import drain, put_all
from tests.queue.test_sites import Directory, site
from zonemta_py.config import Config, ConfigError
from zonemta_py.config.file import SourceFile
from zonemta_py.config.section import Section
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.processes.queue_process import Given, Plugged, _taken
from zonemta_py.queue.api import BOUNCED, RELEASED
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.reload import apply, history

MX = {"name": "default", "default": True}


def other(home: Any, **changes: Any) -> Config:
    """The House's configuration from now on."""
    home.options |= changes
    config: Config = home.config
    return config


def reload(home: Any, **changes: Any) -> None:
    config = other(home, **changes)
    assert apply.faults(home.queue, config) == []
    apply.take(home.queue, apply.prepare(config, NoHooks(), home.resolver))


def reachable(top: Any, parents: dict[int, Any] | None = None) -> list[Any]:
    """Every object that one of the queue's leads to, but for code and the interpreter's own."""
    found: dict[int, Any] = {id(top): top}
    rest = deque([top])
    while rest:
        one = rest.popleft()
        for other_one in gc.get_referents(one):
            if isinstance(other_one, type | ModuleType | FrameType) or id(other_one) in found:
                continue
            if isinstance(one, FunctionType) and other_one is one.__globals__:
                continue
            found[id(other_one)] = other_one
            if parents is not None:
                parents[id(other_one)] = one
            rest.append(other_one)
    return list(found.values())


def ways(top: Any, wanted: set[int]) -> list[str]:
    """How one of the wanted objects can be reached."""
    parents: dict[int, Any] = {}
    found = reachable(top, parents)
    said = []
    for one in found:
        if id(one) in wanted and id(parents[id(one)]) not in wanted:
            path = [type(one).__name__]
            while id(one) in parents and len(path) < 9:
                one = parents[id(one)]
                path.append(type(one).__qualname__)
            said.append(" < ".join(path))
    return said


FULL: dict[str, Any] = {
    "zones": [
        {**MX, "connections": 7, "window": "day", "sources": ["127.0.0.1"]},
        {"name": "bulk", "sender_domains": ["bulk.test"], "host": "127.0.0.9", "port": 2525},
        {"name": "pool", "sender_domains": ["pool.test"], "pool": "some"},
        {"name": "box", "delivery": "pull"},
    ],
    "pools": [{"name": "some", "sources": [{"address": "127.0.0.3", "warmup": "slow"}]}],
    "warmups": [{"name": "slow", "caps": [100, 200]}],
    "throttles": [{"name": "t", "per": ["zone", "site"], "messages": "1000/s", "connections": 50}],
    "windows": [{"name": "day", "hours": "00:00-24:00"}],
    "retry": {"life_h": 47},
    "learning": {"initial": 99},
    "shares": {"tenants": {"a": 2.0}},
    "limits": {"connections": 9},
    "pull": {"life_h": 3},
    "dns": {"timeout_s": 9},
    "tls": {"dane": False},
}


def changed(value: Any) -> Any:
    """The same configuration, but no section of it equals the one before."""
    rows: dict[str, Any] = {name: [dict(row) for row in one] if isinstance(one, list) else dict(one)
                            for name, one in value.items()}  # fmt: skip
    for zone in rows["zones"]:
        zone["messages_per_connection"] = 17
    rows["pools"] = [{"name": "some", "sources": [{"address": "127.0.0.3", "warmup": "slow", "weight": 2}]}]
    rows["warmups"][0]["least"] = 5
    rows["throttles"][0]["connections"] = 51
    rows["windows"][0]["hours"] = "00:00-23:59"
    rows["retry"]["life_h"], rows["learning"]["initial"], rows["shares"] = 46, 98, {"tenants": {"a": 3.0}}
    rows["limits"]["connections"], rows["pull"]["life_h"], rows["dns"]["timeout_s"] = 8, 4, 8
    rows["queue"] = {"segment_s": 3000}
    return rows


async def test_nothing_knows_the_old_configuration(house: Any) -> None:
    """Mail waits in each kind of place, leases are out; then no object of the queue leads to what was."""
    home = await house(**FULL)
    for sender in ("a@x.test", "b@bulk.test", "c@pool.test"):
        await put_all(home, 30, "d.test", sender=sender, tenant="a")
    out = await home.lease(10)
    old = home.queue.core.config
    sections = {id(one) for one in reachable(old) if isinstance(one, Section)}
    assert len(sections) > 20
    reload(home, **changed(FULL))
    await home.rest()
    sections -= {id(one) for one in reachable(home.queue.core.config)}  # defaults are the same objects
    assert len(sections) > 15
    assert ways(home.queue, sections) == []
    assert len(await drain(home)) == 90 - len(out)


async def test_a_rate_holds_through_reloads(house: Any) -> None:
    """Ten a second, changed in five reloads in between: what is used stays used, nothing is granted twice."""
    limit: dict[str, Any] = {"name": "all", "messages": "60/min", "burst": 10}
    home = await house(throttles=[limit])
    await put_all(home, 400)
    sent = [(home.clock.now_s, len(await drain(home)))]
    for number in range(1, 121):
        if number % 20 == 0:
            reload(home, throttles=[limit, {"name": f"other-{number}", "messages": "1000/s"}])
        await home.move(1)
        sent.append((home.clock.now_s, len(await drain(home))))
    assert sent[0][1] == 10
    for begin, (since, _) in enumerate(sent):
        within = sum(count for at, count in sent[begin:] if at <= since + 60)
        assert within <= 10 + 60, "more than the limit allows in a minute"
    assert sum(count for _, count in sent) == 10 + 120, "and not less"


async def test_a_lower_rate_counts_what_was_sent(house: Any) -> None:
    home = await house(throttles=[{"name": "all", "messages": "1/s", "burst": 50}])
    await put_all(home, 200)
    assert len(await drain(home)) == 50
    reload(home, throttles=[{"name": "all", "messages": "1/min", "burst": 50}])
    assert await drain(home) == []
    await home.move(60)
    assert len(await drain(home)) == 1


@pytest.mark.parametrize("before", [[], [{"name": "c", "per": ["site"], "connections": 10}]])
async def test_leases_that_are_out_count_at_a_new_limit_on_connections(house: Any, before: list[Any]) -> None:
    home = await house(throttles=before)
    await put_all(home, 20)
    out = await home.lease(6)
    assert len(out) == 6
    reload(home, throttles=[{"name": "c", "per": ["site"], "connections": 3}, {"name": "d", "connections": 1000}])
    assert await home.leases() == []
    for left in (5, 4, 3):
        await home.settle(out.pop(), kept=False)
        assert await home.leases() == [], f"{left} of three are out"
    await home.settle(out.pop(), kept=False)
    assert len(await home.leases()) == 1


async def test_more_and_fewer_connections_of_a_zone(house: Any) -> None:
    zone = {**MX, "host": "127.0.0.9", "connections": 4, "connections_per_destination": 100}
    home = await house(zones=[zone])
    await put_all(home, 40)
    assert len(await home.leases()) == 4
    reload(home, zones=[{**zone, "connections": 9}])
    assert len(await home.leases()) == 5
    reload(home, zones=[{**zone, "connections": 2}])
    assert await home.leases() == []


async def test_what_waits_goes_to_the_new_host_and_from_the_new_address(house: Any) -> None:
    """In memory, parked, and what a sender gives back."""
    zone = {**MX, "host": "127.0.0.9", "port": 25, "sources": ["127.0.0.1"], "connections": 3}
    home = await house(zones=[zone], queue={"window": 100})
    await put_all(home, 300)
    out = await home.leases()
    reload(home, zones=[{**zone, "host": "127.0.0.10", "port": 26, "sources": ["127.0.0.2"], "connections": 1000}])
    for delivery in out:
        await home.settle(delivery, RELEASED, stage="limit")
    found = await drain(home)
    assert len(found) == 300
    assert {(one.host, one.port, one.source) for one in found} == {("127.0.0.10", 26, "127.0.0.2")}


async def test_where_dns_decides_the_address_is_another_too(house: Any) -> None:
    """From a smart host to MX lookup, and from one source address to another, however it waits."""
    resolver = Directory()
    resolver.answers = {"x.test": site("mx.x.test")}
    home = await house(zones=[{**MX, "sources": ["192.0.2.1"]}], queue={"window": 100}, resolver=resolver)
    await put_all(home, 300)
    out = await home.lease(5)
    reload(home, zones=[{**MX, "sources": ["192.0.2.2"]}])
    for delivery in out:
        await home.settle(delivery, RELEASED, stage="limit")
    await home.move(400)  # what DNS said is over
    first = await home.lease(50)
    reload(home, zones=[{**MX, "sources": ["192.0.2.2"], "port": 2525}])
    await home.rest()
    for delivery in first:
        await home.settle(delivery)
    rest = await drain(home)
    assert {(one.source, one.port) for one in (*first, *rest)} == {("192.0.2.2", 25), ("192.0.2.2", 2525)}
    assert {one.port for one in rest} == {2525}
    assert len(first) + len(rest) == 300


async def test_rules_that_have_changed_in_their_file(house: Any, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    rule = "[[rules]]\nname = 'mine'\nclass = 'policy'\npattern = 'magic'\nexamples = ['550 magic']\nverdict = '{}'\n"
    file.write_text(rule.format("bounce"))
    home = await house(zones=[{**MX, "host": "127.0.0.9"}], rules={"extra": file})
    said = Reply(550, "5.7.1", "magic")
    await put_all(home, 2)
    first, second = await home.lease(2)
    await home.settle(first, BOUNCED, reply=said)
    file.write_text(rule.format("retry"))
    reload(home)
    await home.settle(second, BOUNCED, reply=said)
    await home.rest()
    assert (await home.sizes())["deferred"] == 1


async def test_a_log_that_cannot_be_written_leaves_all_as_it_is(house: Any) -> None:
    """Found before anything is taken: the supervisor says then that nothing has changed."""
    home = await house()
    before, given = home.queue.core.config, other(home, log={"mail": False, "personal": "hashed"})
    (home.folder / "log.key").mkdir()
    with pytest.raises(ConfigError, match=r"log\.key"):
        await _taken(home.queue, Plugged(Host.empty()), Given(given, SourceFile(), "me", 2))
    assert (home.queue.core.config, home.queue.generation) == (before, 0)


async def test_shares_hold_for_flows_that_are_there(house: Any) -> None:
    home = await house(zones=[{**MX, "host": "127.0.0.9", "connections": 4}], shares={"tenants": {"a": 1, "b": 1}})
    for tenant in ("a", "b"):
        await put_all(home, 100, tenant=tenant)
    for delivery in await home.leases():
        await home.settle(delivery)
    reload(home, shares={"tenants": {"a": 4, "b": 1}})
    found: list[str] = []
    while len(found) < 80:
        for delivery in await home.leases():
            found.append(delivery.tenant)
            await home.settle(delivery)
    assert 3 < found.count("a") / found.count("b") < 5


async def turned(home: Any, task: dict[str, Any], state: str) -> None:
    """Until the task's state is this one."""
    for _ in range(6000):
        if (await home.queue.ask("task-row", id=task["id"]))["state"] == state:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(await home.sizes())


async def test_zones_come_and_go(house: Any) -> None:
    bulk = {"name": "bulk", "sender_domains": ["bulk.test"]}
    home = await house(zones=[MX])
    reload(home, zones=[MX, bulk])
    await put_all(home, 3, sender="s@bulk.test")
    (sentence,) = apply.faults(home.queue, other(home, zones=[MX]))
    assert "'bulk' is gone from the configuration, but 3 recipients wait in it" in sentence
    assert "`zonemta queue move --zone bulk --to ZONE`, give the zone back" in sentence
    (sentence,) = apply.faults(home.queue, other(home, zones=[MX, {**bulk, "delivery": "pull"}]))
    assert "is to have delivery = 'pull', but 3 recipients" in sentence
    assert {one.zone for one in await drain(home)} == {"bulk"}
    await home.rest()
    await put_all(home, 2, sender="s@bulk.test")
    task = await home.queue.ask("task", verb="delete", where={"zone": "bulk"}, undo_s=60)
    await turned(home, task, "undoable")
    (sentence,) = apply.faults(home.queue, other(home, zones=[MX]))
    assert "but 2 recipients of it are deleted, which can be undone for a while" in sentence
    await home.move(61)
    await turned(home, task, "done")
    await home.rest()
    reload(home, zones=[MX])
    assert "bulk" not in home.queue.core.schedule.zones
    await put_all(home, 3, sender="s@bulk.test")
    assert {one.zone for one in await drain(home)} == {"default"}


async def test_a_zone_is_not_removed_under_a_delivery(house: Any) -> None:
    bulk = {"name": "bulk", "sender_domains": ["bulk.test"]}
    home = await house(zones=[MX, bulk])
    await put_all(home, 1, sender="s@bulk.test")
    await home.leases()
    assert apply.faults(home.queue, other(home, zones=[MX]))


async def test_a_queue_that_a_zone_would_take_over(house: Any) -> None:
    home = await house(zones=[MX], pull={"enabled": True})
    await home.put("jobs@queue", protocol="PULL", sending_zone="jobs")
    (sentence,) = apply.faults(home.queue, other(home, zones=[MX, {"name": "jobs", "delivery": "pull"}]))
    assert "'queue/jobs' is to be the zone of that name" in sentence


async def test_other_hours_other_shares_other_orders(house: Any) -> None:
    """Mail that waits for the hours of its zone goes at once when there are none any more; stops stay."""
    closed = {"name": "hours", "hours": "00:00-00:01", "time_zone": "UTC"}
    home = await house(zones=[MX], windows=[closed])
    home.queue.core.schedule.policy.stop("destination", "stopped.test", 3600, "an order", chosen=True)
    await home.put("ann@open.test")
    await home.put("bob@stopped.test")
    reload(home, zones=[{**MX, "window": "hours"}])
    assert await home.leases() == []
    reload(home, zones=[MX])
    assert [one.recipients[0].address for one in await home.leases()] == ["ann@open.test"]


async def test_a_day_of_a_warm_up_stays_counted(house: Any) -> None:
    def sections(caps: list[int]) -> dict[str, Any]:
        return {
            "zones": [{**MX, "host": "127.0.0.9", "pool": "new"}],
            "pools": [{"name": "new", "sources": [{"address": "127.0.0.3", "warmup": "slow"}]}],
            "warmups": [{"name": "slow", "caps": caps}],
        }

    home = await house(**sections([10, 20]))
    await put_all(home, 40)
    assert len(await drain(home)) == 10
    reload(home, **sections([15, 20]))
    assert len(await drain(home)) == 5


async def test_what_cannot_be_changed_is_said(house: Any, tmp_path: Path) -> None:
    home = await house()
    config = home.config.model_copy(
        update={"server": home.config.server.model_copy(update={"folder": tmp_path / "elsewhere"})}
    )
    (sentence,) = apply.faults(home.queue, config)
    assert sentence.startswith("server.folder cannot be changed while the MTA runs")
    assert "stop the MTA" in sentence


async def test_a_crash_after_a_reload_keeps_what_was_used(house: Any) -> None:
    limit = {"name": "all", "messages": "1/min", "burst": 10}
    home = await house(throttles=[limit])
    await put_all(home, 40)
    assert len(await drain(home)) == 10
    reload(home, throttles=[{**limit, "burst": 12}])
    assert len(await drain(home)) == 2
    await home.crash()
    assert await drain(home) == []


def test_secrets_that_were_changed_can_be_forgotten(tmp_path: Path) -> None:
    """All copies but the newest go, or those before one."""
    for number in range(1, 6):
        config = Config.model_validate({"server": {"folder": tmp_path}, "limits": {"recipients": number}})
        assert (
            history.add(tmp_path, config, SourceFile("/etc/z.toml", f'password = "old{number}"'), "ann", number)
            == number
        )
    assert history.forget(tmp_path, before=3) == 2
    assert [row["number"] for row in history.rows(tmp_path)] == [5, 4, 3]
    assert history.forget(tmp_path) == 2
    assert history.newest(tmp_path).text == 'password = "old5"'
    left = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert b"old4" not in left
    assert history.add(tmp_path, config, SourceFile("/etc/z.toml", "x"), "ann", 9) == 6


def test_history_says_who_and_what(tmp_path: Path) -> None:
    """Secrets are kept, to go back to, and never shown; of many the latest are kept."""
    secret = "quite-secret-indeed"
    zone = {**MX, "host": "h.test", "tls": "required", "username": "u", "password": secret}
    (tmp_path / "moved").mkdir()
    first = Config.model_validate({"zones": [zone]})
    second = Config.model_validate({"zones": [{**zone, "password": "another", "connections": 5}]})
    assert history.add(tmp_path, first, SourceFile("/etc/z.toml", "one"), "ann", 1000) == 1
    assert history.add(tmp_path, first, SourceFile("/etc/z.toml", "one"), "ann", 1500) == 1, "it is the same"
    assert history.add(tmp_path / "moved", first, SourceFile("/etc/z.toml", "one"), "ann", 1000) == 1
    assert history.add(tmp_path / "moved", first, SourceFile("/opt/z.toml", "one"), "ann", 1500) == 2
    assert history.newest(tmp_path / "moved").path == "/opt/z.toml"
    assert history.add(tmp_path, second, SourceFile("/etc/z.toml", "two"), "bob", 2000) == 2
    latest, oldest = history.rows(tmp_path)
    assert (latest["by"], latest["ms"], oldest["by"], oldest["changes"]) == ("bob", 2000, "ann", [])
    changes = {key: (old, new) for key, old, new in latest["changes"]}
    assert changes["zones.default.connections"] == ("(default)", 5)
    assert "zones.default.password" in changes
    assert secret not in repr(latest)
    assert "another" not in repr(latest)
    assert history.text(tmp_path, 1).text == "one"
    files = list((tmp_path / history.FOLDER).iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    for number in range(history.KEPT + 5):
        history.add(tmp_path, first, SourceFile("/etc/z.toml", str(number)), "ann", number)
    assert len(history.rows(tmp_path)) == history.KEPT
    with pytest.raises(ValueError, match="there is no configuration 1 any more"):
        history.text(tmp_path, 1)
