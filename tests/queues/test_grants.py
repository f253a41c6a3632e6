"""Several queues share limits exactly: a model in simulated time, with everything that can be late, lost, or killed."""

import random

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharing import Case, Demand, Fault, Limit, World, random_case

from zonemta_py.queues.grants.authority import GrantAuthority
from zonemta_py.queues.grants.holder import GrantHolder
from zonemta_py.queues.grants.messages import Asking

ONE_OF_EACH = (1.0, 1.0, 1.0, 1.0)


def served(world: World) -> list[int]:
    """Deliveries of each flow, queue by queue."""
    return [len(flow.went) for queue in world.queues for flow in queue.flows]


@settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_no_limit_is_exceeded_whatever_happens(source: random.Random) -> None:
    """In no interval, by no kind: connections are cut, queues and authority are killed and stopped, limits change."""
    case = random_case(source, seconds=12)
    world = World(case).run()
    assert world.check() == [], case


@pytest.mark.parametrize(
    "kill", [Fault(0, "kill", 0, 0.1), Fault(0, "stop", 0, 4.0), Fault(0, "kill-authority", 0, 0.1)]
)
def test_a_cost_above_the_burst_is_not_forgotten_with_who_took_it(kill: Fault) -> None:
    """Ten times the burst goes, and then nothing for as long as that takes: also if nobody has told the authority."""
    demand = Demand(["size"], (1, 1, 1, 10))
    for seed in range(12):
        faults = [Fault(3 + 2.3 * seed, kill.what, seed % 2, kill.for_s), Fault(40, "kill-authority", 0, 1.0)]
        case = Case(seed, 2, [Limit("size", {"bytes": (1, 1)})], [(0, demand), (1, demand)], faults, seconds=60)
        world = World(case).run()
        assert world.check() == []
        assert sum(served(world)) >= 3


@pytest.mark.parametrize(
    "limit",
    [
        Limit("fast", {"messages": (300, 300)}),
        Limit("small burst", {"messages": (100, 4)}),
        Limit("exactly divided", {"recipients": (3, 3)}),
        Limit("undivided", {"new_connections": (10, 1)}),
        Limit("undivided and slow", {"messages": (1, 1)}),
        Limit("less than one each", {"messages": (2, 1.7)}),
        Limit("large costs", {"bytes": (10, 10)}),
    ],
    ids=lambda limit: limit.name,
)
def test_a_rate_that_all_want_is_used(limit: Limit) -> None:
    """By three queues as by one, and none has much less than the others."""
    demand = Demand([limit.name], (1, 1, 1, 6), at_once=1000)
    world = World(Case(1, 3, [limit], [(queue, demand) for queue in range(3)], seconds=33)).run()
    assert world.check() == []
    assert next(iter(world.used(3).values())) > 0.9
    assert min(served(world)) > 0.15 * sum(served(world))


def test_a_queue_gets_what_another_does_not_use() -> None:
    """One needs a tenth of the rate; a third one comes and goes."""
    little, much = Demand(["rate"], at_once=1, holds_s=0.1), Demand(["rate"], at_once=1000)
    now_and_then = Demand(["rate"], at_once=1000, on_s=2, off_s=2)
    demands = [(0, little), (1, much), (2, now_and_then)]
    world = World(Case(1, 3, [Limit("rate", {"messages": (100, 100)})], demands, seconds=60)).run()
    assert world.check() == []
    assert world.used(3)["messages", "rate"] > 0.9
    few, many, _ = served(world)
    assert few > 350
    assert many > 2500


@pytest.mark.parametrize("holds_s", [0.05, 0.5])
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_slots_go_round(slots: int, holds_s: float) -> None:
    """They are in use all the time, by all three; with one connection, too."""
    demand = Demand(["slots"], at_once=50, holds_s=holds_s)
    world = World(Case(1, 3, [Limit("slots", slots=slots)], [(queue, demand) for queue in range(3)], seconds=40)).run()
    assert world.check() == []
    assert world.open_s["connections", "slots"] / slots / 40 > 0.9
    assert min(served(world)) > 0.2 * sum(served(world))


