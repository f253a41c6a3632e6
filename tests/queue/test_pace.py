"""Who may have how many of a zone's connections, by how quick it was."""

from zonemta_py.schedule.admission.zone_share import REMEMBERED_MAX, ZoneShare


def test_a_newcomer_has_one_connection_until_it_has_answered() -> None:
    """More only while nobody else has any, and never the last quarter."""
    pace = ZoneShare(20)
    assert pace.may("new", 0, 19, False)
    assert not pace.may("new", 1, 2, False)
    assert pace.may("new", 14, 14, False)
    assert not pace.may("new", 15, 15, False)


def test_a_quick_one_leaves_the_last_quarter_to_those_that_have_none() -> None:
    """However quick it is: it may turn slow."""
    pace = ZoneShare(20)
    pace.learn("quick", 100, 5000)
    assert pace.may("quick", 9, 14, False)
    assert not pace.may("quick", 9, 15, False)
    assert pace.may("quick", 0, 19, False)


def test_slow_ones_share_what_is_free() -> None:
    """A quarter of it each, and none of the last quarter; one that is being probed likewise."""
    pace = ZoneShare(20)
    pace.learn("slow", 6_000, 5000)
    assert pace.may("slow", 0, 14, False)
    assert not pace.may("slow", 0, 15, False)
    assert pace.may("slow", 2, 2, False)
    assert not pace.may("slow", 3, 3, False)
    assert not pace.may("unknown", 0, 15, True)


def test_a_large_message_may_take_its_time() -> None:
    """What its bytes excuse is not slow."""
    pace = ZoneShare(20)
    pace.learn("big", 60_000, 10_000_000)
    assert pace.may("big", 0, 19, False)


def test_a_small_zone_has_no_reserve() -> None:
    """One connection goes to whoever comes."""
    pace = ZoneShare(1)
    pace.learn("slow", 60_000, 0)
    assert pace.may("slow", 0, 0, False)


def test_what_is_remembered_is_bounded() -> None:
    """A flood of destinations costs no memory."""
    pace = ZoneShare(20)
    for number in range(2 * REMEMBERED_MAX):
        pace.learn(str(number), 0, 0)
    assert len(pace._took) <= REMEMBERED_MAX
