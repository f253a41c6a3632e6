"""From records to events: every type as documented, older forms too, and nothing that a record holds can raise."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any, get_args

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
from cloudevents.core.formats.json import JSONFormat
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from zonemta_py import reference
from zonemta_py.config.services.events import EventType
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.events.derive import events_of
from zonemta_py.events.event import BYTES_MAX, Event, cloud_event, encoded, id_of, place_of
from zonemta_py.events.filter import EventFilter
from zonemta_py.events.schema import FIELDS, TYPES, json_schema
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type

TOP = Path(__file__).parents[2]
MS = 1_700_000_000_123
VALID = Draft202012Validator(json_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)
SOURCE = "0123456789abcdef"
FLOW = "mx.test~192.0.2.1~2~shop~spring"
TRACE = ["mx[1.2.3.4]:25", "10.0.0.1", "TLSv1.3 X", MS - 50, 50, "192.0.2.1", "mx.test", "google", []]


def events(kind: Type, body: Any, seq: int = 7) -> list[Event]:
    """The events of a record; each is what the schema says, and what the official SDK can read."""
    found = events_of(Record(seq, MS, int(kind), pack(body)))
    for event in found:
        check(event)
    return found


def check(event: Event) -> None:
    data = encoded(event, SOURCE)
    document = json.loads(data)
    VALID.validate(document)
    known = TYPES[event.type]
    assert set(event.data) <= {*known.certain, *known.others}, event.type
    read = from_structured_event(HTTPMessage({"content-type": "application/cloudevents+json"}, data), JSONFormat())
    assert read.get_id() == id_of(event, SOURCE)
    assert read.get_data() == event.data
    assert place_of(read.get_id(), SOURCE) == event.place


def told(kind: Type, body: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, event.data) for event in events(kind, body)]


def test_a_message_and_its_recipients() -> None:
    metadata = {
        "sender": "ann@src.test", "size": 99, "headers": {"subject": "Hi"}, "campaign": "spring", "tenant": "shop",
        "priority": 2, "origin": "10.0.0.9", "user": "ann", "protocol": "ESMTPA",
    }  # fmt: skip
    rows = [["default", "bob@X.test", 0, None], ["bulk", "eve@y.test", 0, None]]
    accepted, bob, eve = events(Type.ENVELOPE, ["m1", metadata, rows])
    assert (accepted.type, accepted.seq, accepted.part, accepted.ms) == ("accepted", 7, 0, MS)
    assert accepted.data == {
        "message": "m1", "recipients": 2, "zones": ["default", "bulk"], "sender": "ann@src.test", "size": 99,
        "subject": "Hi", "campaign": "spring", "tenant": "shop", "priority": 2, "origin": "10.0.0.9", "user": "ann",
        "protocol": "ESMTPA",
    }  # fmt: skip
    assert bob.type == eve.type == "queued"
    assert bob.data == {
        "message": "m1", "recipient": "bob@X.test", "domain": "x.test", "zone": "default", "sender": "ann@src.test",
        "size": 99, "campaign": "spring", "tenant": "shop", "priority": 2,
    }  # fmt: skip
    assert cloud_event(eve, SOURCE) == {
        "specversion": "1.0", "id": f"{SOURCE}-7-2", "source": f"urn:zonemta:{SOURCE}", "type": "zonemta.queued",
        "time": "2023-11-14T22:13:20.123Z", "datacontenttype": "application/json",
        "dataschema": "urn:zonemta:events:1", "data": eve.data, "subject": "m1",
    }  # fmt: skip


def test_an_attempt_knows_its_flow() -> None:
    body = [5, "m1", "default", FLOW, ["bob@x.test", ["eve@x.test", MS]], MS, "google", 99]
    bob, eve = events(Type.START, body)
    assert (bob.type, eve.data["recipient"]) == ("attempted", "eve@x.test")
    assert bob.data == {
        "message": "m1", "recipient": "bob@x.test", "domain": "x.test", "zone": "default", "site": "mx.test",
        "source": "192.0.2.1", "campaign": "spring", "tenant": "shop", "priority": 2, "provider": "google",
        "size": 99, "lease": 5, "started_ms": MS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "kind", "more"),
    [
        ([1, 250, "2.0.0", "ok", "dot", ["b@x.test"]], "delivered", {"code": 250, "stage": "dot"}),
        ([2, 451, "4.2.0", "later", "rcpt", [["b@x.test", 0, MS]]], "deferred", {"due_ms": MS}),
        ([3, 550, "5.1.1", "no", "rcpt", ["b@x.test"], True, "unknown-user", "r1"], "bounced", {
            "class": "unknown-user", "rule": "r1", "relayed": True}),
        ([3, 554, "5.4.7", "their relay gave up", "dot", ["b@x.test"]], "bounced", {"enhanced": "5.4.7"}),
        ([3, 451, "4.2.0", "later", "rcpt", ["b@x.test"]], "expired", {"code": 451}),
        ([3, 554, "5.4.7", "its time in the queue is over", "queue", ["b@x.test"]], "expired", {}),
        ([3, 554, "5.4.7", "its delivery deadline has passed (450 x)", "dot", ["b@x.test"]], "expired", {}),
        ([4, 450, "", "look at it", "plugin", ["b@x.test"]], "held", {"reply": "look at it"}),
        ([5, 451, "4.3.0", "no room", "limit", ["b@x.test"]], "requeued", {"stage": "limit"}),
        ([6, 451, "4.3.0", "at night", "queue", [["b@x.test", 0, MS]]], "postponed", {"due_ms": MS}),
    ],
)  # fmt: skip
def test_results(outcome: list[Any], kind: str, more: dict[str, Any]) -> None:
    ((name, data),) = told(Type.DELIVERY, [5, "m1", "default", FLOW, [outcome], TRACE])
    assert name == kind
    assert data.items() >= more.items()
    assert data.items() >= {
        "message": "m1", "recipient": "b@x.test", "zone": "default", "campaign": "spring", "tenant": "shop",
        "remote": "mx[1.2.3.4]:25", "took_ms": 50, "provider": "google", "site": "mx.test", "lease": 5,
    }.items()  # fmt: skip


def test_older_forms() -> None:
    """No trace beyond five fields, no class, no flow in the name, no provider and size of a START."""
    outcome = [1, 250, "2.0.0", "ok", "dot", ["b@x.test"]]
    ((name, data),) = told(Type.DELIVERY, [5, "m1", "default", "x.test", [outcome], ["mx", "", "", 0, 0]])
    assert (name, data["site"], "campaign" in data) == ("delivered", "x.test", False)
    assert told(Type.START, [5, "m1", "default", "x.test", ["b@x.test"], MS])[0][1]["site"] == "x.test"
    assert told(Type.SUPPRESS, [["b@x.test", "manual", MS, "", "", "ann", ""]])[0][1]["scope"] == "all"
    assert told(Type.UNSUPPRESS, [["b@x.test"], "ann"])[0][1]["scope"] == "all"
    assert told(Type.REMOVED, ["m1", "default", ["b@x.test"], "dropped"])[0][1]["reason"] == "dropped"


def test_what_ends_otherwise() -> None:
    assert told(Type.IN_DOUBT, [[5], [["m1", "default", "b@x.test", MS, "retry"]]]) == [
        ("in_doubt", {"message": "m1", "recipient": "b@x.test", "domain": "x.test", "zone": "default",
                      "started_ms": MS, "action": "retry"}),
    ]  # fmt: skip
    rows = [["m1", "default", "b@x.test", MS, "hold", FLOW], ["m1", "default", "c@x.test", MS, "retry", FLOW]]
    one, two, held = told(Type.IN_DOUBT, [[5], rows])
    assert [kind for kind, _ in (one, two, held)] == ["in_doubt", "in_doubt", "held"], "ids of old ones stay"
    assert held[1] == {
        "message": "m1", "recipient": "b@x.test", "domain": "x.test", "zone": "default", "started_ms": MS,
        "site": "mx.test", "source": "192.0.2.1", "priority": 2, "tenant": "shop", "campaign": "spring",
        "reason": "in doubt",
    }  # fmt: skip
    assert one[1] == {name: value for name, value in held[1].items() if name != "reason"} | {"action": "hold"}
    assert len(told(Type.IN_DOUBT, [[5, 6], [rows[0], rows[0]]])) == 3, "held once, though it was in two leases"
    assert [kind for kind, data in told(Type.IN_DOUBT, [[5, 6], []])] == ["requeued", "requeued"]
    ((kind, data),) = told(Type.MOVED, ["m1", "default", ["b@x.test"], MS])
    assert (kind, data["due_ms"]) == ("released", MS)
    ((kind, data),) = told(Type.MOVED, ["m1", "default", ["b@x.test"], MS, "2~shop~spring"])
    assert (data["campaign"], data["tenant"], data["priority"]) == ("spring", "shop", 2)
    assert "campaign" not in told(Type.MOVED, ["m1", "default", ["b@x.test"]])[0][1]
    assert told(Type.FINISH, ["m1"]) == [("finished", {"message": "m1"})]
    assert told(Type.FINISH, ["m1", "spring"]) == [("finished", {"message": "m1", "campaign": "spring"})]
    outcome = [1, 250, "", "ok", "dot", ["a@x.test", ["b@x.test", MS, 0], ["c@x.test", MS, 0, 3]]]
    found = told(Type.DELIVERY, [1, "m1", "default", FLOW, [outcome], TRACE])
    assert [data.get("attempts") for _, data in found] == [None, None, 3]
    where = {"destination": FLOW, "due": [], "envelope": {"sender": "a@b.test", "size": 3, "tenant": "else"}}
    ((kind, data),) = told(Type.REMOVED, ["m1", "default", ["b@x.test"], "suppressed: manual", where])
    assert (kind, data["reason"], data["campaign"], data["sender"]) == (
        "removed", "suppressed: manual", "spring", "a@b.test",
    )  # fmt: skip
    assert told(Type.REMOVED, ["m1", "d", ["b@x.test"], "lost", {"lost": "case-1"}])[0][1]["case"] == "case-1"
    assert told(Type.LOST, [3, 9]) == [("records_lost", {"first": 3, "last": 9})]


def test_people() -> None:
    row = ["b@x.test", "complaint", MS, "fbl", "report 1", "ann", "spring", "campaigns:shop"]
    (one, data), (two, again) = told(Type.SUPPRESS, [row])
    assert (one, two) == ("suppressed", "feedback")
    assert data == again
    assert data.items() >= {"campaign": "spring", "tenant": "shop", "scope": "campaigns:shop"}.items()
    assert told(Type.SUPPRESS, [[*row, [], True]]) == [], "the list is written again, nobody has complained"
    assert told(Type.UNSUPPRESS, [[], "whole"]) == []
    ((kind, data),) = told(Type.UNSUPPRESS, [["b@x.test"], "ann", ["zone:bulk"]])
    assert (kind, data["zone"]) == ("unsuppressed", "bulk")
    for scope, tenant in (("list:shop/weekly.example", "shop"), ("list:weekly.example", None)):
        ((_, data),) = told(Type.UNSUPPRESS, [["b@x.test"], "ann", [scope]])
        assert (data["scope"], data.get("tenant")) == (scope, tenant)


@pytest.mark.parametrize(
    ("body", "kind", "more"),
    [
        (["stop", ["campaign", "spring"], [0, MS, True, MS], "why"],
         "suspended", {"campaign": "spring", "cause": "why"}),
        (["stop", ["rest", "192.0.2.1 mx.test"], [MS, MS], ""], "suspended", {"site": "mx.test", "until_ms": MS}),
        (["stop", ["guard", "google 192.0.2.1"], [0, MS, False, MS], "20 people"],
         "guard_raised", {"provider": "google", "source": "192.0.2.1"}),
        (["lift", ["guard", "x.test"], MS, "it has been calm"], "guard_lifted", {"provider": "x.test"}),
        (["stop", ["reroute", "bulk x.test"], [9, MS, True, MS, [], "pool two"], "by ann"], "rerouted",
         {"zone": "bulk", "reason": "to pool two"}),
        (["lift", ["reroute", "* x.test"], MS, "by an operator"], "reroute_ended", {}),
        (["lift", ["tenant", "shop"], None, "by an operator"], "resumed", {"tenant": "shop"}),
        (["lift", ["resting", "default x.test 192.0.2.1"], None, ""], "resumed", {"zone": "default", "site": "x.test"}),
        (["lift", ["rate", "192.0.2.1 google"], None, ""], "rate_changed", {"name": "192.0.2.1 google"}),
        (["rate", ["192.0.2.1", "google"], {"rate": 2.5}, "x"], "rate_changed", {"rate": 2.5, "source": "192.0.2.1"}),
        (["rate", ["", "x.test"], {}, ""], "rate_changed", {"provider": "x.test"}),
        (["concurrency", ["concurrency", "default x.test "], [[3, 1, 1, 0, False, ""], MS], "421"],
         "concurrency_changed", {"window": 3, "zone": "default"}),
        (["manner", ["recipients", "x.test"], [10, MS], "452"], "manner_changed", {"most": 10, "site": "x.test"}),
        (["warmup", ["192.0.2.1", "google"], None, "good"], "warmup_changed", {"provider": "google"}),
        (["warmup", ["192.0.2.1", "google"], [3, MS], "set"], "warmup_changed", {"good_days": 3}),
        (["begin", ["campaign", "spring"], {"tenant": "shop", "planned": 9}, ""], "campaign_begun", {"planned": 9}),
        (["cancel", ["campaign", "spring"], [MS, MS], "x"], "campaign_canceled", {"campaign": "spring"}),
        (["complete", ["campaign", "spring"], [MS, MS], ""], "campaign_completed", {"campaign": "spring"}),
        (["winner", ["campaign", "spring"], [MS, MS, "spring.b"], "x"], "campaign_decided", {"winner": "spring.b"}),
        (["clock", ["clock", ""], [], "the machine's clock was set"], "clock_set", {}),
        (["lost", ["lost", "orders"], MS, "damage"], "orders_lost", {"name": "orders", "since_ms": MS}),
        (["configuration", ["configuration", ""], ["a.b"], ""], "configuration_changed", {"changed": ["a.b"]}),
        (["of tomorrow", ["zone", "default"], 9, "?"], "policy_changed", {"reason": "of tomorrow", "zone": "default"}),
    ],
)  # fmt: skip
def test_policy(body: list[Any], kind: str, more: dict[str, Any]) -> None:
    ((name, data),) = told(Type.STANDING, body)
    assert name == kind
    assert data.items() >= more.items()


def test_how_long_limits_held_mail_is_no_event() -> None:
    """It is said once a minute for each, for summaries."""
    assert told(Type.STANDING, ["waited", ["limit", "slow"], {"ms": 1, "times": 1}, ""]) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
kinds = st.sampled_from([*map(int, Type), 99])


@given(kinds, st.lists(values, max_size=10) | values, st.integers(0, 2**63))
def test_no_record_raises(kind: int, body: Any, ms: int) -> None:
    for event in events_of(Record(1, ms, kind, pack(body))):
        assert event.type in TYPES
        assert len(encoded(event, SOURCE)) <= BYTES_MAX


@given(kinds, st.binary(max_size=50))
def test_no_bytes_raise(kind: int, body: bytes) -> None:
    events_of(Record(1, MS, kind, body))


SHAPES: list[tuple[Type, list[Any]]] = [
    (Type.START, [5, "m1", "default", FLOW, ["b@x.test"], MS, "google", 99]),
    (Type.DELIVERY, [5, "m1", "d", FLOW, [[2, 451, "4.2.0", "x", "rcpt", [["b@x", 0, 1]], True, "c", "r"]], TRACE]),
    (Type.ENVELOPE, ["m1", {"sender": "a"}, [["default", "b@x.test", 0, None]]]),
    (Type.REMOVED, ["m1", "default", ["b@x.test"], "dropped", {"destination": FLOW, "due": []}]),
    (Type.SUPPRESS, [["b@x.test", "manual", MS, "", "", "ann", "", "all", [], False]]),
    (Type.STANDING, ["stop", ["zone", "default"], [0, MS, True, MS], "why"]),
]


@pytest.mark.parametrize(("kind", "body"), SHAPES)
@pytest.mark.parametrize("cut", range(10))
def test_fields_that_older_versions_did_not_write(kind: Type, body: list[Any], cut: int) -> None:
    """Cut anywhere, at every depth: no event is wrong, and none raises."""

    def shorter(value: Any) -> Any:
        return [shorter(one) for one in value[: max(0, len(value) - cut)]] if isinstance(value, list) else value

    for one in (body[: max(0, len(body) - cut)], shorter(body)):
        for event in events_of(Record(1, MS, int(kind), pack(one))):
            VALID.validate(json.loads(encoded(event, SOURCE)))


def test_archives_of_earlier_versions(tmp_path: Path) -> None:
    for path in sorted((TOP / "tests" / "upgrade").glob("*.tar.xz")):
        folder = tmp_path / path.name
        with tarfile.open(path) as packed:
            packed.extractall(folder, filter="data")
        queue = folder / "queue"
        found = dict[str, int]()
        for record in segments.read_files(segments.every_file(queue / "journal", queue / "archive")):
            for event in events_of(record):
                check(event)
                found[event.type] = found.get(event.type, 0) + 1
        assert found.keys() >= {"accepted", "queued", "attempted", "delivered", "bounced", "finished"}, path.name


def test_long_texts_are_cut_and_it_says_so() -> None:
    data = {"message": "m", "recipient": "b@x", "reply": "é" * 9000, "subject": "s" * 400}
    event = Event(1, 0, "bounced", MS, data)
    document = json.loads(encoded(event, SOURCE))
    assert len(encoded(event, SOURCE)) <= BYTES_MAX
    assert document["data"]["cut"] == ["reply"]
    assert document["data"]["reply"] == "é" * 1000
    VALID.validate(document)
    many = Event(1, 0, "configuration_changed", MS, {"changed": [f"zones.{n}.connections" for n in range(3000)]})
    document = json.loads(encoded(many, SOURCE))
    assert (len(document["data"]["changed"]), document["data"]["cut"]) == (200, ["changed"])


def test_filters() -> None:
    (accepted, bob, eve) = events(
        Type.ENVELOPE, ["m1", {"campaign": "spring"}, [["default", "Bob@X.test"], ["bulk", "eve@y.test"]]]
    )
    for given_, wanted in [
        (EventFilter.of(), [True] * 3),
        (EventFilter.of(types=["zonemta.queued", "in-doubt"]), [False, True, True]),
        (EventFilter.of(zones=["bulk"]), [True, False, True]),
        (EventFilter.of(domains=["X.TEST"]), [False, True, False]),
        (EventFilter.of(domains=["*.test"]), [False, True, True]),
        (EventFilter.of(domains=["*.x.test"]), [False] * 3),
        (EventFilter.of(recipients=["bob@x.test"], campaigns=["spring"]), [False, True, False]),
        (EventFilter.of(campaigns=["autumn"]), [False] * 3),
        (EventFilter.of(messages=["m1"], types=["accepted"]), [True, False, False]),
        (EventFilter.of(tenants=["shop"]), [False] * 3),
    ]:
        assert [given_.wants(event) for event in (accepted, bob, eve)] == wanted
    with pytest.raises(ValueError, match="there is no type of event 'exploded'; there are accepted, queued"):
        EventFilter.of(types=["exploded"])


def test_what_is_of_no_tenant() -> None:
    """What names its mail's tenant, and names none; not what belongs to everybody, or to nobody known."""
    wanted = EventFilter.of(tenants=[""])
    found = [
        wanted.wants(Event(1, 0, kind, 1, data))
        for kind, data in (
            ("delivered", {"message": "1", "recipient": "a@b.test"}), ("delivered", {"tenant": "one"}),
            ("finished", {"message": "1"}), ("task", {"task": 1}), ("suppressed", {"scope": "all"}),
        )
    ]  # fmt: skip
    assert found == [True, False, False, False, False]


