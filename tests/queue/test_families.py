"""Each family of the store's keys has a row that says from which records it is made again, and that row is true.

A real queue has keys of every family; each is taken away alone, as a table that is cut would take it, and then the
whole store.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.pull.test_pulling import push
from tests.queue.tasks.test_tasks import done
from tests.queue.test_campaigns import batch, template
from zonemta_py.disk import keys, packing
from zonemta_py.disk.leveldb.store import Store
from zonemta_py.disk.quarantine import Quarantine
from zonemta_py.journal import families
from zonemta_py.journal.families import FAMILIES
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.sender_domain import SenderDomain
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD, Feedback, QueueRefusal
from zonemta_py.queue.recovery.open_store import REPAIR_MARK

Make = Callable[..., Any]
BODY = b"Subject: hello\r\n\r\nHi\r\n"
LONG = "a" * 60 + "@" + "b" * 60 + "." + "c" * 60 + ".test"
UNKNOWN = Reply(550, "5.1.1", "no such user")
_SOURCE = Path(keys.__file__).read_text()
_FORMAT = Path(keys.__file__).with_name("FORMAT.md").read_text()
ALL = [one.name for one in FAMILIES]
_GOES_WITH_MAIL = {
    "message", "delivery-zone", "deferred", "parked", "held", "deleted", "bounced", "at", "size", "size-flow",
    "campaign",
}  # fmt: skip
_COUNTED_ANEW = {
    "quota",
    "plugin",
    "plugin-done",
    "domain",
    "sent",
    "sent-as",
    "sent-to",
    "sent-about",
    "evidence",
    "guard",
    "guard-day",
    "lesson",
    "spooled",
    "taken",
    "moving",
    "probe",
}


def test_every_family_has_a_row() -> None:
    """Whatever word a key can begin with; and the format's page has the same table."""
    made = set(re.findall(r"[bf]\"([a-z]+(?:-[a-z]+)*) ", _SOURCE)) - {"not"} | {
        "state",
        "tracked",
        "probe",
        "log",
        "ordered",
    }
    assert made == set(ALL)
    assert len(ALL) == len(set(ALL))
    assert families.table() in _FORMAT


def request(key: str, address: str) -> Envelope:
    return Envelope("ann@src.test", [Recipient(address)], len(BODY), request=key, digest=hashlib.sha256(b"1").digest())


async def lived(house: Make) -> Any:
    """A queue with keys of every family."""
    home = await house(
        return_path={"verp": "ret.src.test", "secret": "a secret of twenty or so"},
        suppression={"automatic": True}, accounts=[{"name": "shop", "messages": ["500/h"]}],
        queue={"keep_bounced_s": 86_400},
        zones=[{"name": "z", "default": True}, {"name": "doubt", "recipient_domains": ["doubt.test"]}],
    )  # fmt: skip
    ask = home.queue.ask
    await ask("suppress", rows=[["never@x.test", "complaint"], ["less@x.test", "unsubscribe", "", "list:news"]])
    await ask("stop", kind="destination", name="stopped.test")
    await ask("campaign-put", name="spring", sender="news@src.test", template=template())
    await ask("campaign-put", name="autumn", sender="news@src.test", template=template("Bye"))
    await home.queue.accept(batch("merged@m.test"), b"")
    await home.queue.accept(batch("other@m2.test", campaign="autumn"), b"")
    await ask("campaign-cancel", name="autumn", cause="the wrong one")
    home.ids = {}
    put = {
        "deferred@a.test": DEFERRED, "held@b.test": HELD, "bounced@c.test": BOUNCED, "done@d.test": DELIVERED,
        "doubtful@doubt.test": 0, LONG: DEFERRED, "named@e.test": DELIVERED,
    }  # fmt: skip
    for address in put:
        more = {"campaign": "mentioned"} if address == "named@e.test" else {}
        more |= {"account": "shop", "meta": {"order": 17}} if address == "done@d.test" else {}
        home.ids[address] = await home.put(address, headers={"message-id": f"<{address[:9]}@src.test>"}, **more)
    home.asked = [await home.queue.accept(request(key, f"{key}@r.test"), BODY) for key in ("one", "two")]
    home.left_out = await home.queue.accept(request("three", "never@x.test"), BODY)
    for delivery in await home.leases():
        verdict = put.get(delivery.recipients[0].address)
        if verdict == BOUNCED:
            await home.settle(delivery, BOUNCED, reply=UNKNOWN)
        elif verdict:
            await home.settle(delivery, verdict)
    reply = {"code": 550, "enhanced": "5.1.1", "text": "no such user"}
    row = Feedback("bounce", "done@d.test", home.ids["done@d.test"], genuine="token", via="smtp", **reply)
    await home.queue.feedback([row])
    await home.queue.sender_domains.put(SenderDomain("cust.test"))
    await home.queue.plugin_store.do("set", "a plugin", "seen", "token-1", [b"5", 3600])
    await home.rest()
    await home.crash()  # whoever is leased is in doubt
    home.ids["fresh@f.test"] = await home.put("fresh@f.test")
    home.ids["jobs@queue"] = await push(home.queue)
    home.ids["deleted@g.test"] = await home.put("deleted@g.test")
    await done(home, "delete", where={"domain": "g.test"}, undo_s=86_400)
    rows = [(keys.lesson(1), packing.pack(["took", ["ann@x.test", "1", 1]])), (keys.taken("0" * 16), packing.pack([]))]
    rows.append((keys.spooled("0" * 16), packing.pack(["a"])))
    home.queue.core.disk.lines.submit(rows, lambda _: None, sync=True, keep=True)
    await home.queue.position()
    await home.rest()
    return home


