"""What is refused changes nothing: orders of every kind that cannot be carried out."""

from collections.abc import Callable
from typing import Any

from zonemta_py.disk import keys
from zonemta_py.merge.compile import prepare
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.queue.api import QueueRefusal

Make = Callable[..., Any]
ZONES = [{"name": "default", "default": True}, {"name": "bulk"}]
TEMPLATE = prepare(TemplateSource("t", Text("Hi"), Text("a@b.net"), text=Text("Hello\n"))).pack()
SPRING: dict[str, Any] = {"name": "spring", "sender": "a@b.net", "template": TEMPLATE}
GOOD = ["fine@x.test", "manual", "", "", ""]
SHOWN = ("standing", "tasks", "campaigns", "suppressions", "warmup", "guards", "accounts")
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("campaign-put", SPRING | {"sender": "other@b.net"}),
    ("campaign-put", SPRING | {"priority": 3}),
    ("campaign-put", SPRING | {"name": "new", "priority": 10}),
    ("campaign-put", SPRING | {"name": "new", "zone": "none"}),
    ("campaign-put", SPRING | {"name": "new", "life_h": 0}),
    ("campaign-put", SPRING | {"name": "new", "notify": "x"}),
    ("campaign-put", SPRING | {"name": "new", "bounds": {"late": 1}}),
    ("campaign-put", SPRING | {"name": "new", "hours": {"at": "noon"}}),
    ("campaign-put", SPRING | {"name": "new", "choice": {"of": ["spring", "none"]}}),
    ("campaign-put", SPRING | {"name": "new", "choice": {"of": ["spring", "gone"], "metric": "x"}}),
    ("campaign-put", SPRING | {"name": "a b"}),
    ("campaign-put", SPRING | {"name": "new", "template": b""}),
    ("campaign-schedule", {"name": "spring", "at": "noon"}),
    ("campaign-schedule", {"name": "spring", "at": "09:00", "time_zone": "Mars/City"}),
    ("campaign-schedule", {"name": "spring", "at": "09:00", "at_column": "x"}),
    ("campaign-schedule", {"name": "spring", "until": "2020-01-01"}),
    ("campaign-text", {"name": "spring", "template": TEMPLATE + b"x"}),
    ("campaign-text", {"name": "stopped", "template": b""}),
    ("campaign-decide", {"name": "spring", "winner": "stopped"}),
    ("campaign-pause", {"name": "gone"}),
    ("campaign-resume", {"name": "gone"}),
    ("campaign-complete", {"name": "gone"}),
    ("campaign-cancel", {"name": "none"}),
    ("campaign-pause", {"name": "none"}),
    ("stop", {"kind": "zone", "name": "none", "seconds": None, "cause": ""}),
    ("stop", {"kind": "planet", "name": "x", "seconds": None, "cause": ""}),
    ("stop", {"kind": "tenant", "name": "none", "seconds": 5, "cause": ""}),
    ("stop", {"kind": "campaign", "name": "none", "seconds": 5, "cause": ""}),
    ("stop", {"kind": "source", "name": "192.0.2.77", "seconds": 5, "cause": ""}),
    ("stop", {"kind": "domain", "name": "*.x", "seconds": 5, "cause": ""}),
    ("stop", {"kind": "zone", "name": "bulk", "seconds": -1, "cause": ""}),
    ("stop", {"kind": "zone", "name": "bulk", "seconds": None, "cause": "", "tenants": ["a"]}),
    ("lift", {"kind": "planet", "name": "x"}),
    ("warm", {"source": "192.0.2.77", "provider": "google", "step": 1}),
    ("suppress", {"rows": [GOOD, ["x", "manual", "", "", ""]]}),
    ("suppress", {"rows": [GOOD, ["b@x.test", "odd", "", "", ""]]}),
    ("suppress", {"rows": [GOOD, 5]}),
    ("unsuppress", {"addresses": ["bob@x.test", "@"]}),
    ("unsuppress", {"addresses": ["bob@x.test"], "scope": "a b"}),
    ("forget", {"address": "bob"}),
    ("task-start", {"id": "p1", "undo_s": -1}),
    ("task-start", {"id": "p1", "cause": "a\nb"}),
    ("task-start", {"id": "p9"}),
    ("task-undo", {"id": "p1"}),
    ("task-cancel", {"id": "9"}),
    ("task", {"verb": "delete", "where": {"zone": "none"}}),
    ("task", {"verb": "delete", "where": {"odd": "x"}}),
    ("task", {"verb": "move", "where": {"zone": "bulk"}, "set": {"zone": "none"}}),
    ("task", {"verb": "set", "where": {"zone": "bulk"}, "set": {"priority": 10}}),
    ("task", {"verb": "set", "where": {"zone": "bulk"}, "set": {"life_h": 1, "priority": "x"}}),
    ("task", {"verb": "set", "where": {"zone": "bulk"}}),
    ("task", {"verb": "hold", "where": {"state": "bounced"}}),
    ("task", {"verb": "hold", "where": {"zone": "bulk"}, "undo_s": 1e12}),
]


async def _all(home: Any) -> dict[str, Any]:
    """What operators see, and what is in the store, without what counts batches."""
    core = home.queue.core
    await core.disk.journal.stable()
    await core.disk.lines.stable()
    found: dict[str, Any] = {one: await home.queue.ask(one) for one in SHOWN}
    found |= {"mail": await home.listed(), "sizes": await home.sizes()}
    for name in ("spring", "stopped", "gone"):
        found[name] = await home.queue.ask("campaign", name=name)
        found[name].pop("history")
    kept = {key: value for key, value in core.disk.store.scan(b"", b"\xff") if key not in (keys.STATE, keys.TRACKED)}
    return found | {"store": kept, "records": core.disk.journal.next_seq}


async def _refused(home: Any, question: str, arguments: dict[str, Any]) -> bool:
    try:
        await home.queue.ask(question, **arguments)
    except (ValueError, QueueRefusal):
        return True
    return False


async def test_what_is_refused_changes_nothing(house: Make) -> None:
    """Neither what is shown nor what is stored, and no record is written."""
    home = await house(zones=ZONES)
    for name in ("spring", "stopped", "gone"):
        await home.queue.ask("campaign-put", **SPRING | {"name": name})
    await home.put("ann@one.test", campaign="shop", tenant="acme")
    await home.put("bob@one.test", sending_zone="bulk")
    await home.queue.ask("campaign-pause", name="stopped", cause="to look")
    await home.queue.ask("campaign-cancel", name="gone")
    await home.queue.ask("suppress", rows=[["bob@x.test", "manual", "", "", ""]])
    await home.queue.ask("stop", kind="zone", name="default", seconds=None, cause="rest")
    seen = await home.queue.ask("task-preview", verb="delete", where={"zone": "bulk"})
    await home.rest()
    assert seen["id"] == "p1"
    before = await _all(home)
    for question, arguments in REFUSED:
        assert await _refused(home, question, arguments), f"{question} {arguments} is taken"
        after = await _all(home)
        assert {name: after[name] for name in after if after[name] != before[name]} == {}, (question, arguments)
