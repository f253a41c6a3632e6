"""What nodes say of themselves before a campaign is planned, and what becomes of it."""

import pytest

from zonemta_py.cli.campaign.planning import NodeTerms, ask, caps, joined, lanes, warned
from zonemta_py.cli.terminal.errors import CommandError
from zonemta_py.pipeline.nodes.client import NodeAccess
from zonemta_py.pipeline.prepare.settings import Cap, Lane

TERMS = NodeTerms(
    {"news": {"192.0.2.1": 3, "192.0.2.2": 1}, "plain": {}},
    {("192.0.2.1", "*"): (50, 100), ("192.0.2.1", "google"): (7, 500), ("192.0.2.1", "microsoft"): ()},
    {"gmail.com": "google", "outlook.com": "microsoft", "gmx.net": "gmx"},
)


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        (Lane("nwes"), "--zone nwes: there is no such zone; there are news, plain"),
        (Lane("news", "192.0.2.9"), "--source 192.0.2.9: zone news has 192.0.2.1, 192.0.2.2; name one of them"),
        (Lane("plain", "192.0.2.1"), "--source 192.0.2.1: zone plain has no source addresses; name one of them"),
    ],
)
def test_ways_that_no_node_has(lane: Lane, said: str) -> None:
    """Said before the list is read, and not by the node when the first batch comes."""
    with pytest.raises(CommandError) as caught:
        lanes(TERMS, (lane,), 1)
    assert caught.value.sentence == said


def test_a_zone_that_warms_up_is_planned_over_days() -> None:
    """By its sources, as heavy as they are in their pool; without days it is the node's, and a sentence says so."""
    assert lanes(TERMS, (Lane("news"),), 1) == (Lane("news"),)
    (sentence,) = warned(TERMS, (Lane("news"),), 1)
    assert "zone news warms up 192.0.2.1" in sentence
    assert "--days plans it for later days" in sentence
    ways = lanes(TERMS, (Lane("news"), Lane()), 7)
    assert ways == (Lane("news", "192.0.2.1", 0.75), Lane("news", "192.0.2.2", 0.25), Lane())
    assert warned(TERMS, (Lane("news"),), 7) == []
    assert warned(TERMS, (Lane("plain"), Lane()), 1) == []


def test_caps_are_the_nodes_where_no_option_says_them() -> None:
    """Each provider has what is left today, and then its days; where it is warm there, none."""
    ways = (Lane("news", "192.0.2.1"), Lane("news", "192.0.2.2"), Lane())
    assert caps(TERMS, ways, ()) == (Cap("192.0.2.1", "google", (7, 500)), Cap("192.0.2.1", "gmx", (50, 100)))
    given = (Cap("192.0.2.1", "google", (1,)),)
    assert caps(TERMS, ways, given) == (Cap("192.0.2.1", "gmx", (50, 100)),)
    assert caps(None, ways, ()) == ()


def test_several_nodes_are_planned_as_one() -> None:
    """What all have; of warm-up as much as the one that allows least, for each."""
    warms = [{"source": "192.0.2.1", "provider": "google", "per_day": [10, 20]}]
    zones = [{"name": "a", "sources": [{"address": "192.0.2.1", "weight": 1}]}, {"name": "b", "sources": []}]
    one = {"zones": zones, "warming": warms, "providers": {}}
    other = {"name": "a", "sources": [{"address": "192.0.2.2", "weight": 1}]}
    two = {"zones": [other], "warming": [warms[0] | {"per_day": [5, 50]}], "providers": {}}
    assert joined([one, two]) == NodeTerms({"a": {}}, {("192.0.2.1", "google"): (10, 100)}, {})
    assert joined([one]).zones == {"a": {"192.0.2.1": 1}, "b": {}}


def test_a_node_that_may_not_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan goes on with what the options say; a node that is away is another matter."""
    with pytest.raises(CommandError, match="it does not answer"):
        ask(NodeAccess(("http://127.0.0.1:1",), "k", patience_s=0))
    assert capsys.readouterr().err == ""