@pytest.mark.parametrize("quota", [1, 7, 500])
def test_a_quota_is_used_up(quota: int) -> None:
    """By whoever wants it, and not exceeded, also while queues are killed."""
    demand = Demand(["quota"], at_once=5, holds_s=0.01)
    faults = [Fault(at, "kill", at % 3, 0.1) for at in (1, 2, 3)] + [Fault(2.5, "kill-authority", 0, 0.5)]
    demands = [(queue, demand) for queue in range(3)]
    world = World(Case(1, 3, [Limit("quota", quota=quota)], demands, faults, seconds=30)).run()
    assert world.check() == []
    assert len(world.taken["quota", "quota"]) == quota


@pytest.mark.parametrize("one", [Limit("one", slots=1), Limit("one", {"messages": (5, 1)})], ids=["slot", "rate"])
@pytest.mark.parametrize("other", [Limit("other", slots=1), Limit("other", {"bytes": (1, 1)})], ids=["slot", "rate"])
def test_nobody_waits_for_ever_who_needs_two(one: Limit, other: Limit) -> None:
    """Both undivided: two queues need both at once, one needs the first, one the second."""
    both = Demand(["one", "other"], holds_s=0.2)
    demands = [(0, both), (1, both), (2, Demand(["one"], holds_s=0.2)), (3, Demand(["other"], holds_s=0.2))]
    world = World(Case(1, 4, [one, other], demands, seconds=60)).run()
    assert world.check() == []
    assert min(served(world)) >= 4


def test_a_debt_is_not_forgotten_with_a_queue_that_got_part_of_it() -> None:
    """Its process has ended just then."""
    authority, limit = GrantAuthority(range(2), "era", 0.0), ("bytes", "limit")
    for queue in range(2):
        authority.connected(queue, 0.0)
        authority.heard(queue, (1, "process", False, 0.0, [], "hello"), 0.0)
    authority.tick(0.0)
    authority.heard(0, (1, False, 0.1, [(limit, 10, 10, 0, -1000.0, 0.0, False, 0, 1000.0)], [], [], "asking"), 0.1)
    row = (limit, 10, 10, 0, 0.0, 0.0, True, 0, 1.0)
    for queue in range(2):
        authority.heard(queue, (1, False, 0.2, [row], [(1, [(limit, 1.0)])], [], "asking"), 0.2)
    levels = [granted.level for _, message in authority.tick(0.2) for granted in message.adds]
    assert sum(levels) == pytest.approx(-989)
    authority.connected(1, 0.3)
    authority.tick(0.3)
    authority.heard(1, (2, "another process", False, 0.3, [], "hello"), 0.3)
    authority.heard(1, (2, False, 0.4, [row], [(1, [(limit, 1.0)])], [], "asking"), 0.4)
    (again,) = [granted.level for queue, message in authority.tick(0.4) for granted in message.adds if queue == 1]
    assert again == pytest.approx(-989 / 2, abs=5)


def test_a_bound_that_is_higher_than_what_a_queue_has_gives_it_nothing() -> None:
    """It had given some back before it heard of that."""
    holder = GrantHolder("process", 3)
    quota = holder.count(("quota", "limit"), 10)
    holder.heard(("era", 1, 1, False, 0.0, "welcome"), 0.0)
    assert holder.next_message(0.0) is not None
    holder.heard((1, 0.1, 0.0, [(quota.id, 2, 0.0, -1.0)], [(quota.id, 5)], "granting"), 0.1)
    message = holder.next_message(0.2)
    assert isinstance(message, Asking)
    assert [row.back for row in message.rows] == [0]
    assert (quota.granted, quota.room) == (2, 2)


def granted(holder: GrantHolder, rows: list[tuple[object, ...]], now: float) -> None:
    """The authority gives that."""
    holder.heard((1, now, now, rows, [], "granting"), now)


def connected(queues: int = 3) -> GrantHolder:
    holder = GrantHolder("process", queues)
    holder.heard(("era", 1, 1, False, 0.0, "welcome"), 0.0)
    assert holder.next_message(0.0) is not None
    return holder


def said(holder: GrantHolder, start: float, end: float) -> list[Asking]:
    """All that it says in that time."""
    found, now = list[Asking](), start
    while now < end:
        message = holder.next_message(now)
        if isinstance(message, Asking):
            found.append(message)
        now += 0.005
    return found


