"""Domains, patterns and hashes on the suppression list: they stop each address that they cover, what waits too."""

import asyncio
import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from tests.queue.test_suppression import envelope, listed, removed
from zonemta_py.disk import keys
from zonemta_py.mail.addresses import patterns
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED
from zonemta_py.queue.lifecycle.leasing import FRUITLESS_MAX
from zonemta_py.queue.suppression import covering
from zonemta_py.queue.suppression.entry import Suppressed

Make = Callable[..., Any]
BODY = b"Subject: hello\r\n\r\nHi\r\n"
HASH = f"sha256:{sha256(b'ann@x.test').hexdigest()}"
CASES = [
    ("@x.test", ["Ann@X.test", "b@x.test"], ["a@y.test", "a@sub.x.test", "a@xx.test"], "@x.test"),
    ("@*.x.test", ["a@sub.x.test", "a@b.sub.x.test"], ["a@x.test", "a@ax.test"], "@*.x.test"),
    ("NoReply@*", ["noreply@x.test", "NOREPLY@y.z.test"], ["noreply1@x.test"], "pattern:noreply@*"),
    ("*+test@x.test", ["ann+test@x.test", "+test@x.test"], ["ann@x.test", "a+test@y.test"], "pattern:*+test@x.test"),
    (HASH.upper(), ["ANN@x.test", '"ann"@X.test'], ["ann@y.test", "bob@x.test"], HASH),
]


async def suppress(home: Any, *entries: str, kind: str = "manual", scope: str = "") -> dict[str, int]:
    rows = [[entry, kind, "because", "", "tester", "", 0, scope] for entry in entries]
    return dict(await home.queue.ask("suppress", rows=rows))


async def gets(home: Any, address: str, **more: Any) -> bool:
    """Whether mail that comes now goes to that address."""
    receipt = await home.queue.accept(envelope(address, **more), BODY)
    for delivery in await home.leases():
        await home.settle(delivery)
    return bool(receipt.accepted)


@pytest.mark.parametrize("power", [None, False, True])
@pytest.mark.parametrize(("entry", "covered", "others", "stored"), CASES)
async def test_whom_an_entry_stops(
    house: Make, entry: str, covered: list[str], others: list[str], stored: str, power: bool | None
) -> None:
    """And nobody else; after a crash too; taken off, all get mail again."""
    home = await house()
    assert await suppress(home, entry) == {"added": 1, "known": 0}
    assert await suppress(home, stored) == {"added": 0, "known": 1}
    if power is not None:
        await home.crash(power=power)
    assert [await gets(home, one) for one in covered] == [False] * len(covered)
    assert [await gets(home, one) for one in others] == [True] * len(others)
    assert await listed(home) == [stored]
    row = await home.queue.ask("suppression", address=covered[0])
    assert (row["address"], row["kind"], row["others"]) == (stored, "manual", [])
    assert await home.queue.ask("suppression", address=others[0]) is None
    assert (await home.queue.ask("suppression", address=entry))["address"] == stored
    assert [one["address"] for one in (await home.queue.ask("explain", what=covered[0]))["suppressed"]] == [stored]
    assert [one["address"] for one in (await home.queue.ask("evidence", address=covered[0]))["entries"]] == [stored]
    assert await home.queue.ask("unsuppress", addresses=[covered[0]]) == 0, "it is not the address's own"
    assert await home.queue.ask("unsuppress", addresses=[entry], by="tester") == 1
    assert [await gets(home, one) for one in covered] == [True] * len(covered)
    if power is not None:
        await home.crash(power=power)
        assert [await gets(home, one) for one in covered] == [True] * len(covered)
    await home.rest()
    assert {row[2] for row in removed(home)} == {f"suppressed: manual, entry {stored}"}
    await home.sound()


@pytest.mark.parametrize("state", ["queued", "deferred", "after a crash"])
@pytest.mark.parametrize(("entry", "covered", "others", "stored"), CASES)
async def test_what_waits_ends_as_its_turn_comes(
    house: Make, entry: str, covered: list[str], others: list[str], stored: str, state: str
) -> None:
    """Others of the same message get it; there is no bounce, and the journal says which entry it was."""
    home = await house()
    await home.put(*covered, *others)
    if state == "deferred":
        for delivery in await home.leases():
            await home.settle(delivery, DEFERRED)
    await suppress(home, entry)
    if state == "deferred":
        await home.move(3600)
    elif state == "after a crash":
        await home.crash(power=True)
    found = list[str]()
    for delivery in await home.leases():
        found += [one.address for one in delivery.recipients]
        await home.settle(delivery)
    assert sorted(found) == sorted(others)
    await home.rest()
    gone = {one for row in removed(home) for one in row[1]}
    assert {one.lower() for one in gone} == {one.lower() for one in covered}
    assert {row[2] for row in removed(home)} == {f"suppressed: manual, entry {stored}"}
    assert (await home.sizes())["messages"] == 0
    await home.sound()


