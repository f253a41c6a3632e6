"""Scopes of the suppression list: who leaves a newsletter still gets passwords; who does not exist gets nothing."""

import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.suppression.entry import Suppressed

Make = Callable[..., Any]
NEWS = "news@news.test"
ZONES = [
    {"name": "passwords", "default": True, "suppress": ["hard-bounce", "manual", "erased"]},
    {"name": "news", "sender_domains": ["news.test"], "campaigns": True},
    {"name": "usual", "sender_domains": ["usual.test"]},
]


async def suppress(home: Any, address: str, kind: str, scope: str = "", campaign: str = "") -> dict[str, int]:
    rows = [[address, kind, "", "", "tester", campaign, 0, scope]]
    return dict(await home.queue.ask("suppress", rows=rows))


async def gets(home: Any, address: str, sender: str, **more: Any) -> bool:
    """Whether mail that comes now goes to that address."""
    await home.put(address, sender=sender, **more)
    found = [one.address for delivery in await home.leases() for one in delivery.recipients]
    return address in found


async def entries(home: Any, address: str) -> dict[str, str]:
    row = await home.queue.ask("suppression", address=address)
    return {one["scope"]: one["kind"] for one in (row, *row["others"])} if row else {}


async def campaign(home: Any, name: str, tenant: str = "") -> None:
    template = prepare(TemplateSource("t", Text("Hello"), Text(NEWS), text=Text("Hi\n"))).pack()
    await home.queue.ask("campaign-put", name=name, sender=NEWS, tenant=tenant, template=template)


@pytest.mark.parametrize("power", [None, False, True])
async def test_who_leaves_a_newsletter_still_gets_a_password(house: Make, power: bool | None) -> None:
    """Of the zone that is for campaigns, and of campaigns in any zone, nothing; all else comes. After crashes too."""
    home = await house(zones=ZONES)
    assert await suppress(home, "ann@x.test", "unsubscribe") == {"added": 1, "known": 0}
    if power is not None:
        await home.crash(power=power)
    assert await gets(home, "ann@x.test", "reset@shop.test")
    assert await gets(home, "ann@x.test", "reset@usual.test")
    assert not await gets(home, "Ann@X.test", NEWS)
    assert not await gets(home, "ann@x.test", "reset@usual.test", campaign="spring")
    assert await gets(home, "bob@x.test", NEWS)
    await home.sound()


async def test_a_hard_bounce_stops_everything(house: Make) -> None:
    """Also after the person has unsubscribed, and complained: a kind of more weight hides no other."""
    home = await house(zones=ZONES)
    for kind in ("hard-bounce", "unsubscribe", "complaint"):
        await suppress(home, "ann@x.test", kind)
        assert not await gets(home, "ann@x.test", "reset@shop.test")
        assert not await gets(home, "ann@x.test", NEWS)
    assert await suppress(home, "bob@x.test", "complaint") == {"added": 1, "known": 0}
    assert await gets(home, "bob@x.test", "reset@shop.test")
    assert await suppress(home, "bob@x.test", "hard-bounce") == {"added": 0, "known": 1}
    assert not await gets(home, "bob@x.test", "reset@shop.test")
    assert await entries(home, "bob@x.test") == {"all": "complaint"}
    await home.crash(power=True)
    assert not await gets(home, "bob@x.test", "reset@shop.test")
    await home.sound()


@pytest.mark.parametrize(
    ("scope", "stopped"),
    [
        ("all", "news usual campaign tenant other"),
        ("campaigns", "news campaign tenant other"),
        ("campaigns:acme", "tenant"),
        ("tenant:acme", "tenant"),
        ("campaign:spring", "campaign"),
        ("campaign:acme/spring", "tenant"),
        ("campaign:other/spring", ""),
        ("zone:usual", "usual campaign tenant other"),
        ("zone:passwords", "passwords"),
    ],
)
async def test_what_each_scope_stops(house: Make, scope: str, stopped: str) -> None:
    """An entry for a zone always counts there, also where its kind else does not."""
    home = await house(zones=ZONES)
    await suppress(home, "ann@x.test", "unsubscribe", scope)
    usual = "a@usual.test"
    mail: dict[str, Any] = {
        "passwords": {"sender": "a@shop.test"},
        "news": {"sender": NEWS},
        "usual": {"sender": usual},
        "campaign": {"sender": usual, "campaign": "spring"},
        "tenant": {"sender": usual, "campaign": "spring", "tenant": "acme"},
        "other": {"sender": usual, "campaign": "autumn", "tenant": "other"},
    }
    missing = [name for name, terms in mail.items() if not await gets(home, "ann@x.test", **terms)]
    assert missing == stopped.split()