@pytest.mark.parametrize("id", ["", "x", "a-b-c", f"{SOURCE}-1", f"{SOURCE}-1-x", "other-1-1", f"{SOURCE}--1-2-"])
def test_ids_that_are_none(id: str) -> None:
    with pytest.raises(ValueError, match=r"is not the id of an event|of another queue"):
        place_of(id, SOURCE)


def test_every_field_and_type_is_used() -> None:
    assert get_args(EventType) == tuple(TYPES), "of what a sink may ask for"
    used = {name for kind in TYPES.values() for name in (*kind.certain, *kind.others)}
    assert used | {"cut"} == set(FIELDS)
    Draft202012Validator.check_schema(json_schema())


def test_the_schema_file_is_what_the_code_says() -> None:
    """`python -m zonemta_py.reference --events > config/events.schema.json` makes it."""
    assert (TOP / "config" / "events.schema.json").read_text("utf-8") == reference.events()


def test_the_documentation_has_the_same_table() -> None:
    text = (TOP / "docs" / "EVENTS.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", text, re.MULTILINE))
    assert {name: rows.get(name) for name in TYPES} == {name: kind.records for name, kind in TYPES.items()}
    fields = re.findall(r"^- `(\w+)`: (.+)$", text, re.MULTILINE)
    assert dict(fields) == {name: what for name, (_, what) in FIELDS.items()}