@pytest.mark.parametrize("seed", range(6))
async def test_a_kill_while_a_domain_ends(house: Make, seed: int) -> None:
    """Some of what waits for it is removed by then: all ends once, nobody else's mail does."""
    die = random.Random(seed)
    home = await house()
    for number in range(40):
        await home.put(f"r{number}@gone.test", f"r{number}@x.test")
    task = asyncio.ensure_future(suppress(home, "@gone.test", "bot*@*"))
    lease = asyncio.ensure_future(home.queue.lease(1))
    for _ in range(die.randint(0, 30)):
        await asyncio.sleep(die.choice((0, 0.002)))
    told = task.done()
    await home.crash(power=die.random() < 0.5, die=die, drop=die.random() < 0.5)
    for one in (task, lease):
        one.cancel()
    if not told:
        await suppress(home, "@gone.test", "bot*@*")
    found = list[str]()
    while deliveries := await home.leases():
        for delivery in deliveries:
            found += [one.address for one in delivery.recipients]
            await home.settle(delivery)
    await home.rest()
    assert sorted({one for one in found if one.endswith("@x.test")}) == sorted(f"r{n}@x.test" for n in range(40))
    assert not [one for one in found if one.endswith("@gone.test")]
    gone = [one for row in removed(home) for one in row[1]]
    assert sorted(gone) == sorted(f"r{n}@gone.test" for n in range(40))
    assert (await home.sizes())["messages"] == 0
    await home.sound()


async def test_each_in_its_scope(house: Make) -> None:
    """A tenant's pattern stops that tenant's mail; an unsubscribe of a domain is for campaigns."""
    home = await house()
    await suppress(home, "@x.test", "bot*@*", scope="tenant:acme")
    await suppress(home, "@y.test", HASH, kind="unsubscribe")
    for power in (None, True):
        if power:
            await home.crash(power=power)
        assert await gets(home, "bot1@z.test")
        assert not await gets(home, "bot1@z.test", tenant="acme")
        assert await gets(home, "bob@x.test", tenant="other")
        assert not await gets(home, "bob@x.test", tenant="acme")
        assert await gets(home, "bob@y.test")
        assert not await gets(home, "bob@y.test", campaign="spring")
        assert await gets(home, "ann@x.test")
        assert not await gets(home, "ann@x.test", campaign="spring")
    rows = (await home.queue.ask("suppressions", scope="tenant:acme"))["rows"]
    assert [row["address"] for row in rows] == ["@x.test", "pattern:bot*@*"]
    await home.sound()


async def test_what_is_heard_of_an_address_with_a_star_is_no_pattern(house: Make) -> None:
    """Somebody types `*@x.test` into a form, and it bounces: nobody else is stopped."""
    home = await house()
    await home.put('"*"@x.test')
    (delivery,) = await home.lease()
    await home.settle(delivery, BOUNCED, reply=Reply(550, "5.1.1", "no such user"), stage="rcpt")
    await home.queue.suppression.add([Suppressed("a*@x.test", "hard-bounce", 1, "", "", "policy", "")])
    await home.rest()
    for _ in range(2):
        shown = [one for one in await listed(home) if "a" in one.partition("@")[0]]
        assert shown == ['"a*"@x.test']
        assert not await gets(home, "a*@x.test")
        assert await gets(home, "ab@x.test")
        assert await gets(home, "bob@x.test")
        await home.crash(power=True)
    page = await home.queue.ask("suppressions", after='"a*"@x.test')
    assert '"a*"@x.test' not in [row["address"] for row in page["rows"]]
    assert await home.queue.ask("unsuppress", addresses=['"a*"@x.test']) == 1
    assert await gets(home, "a*@x.test")
    await home.sound()


async def test_an_own_entry_comes_first_and_is_forgotten_alone(house: Make) -> None:
    """`forget` takes the address's own entry off; the domain's stays, and stops it still."""
    home = await house()
    await suppress(home, "ann@x.test", kind="complaint")
    await suppress(home, "@x.test", "ann*@*", HASH)
    row = await home.queue.ask("suppression", address="ann@x.test")
    assert [one["address"] for one in (row, *row["others"])] == ["ann@x.test", "@x.test", "pattern:ann*@*", HASH]
    assert (await home.queue.ask("forget", address="ann@x.test"))["listed"]
    assert await listed(home) == ["@x.test", "pattern:ann*@*", HASH]
    assert not (await home.queue.ask("forget", address="ann@x.test"))["listed"]
    assert not await gets(home, "ann@x.test")
    await home.sound()