async def test_a_campaigns_entry_of_an_earlier_version_stops_it_for_every_tenant(house: Make) -> None:
    """As it did; what is added now is of no tenant or of one, and the same person's older entry goes on holding."""
    home = await house(zones=ZONES)
    old = Suppressed("ann@x.test", "unsubscribe", 1, "", "", "", "", "campaign:spring")
    for address in ("ann@x.test", "bob@x.test"):
        await home.queue.suppression._change(Type.SUPPRESS, [old._replace(address=address).row()])
    for address in ("ann@x.test", "cat@x.test"):
        await suppress(home, address, "unsubscribe", "campaign:spring")
    await home.queue.suppression.tell_all()
    for _ in range(2):
        for address, gets_it in (("ann@x.test", False), ("bob@x.test", False), ("cat@x.test", True)):
            assert await gets(home, address, "a@usual.test", campaign="spring", tenant="acme") == gets_it, address
            assert not await gets(home, address, "a@usual.test", campaign="spring")
            found = await home.queue.ask("suppression", address=address, scopes=["campaign:spring"], tenant="acme")
            assert (found is None) == gets_it
        await home.crash(power=True)
    await home.sound()


async def test_a_scope_holds_for_mail_that_waits_already(house: Make) -> None:
    """And the journal says by which scope it was taken out; what came later is left out with the same words."""
    home = await house(zones=ZONES)
    await home.put("ann@x.test", sender=NEWS)
    await home.put("ann@x.test", sender="reset@shop.test")
    await suppress(home, "ann@x.test", "unsubscribe")
    (delivery,) = await home.leases()
    assert delivery.zone == "passwords"
    await home.put("ann@x.test", sender=NEWS)
    await home.rest()
    reasons = [
        packing.unpack(record.body)[3]
        for record in segments.read(home.folder / "journal", 0, [], home.folder / "archive")
        if record.type == Type.REMOVED
    ]
    assert reasons == ["suppressed: unsubscribe, scope campaigns"] * 2
    await home.sound()


@pytest.mark.parametrize("by", ["message", "zone"])
async def test_mail_with_a_link_to_unsubscribe_is_what_one_unsubscribes_from(house: Make, by: str) -> None:
    """Whether it asked for the link itself or its zone gives it to all mail; what waits already, too."""
    path: dict[str, Any] = {"list_unsubscribe": "https://u.test/{id}", "secret": "s" * 20}
    path |= {"list_unsubscribe_zones": ["usual"]} if by == "zone" else {}
    home = await house(zones=ZONES, return_path=path)
    terms = {"sender": "a@usual.test", "unsubscribe": by == "message"}
    await home.put("ann@x.test", **terms)
    await suppress(home, "ann@x.test", "unsubscribe")
    assert await home.leases() == []
    assert not await gets(home, "ann@x.test", **terms)
    assert await gets(home, "ann@x.test", "a@usual.test") == (by == "message")
    await home.sound()


async def test_the_usual_scope_of_an_unsubscribe(house: Make) -> None:
    """The campaigns of the tenant whose campaign it names; all campaigns if that has none; all other kinds: all."""
    home = await house(zones=ZONES)
    await campaign(home, "spring", "acme")
    await campaign(home, "autumn")
    for name in ("spring", "autumn", "unknown", ""):
        await suppress(home, f"{name}-@x.test", "unsubscribe", campaign=name)
    await suppress(home, "c@x.test", "complaint", campaign="spring")
    rows = (await home.queue.ask("suppressions"))["rows"]
    assert {row["address"]: row["scope"] for row in rows} == {
        "spring-@x.test": "campaigns:acme", "autumn-@x.test": "campaigns", "unknown-@x.test": "campaigns",
        "-@x.test": "campaigns", "c@x.test": "all",
    }  # fmt: skip