def test_a_connection_is_kept_for_mail_that_a_rate_allows_in_a_moment() -> None:
    """Else it goes back before it can be used, and so does the rate, again and again."""
    holder = connected()
    rate, slot = holder.rate(("messages", "limit"), 1, 1, 0.0), holder.count(("connections", "limit"), 1)
    holder.need([(rate, 1.0), (slot, 1.0)], 0.1)
    granted(holder, [(rate.id, 720_720, 0.9, 1.0), (slot.id, 1, 0.0, 1.0)], 0.2)
    assert all(row.back == 0 for message in said(holder, 0.2, 0.29) for row in message.rows)
    assert rate.wait(0.305) == 0.0
    assert slot.room == 1


def test_mail_that_is_gone_wants_nothing_any_more() -> None:
    """It had all that it needed, and did not go: it does not compete with others for ever."""
    holder = connected()
    rate, slot = holder.rate(("messages", "limit"), 1, 1, 0.0), holder.count(("connections", "limit"), 1)
    holder.need([(rate, 1.0), (slot, 1.0)], 0.1)
    (asked,) = [message for message in said(holder, 0.1, 0.12) if message.needs]
    granted(holder, [(rate.id, 720_720, 1.0, 1.0), (slot.id, 1, 0.0, 1.0)], 0.2)
    messages = said(holder, 0.2, 0.6)
    assert [number for message in messages for number in message.served] == [asked.needs[0][0]]
    assert [message.needs for message in messages if message.needs] == []
    assert sorted(row.id[0] for message in messages for row in message.rows if row.back) == ["connections", "messages"]


def test_a_connection_that_is_free_again_is_told_where_mail_waits_for_more() -> None:
    """Although no other queue wants it: else what it needs together is never granted."""
    holder = connected()
    rate, slot = holder.rate(("messages", "limit"), 1, 1, 0.0), holder.count(("connections", "limit"), 1)
    granted(holder, [(slot.id, 1, 0.0, 0.0)], 0.1)
    slot.take()
    holder.need([(rate, 1.0), (slot, 1.0)], 0.2)
    assert [row.in_use for message in said(holder, 0.2, 0.3) for row in message.rows if row.id == slot.id] == [1]
    slot.release()
    assert [row.in_use for message in said(holder, 0.3, 0.4) for row in message.rows if row.id == slot.id] == [0]


def test_a_queue_without_mail_leaves_its_connections_to_others() -> None:
    """Also the last one."""
    demand = Demand(["slots"], at_once=50)
    world = World(Case(1, 2, [Limit("slots", slots=2)], [(0, demand), (1, Demand(["slots"], at_once=0))], seconds=40))
    first, second = world.queues[0].flows[0], world.queues[1].flows[0]
    world.at(10, lambda: setattr(first, "demand", second.demand))
    world.at(10, lambda: (setattr(second, "demand", demand), world.queues[1].soon(second)))
    world.run()
    assert world.check() == []
    assert world.open_s["connections", "slots"] / 2 / 40 > 0.9


def test_a_queue_alone_has_all_and_says_little() -> None:
    """Its limits are whole buckets: there is a message each half second, and no other."""
    demand = Demand(["rate", "slots"], at_once=50, holds_s=0.01)
    limits = [Limit("rate", {"messages": (100, 100)}), Limit("slots", slots=3)]
    world = World(Case(1, 2, limits, [(0, demand)], seconds=20)).run()
    assert served(world)[0] > 1900
    assert world.messages < 2 * 2 * 20 * 2.2


def test_messages_are_ready_for_msgpack() -> None:
    """What comes out of it is understood as what went in."""
    authority, holder = GrantAuthority(range(1), "era", 0.0), GrantHolder("process", 1)
    rate, slots = holder.rate(("messages", "limit"), 1, 1, 0.0), holder.count(("connections", "limit"), 1)
    authority.connected(0, 0.0)
    for step in range(20):
        now = step / 10
        holder.need([(rate, 1.0), (slots, 1.0)], now)
        for _, message in authority.tick(now):
            holder.heard(msgpack.unpackb(msgpack.packb(message)), now)
        if (message := holder.next_message(now)) is not None:
            authority.heard(0, msgpack.unpackb(msgpack.packb(message)), now)
    assert rate.wait(2.0) == 0.0
    assert slots.room == 1