async def test_no_more_patterns_than_are_cheap(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all scopes together, and of those that have the same fixed part; known ones may be added again."""
    home = await house()
    monkeypatch.setattr(covering, "PATTERNS_MAX", 20)
    await suppress(home, *(f"bot{number}*@*" for number in range(15)))
    await suppress(home, *(f"bot{number}*@*" for number in range(5)), scope="tenant:acme")
    for _ in range(2):
        with pytest.raises(ValueError, match="the list would have 21 patterns, and takes 20; list domains"):
            await suppress(home, "no*@*")
        assert await suppress(home, *(f"bot{number}*@*" for number in range(15))) == {"added": 0, "known": 15}
        await home.crash(power=True)
    assert await home.queue.ask("unsuppress", addresses=["bot3*@*"], scope="all") == 1
    assert await suppress(home, "no*@*") == {"added": 1, "known": 0}
    monkeypatch.setattr(covering, "PATTERNS_MAX", patterns.PATTERNS_MAX)
    await suppress(home, *(f"*a{number}*@x.test" for number in range(100)))
    with pytest.raises(ValueError, match=r"100 others begin or end as it does"):
        await suppress(home, "*b*@x.test")
    await suppress(home, "*b*@y.test", "b*@x.test")
    await home.sound()


async def test_without_such_entries_nothing_is_looked_up(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address's entry alone costs what it did: no hash is made, no domain is read."""
    home = await house()
    await suppress(home, "ann@x.test")
    assert await gets(home, "bob@x.test")
    read = list[bytes]()
    get = home.queue.core.disk.store.get

    def counted(key: bytes) -> bytes | None:
        read.append(key)
        return get(key)

    monkeypatch.setattr(home.queue.core.disk.store, "get", counted)
    await home.queue.accept(envelope("bob@x.test", "cid@y.test"), BODY)
    assert [key for key in read if key.startswith(keys.SUPPRESSED)] == [
        b"suppressed bob@x.test",
        b"suppressed cid@y.test",
    ]
    await suppress(home, "@z.test")
    read.clear()
    await home.queue.accept(envelope("bob@x.test", "cid@x.test"), BODY)
    assert [key for key in read if key.startswith(keys.SUPPRESSED)] == [
        b"suppressed bob@x.test", b"suppressed @x.test", b"suppressed cid@x.test"
    ]  # fmt: skip
    await suppress(home, "@*.z.test")
    read.clear()
    await home.queue.accept(envelope("bob@a.b.test"), BODY)
    assert [key for key in read if key.startswith(keys.SUPPRESSED)] == [
        b"suppressed bob@a.b.test", b"suppressed @a.b.test", b"suppressed @*.b.test", b"suppressed @*.test"
    ]  # fmt: skip


async def test_archive_and_export_have_them(house: Make) -> None:
    """The whole list is written again for the archive, and read page by page, whatever is on it."""
    home = await house()
    entries = ["@*.x.test", "@x.test", "ann@x.test", "pattern:*+a@x.test", HASH]
    await suppress(home, *entries)
    await suppress(home, *entries, scope="tenant:acme")
    await home.queue.suppression.tell_all()
    found, after = list[tuple[str, str]](), ""
    while after is not None:
        page = await home.queue.ask("suppressions", after=after, limit=1)
        found += [(row["address"], row["scope"]) for row in page["rows"]]
        after = page["next"]
    assert found == [(entry, scope) for scope in ("all", "tenant:acme") for entry in sorted(entries)]
    await home.rest()
    await home.sound()


async def test_a_domain_that_ends_holds_nobody_else(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much of it waits first: the loop has its turn between."""
    home = await house()
    for number in range(3 * FRUITLESS_MAX):
        await home.put(f"r{number}@gone.test")
    await home.put("ann@x.test")
    await suppress(home, "@gone.test")
    leases, counts = home.queue.leases, list[int]()
    remove = leases._remove

    def counted(*arguments: Any) -> bool:
        left: bool = remove(*arguments)
        counts.append(leases._fruitless)
        return left

    monkeypatch.setattr(leases, "_remove", counted)
    (delivery,) = await home.lease()
    assert [one.address for one in delivery.recipients] == ["ann@x.test"]
    await home.settle(delivery)
    assert await home.leases() == []
    assert max(counts) == FRUITLESS_MAX, "then the loop has its turn"
    assert len(counts) == 3 * FRUITLESS_MAX
    await home.rest()
    assert (await home.sizes())["messages"] == 0
    await home.sound()