async def test_a_person_can_have_several_entries(house: Make) -> None:
    """Each is taken off by itself, or all together; to forget somebody takes all."""
    home = await house(zones=ZONES)
    for address in ("ann@x.test", "bob@x.test"):
        for scope in ("campaign:spring", "all", "zone:usual"):
            await suppress(home, address, "manual", scope)
    assert set(await entries(home, "ann@x.test")) == {"all", "campaign:spring", "zone:usual"}
    assert await home.queue.ask("unsuppress", addresses=["ann@x.test"], scope="all") == 1
    assert await home.queue.ask("unsuppress", addresses=["ann@x.test"], scope="all") == 0
    await home.crash(power=True)
    assert set(await entries(home, "ann@x.test")) == {"campaign:spring", "zone:usual"}
    assert await home.queue.ask("unsuppress", addresses=["ann@x.test"]) == 1
    assert (await home.queue.ask("forget", address="bob@x.test"))["listed"]
    assert await entries(home, "ann@x.test") == await entries(home, "bob@x.test") == {}
    await home.sound()


async def test_the_list_comes_in_pages_through_all_scopes(house: Make) -> None:
    """Nobody twice, nobody left out; one scope alone if asked for."""
    home = await house(zones=ZONES)
    places = {(f"r{n}@x.test", scope) for n in range(5) for scope in ("all", "campaigns", "campaigns:a", "zone:a")}
    places.add(('"b campaigns@x.test zone:a"@y.test', "campaigns"))
    for address, scope in places:
        await suppress(home, address, "manual", scope)
    for most in (1, 3, 100):
        found, after = list[tuple[str, str]](), ""
        while after is not None:
            page = await home.queue.ask("suppressions", after=after, limit=most)
            found += [(row["address"], row["scope"]) for row in page["rows"]]
            after = page["next"]
        assert len(found) == len(places)
        assert set(found) == places
    page = await home.queue.ask("suppressions", scope="campaigns", after="r1@x.test")
    assert [row["address"] for row in page["rows"]] == ["r2@x.test", "r3@x.test", "r4@x.test"]


@pytest.mark.parametrize("seed", range(6))
async def test_a_crash_between_record_and_store(house: Make, seed: int) -> None:
    """What was answered stands, what was taken off is off; and mail that comes before recovery is over is judged so."""
    die = random.Random(seed)
    home = await house(zones=ZONES)
    await suppress(home, "ann@x.test", "unsubscribe")
    await suppress(home, "bob@x.test", "unsubscribe")
    await home.queue.ask("unsuppress", addresses=["bob@x.test"])
    opening = await home.crash_and_begin(power=die.random() < 0.5, die=die, drop=die.random() < 0.5)
    await home.put("ann@x.test", sender=NEWS)
    await home.put("bob@x.test", sender=NEWS)
    await opening.finish()
    (delivery,) = await home.leases()
    assert [one.address for one in delivery.recipients] == ["bob@x.test"]
    assert await entries(home, "ann@x.test") == {"campaigns": "unsubscribe"}
    assert await entries(home, "bob@x.test") == {}
    await home.sound()


@pytest.mark.parametrize("by", ["start", "fsck"])
async def test_scopes_are_made_again_when_the_store_is_lost(house: Make, by: str) -> None:
    """Of the journal and its archive: each entry in its scope, and none that was taken off."""
    home = await house(zones=ZONES)
    await suppress(home, "ann@x.test", "unsubscribe")
    await suppress(home, "ann@x.test", "hard-bounce", "tenant:acme")
    await suppress(home, "bob@x.test", "unsubscribe")
    await suppress(home, "bob@x.test", "complaint")
    await suppress(home, "bob@x.test", "hard-bounce")
    for _ in range(2):
        await home.rest()
        home.queue.core.disk.ledger.rotate()
        await home.queue.ask("unsuppress", addresses=["bob@x.test"], scope="campaigns")
        await home.queue.position()
    await home.rest()
    home.folder, _ = home.image(), home.abandon()
    shutil.rmtree(home.folder / "store")
    if by == "fsck":
        home.check(repair=True)
    await home.open()
    assert await entries(home, "ann@x.test") == {"campaigns": "unsubscribe", "tenant:acme": "hard-bounce"}
    assert await entries(home, "bob@x.test") == {"all": "complaint"}
    assert not await gets(home, "bob@x.test", "reset@shop.test"), "the bounce beside the complaint is known still"
    assert not await gets(home, "ann@x.test", NEWS)
    await home.sound()