def contents(folder: Path) -> dict[str, dict[bytes, bytes]]:
    """By family."""
    store = Store(folder / "store")
    found: dict[str, dict[bytes, bytes]] = {name: {} for name in ALL}
    for key, value in store.scan(b"", b"\xff"):
        found[key.split(b" ")[0].decode()][key] = value
    store.close()
    return found


def people(rows: dict[str, dict[bytes, bytes]], *names: str) -> set[tuple[str, str]]:
    places = (keys.place(key) for name in names for key in rows[name])
    return {(place.id, place.recipient) for place in places}


def repaired(home: Any, folder: Path) -> str:
    """What fsck says of a store whose damage LevelDB has found; a second look finds nothing."""
    (folder / REPAIR_MARK).write_text("a table is cut")
    said = " ".join(map(str, home.check(repair=True, folder=folder).problems))
    assert [one for one in home.check(folder=folder).problems if one.severity != "harmless"] == []
    return said


def wrong(name: str, before: dict[str, dict[bytes, bytes]], after: dict[str, dict[bytes, bytes]], said: str) -> str:
    """What is lost of the family, and neither there again nor said; "": nothing."""
    gone = before[name].keys() - after[name].keys()
    if name in ("delivery-zone", "deferred", "parked"):
        left = people(before, name) - people(after, "delivery-zone", "deferred", "parked")
        return str(sorted(one for one in left if f"{one[1]} is lost from a merged message" not in said))
    if name == "message":
        return str(sorted({key.split(b" ")[1].decode() for key in gone if key.split(b" ")[1].decode() not in said}))
    if name == "at":
        return str([key for key in gone if keys.indexed(key) in after[keys.indexed(key).split(b" ")[0].decode()]])
    if name == "campaign":
        gone = {key for key in gone if key[-1:] in b"*#"}
        changed = [key for key, value in before[name].items() if key[-1:] == b"#" and after[name].get(key) != value]
        return str([*gone, *changed])
    if name in _COUNTED_ANEW:
        return "[]" if families.lost() in said else "nothing is said"
    return str(sorted(gone))


async def test_each_family_comes_back_or_is_named(house: Make) -> None:
    """Also what only the whole store had is said; and the repaired queue is sound."""
    home = await lived(house)
    whole = home.image()
    home.abandon()
    before, faults = contents(whole), {}
    assert [name for name, rows in before.items() if not rows] == ["moving", "log", "ordered", "probe"]
    for name in [*ALL, "everything"]:
        copy = whole.with_name(f"without-{name}")
        shutil.copytree(whole, copy)
        if name == "everything":
            shutil.rmtree(copy / "store")
        else:
            store = Store(copy / "store")
            store.write([(key, None) for key in before[name]], sync=True)
            store.close()
        said, after = repaired(home, copy), contents(copy)
        missing = [name] if name != "everything" else [one for one in ALL if one not in _GOES_WITH_MAIL]
        faults |= {(name, one): found for one in missing if (found := wrong(one, before, after, said)) != "[]"}
        if name == "everything":
            ids = {key.split(b" ")[1].decode() for key in before["message"]}
            assert [one for one in ids if one not in said] == []
        shutil.rmtree(copy)
    assert faults == {}


async def test_a_queue_whose_store_is_gone_answers_as_before(house: Make) -> None:
    """Repeated requests, the list of those in doubt, a canceled campaign that is put again."""
    home = await lived(house)
    doubtful = await home.queue.ask("in-doubt")
    figures = {name: await home.queue.ask("campaign", name=name) for name in ("spring", "autumn")}
    copy = home.image()
    home.abandon()
    shutil.rmtree(copy / "store")
    home.folder = copy
    await home.open()
    keep = ("id", "zone", "recipient", "since_ms", "action")
    again = [{name: row[name] for name in keep} for row in await home.queue.ask("in-doubt")]
    assert again == [{name: row[name] for name in keep} for row in doubtful]
    for key, first in zip(("one", "two"), home.asked, strict=True):
        assert await home.queue.accept(request(key, f"{key}@r.test"), BODY) == first._replace(repeated=True)
    assert await home.queue.accept(request("three", "never@x.test"), BODY) == home.left_out._replace(repeated=True)
    ask = home.queue.ask
    await ask("campaign-put", name="autumn", sender="news@src.test", template=template("Bye"))
    autumn = await ask("campaign", name="autumn")
    assert (autumn["state"], autumn["cause"]) == ("canceled", "the wrong one")
    spring = await ask("campaign", name="spring")
    assert (spring["state"], spring["cause"]) == ("paused", "its template was lost by damage")
    for name in ("accepted", "delivered", "deferred", "bounced", "created_ms", "sender"):
        assert spring[name] == figures["spring"][name]
    assert spring["removed"] == spring["accepted"]
    with pytest.raises(QueueRefusal):
        home.queue.core.campaigns.chunks("spring", 1, 9)
    await ask("campaign-text", name="spring", template=template("Anew"), cause="")
    assert home.queue.core.campaigns.chunks("spring", 1, 9)
    assert len(Quarantine(copy / "quarantine").cases()) > 0
    await home.sound()