async def test_fsck_compares_scopes_with_the_journal(house: Make) -> None:
    """One missing, one too many, one that cannot be read: named with its scope, and mended."""
    home = await house(zones=ZONES)
    for name in ("ann", "bob", "cid"):
        await suppress(home, f"{name}@x.test", "unsubscribe")
    await home.queue.ask("unsuppress", addresses=["bob@x.test"])
    await home.rest()
    await home.queue.position()
    home.image()
    home.abandon()
    store = Store(home.folder / "store")
    ann, bob, cid = (keys.suppressed(f"{name}@x.test", "campaigns") for name in ("ann", "bob", "cid"))
    store.write([(ann, None), (bob, store.get(ann)), (cid, b"\xc1")], sync=True)
    store.close()
    found = sorted(problem.what for problem in home.check(repair=True).problems)
    assert found == [
        "an entry of the suppression list cannot be read",
        "ann@x.test, scope campaigns, is listed otherwise than the journal says",
        "bob@x.test, scope campaigns, is on the suppression list and was taken off it",
        "cid@x.test, scope campaigns, is listed otherwise than the journal says",
    ]
    assert home.check().problems == []
    await home.open()
    assert await entries(home, "cid@x.test") == {"campaigns": "unsubscribe"}


async def test_an_entry_from_before_scopes_holds_for_all_mail(house: Make) -> None:
    """Its row in the journal has seven fields, its value in the store six: as they are written still."""
    home = await house()
    await suppress(home, "ann@x.test", "unsubscribe", "all")
    await home.rest()
    value = home.queue.core.disk.store.get(b"suppressed ann@x.test")
    assert len(packing.unpack(value)) == 6
    rows = [
        packing.unpack(record.body)[0]
        for record in segments.read(home.folder / "journal", 0, [], home.folder / "archive")
        if record.type == Type.SUPPRESS
    ]
    assert [len(row) for row in rows] == [7]
    assert await entries(home, "ann@x.test") == {"all": "unsubscribe"}
    assert not await gets(home, "ann@x.test", "reset@shop.test")


async def test_scopes_that_nobody_is_in_cost_nothing(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up for each recipient while all entries are of all mail; then one more, only for mail of that scope."""
    home = await house(zones=ZONES)
    looked: list[str] = []
    suppression = home.queue.suppression
    of = suppression.of

    def counted(who: str, scope: str = "all") -> Any:
        looked.append(scope)
        return of(who, scope)

    await suppress(home, "ann@x.test", "hard-bounce")
    monkeypatch.setattr(suppression, "of", counted)
    monkeypatch.setattr(suppression, "_has", None)
    await home.put("bob@x.test", "cid@x.test", sender=NEWS, campaign="spring", tenant="acme")
    assert looked == ["all", "all"]
    monkeypatch.undo()
    await suppress(home, "ann@x.test", "unsubscribe")
    monkeypatch.setattr(suppression, "of", counted)
    looked.clear()
    await home.put("bob@x.test", sender=NEWS, campaign="spring", tenant="acme")
    await home.put("bob@x.test", sender="reset@shop.test")
    assert looked == ["all", "campaigns", "all"]


async def test_a_complaint_is_counted_once_however_its_entry_is_written_again(house: Make) -> None:
    """A kind of less weight that joins it makes a record of the same complaint; a crash replays it."""
    home = await house(zones=ZONES)
    await campaign(home, "spring")
    await suppress(home, "ann@x.test", "complaint", campaign="spring")
    await suppress(home, "ann@x.test", "hard-bounce")
    await home.crash(drop=True)
    await home.rest()
    assert (await home.queue.ask("campaign", name="spring"))["complaints"] == 1
    await home.sound()


@pytest.mark.parametrize(
    "scope", ["news", "zone:", "zone:a b", "lists:x", "list:a/b/c", "list:/x", "campaigns:a@b", "ALL"]
)
async def test_what_is_no_scope_is_refused(house: Make, scope: str) -> None:
    """With those that there are."""
    home = await house()
    with pytest.raises(ValueError, match="is not a scope; use all, campaigns, campaigns:TENANT, campaign:NAME"):
        await suppress(home, "ann@x.test", "manual", scope)
    with pytest.raises(ValueError, match="is not a scope"):
        await home.queue.ask("unsuppress", addresses=["ann@x.test"], scope=scope)
    with pytest.raises(ValueError, match="is not a scope"):
        await home.queue.ask("suppressions", scope=scope)
