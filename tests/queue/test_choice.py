"""A campaign whose template is chosen between variants that were sent before."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.test_campaigns import batch, template, tick
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.campaigns.choice import VariantFigures, certainty

Make = Callable[..., Any]
HOUR_S = 3600


async def put(home: Any, name: str, text: str, **more: Any) -> Any:
    return await home.queue.ask("campaign-put", name=name, sender="news@src.test", template=template(text), **more)


async def opened(house: Make, clicks: dict[str, int], sent: int = 4, **choice: Any) -> Any:
    """Two variants with so many clicks each, and the rest, which waits."""
    home = await house(return_path={"verp": "b.test", "secret": "s" * 16})
    for name in ("spring.a", "spring.b"):
        await put(home, name, f"{name} {{{{ name }}}}\n")
        for number in range(sent):
            await home.queue.accept(batch(f"{name[-1]}{number}@x.test", campaign=name), b"")
    for delivery in await home.lease(100) if sent else []:
        await home.settle(delivery)
    await home.rest()
    for name, count in clicks.items():
        rows = [
            Feedback("click", f"{name[-1]}{n}@x.test", campaign=name, genuine="token", text="1", name=f"{name}{n}")
            for n in range(count)
        ]
        assert await home.queue.feedback(rows) == [True] * count
    asked = {"of": ["spring.a", "spring.b"], "metric": "clicks", "after_h": 4, **choice}
    await put(home, "spring", "spring.a {{ name }}\n", choice=asked)
    await home.queue.accept(batch("rest@x.test"), b"")
    await home.rest()
    return home


async def shown(home: Any) -> dict[str, Any]:
    row: dict[str, Any] = await home.queue.ask("campaign", name="spring")
    return row


async def text(home: Any) -> str:
    (delivery,) = await home.lease()
    assert delivery.campaign == "spring"
    packed = await home.queue.template("spring")
    await home.settle(delivery)
    return "spring.a" if b"spring.a" in packed else "spring.b"


async def test_the_rest_waits_for_the_best_variant(house: Make) -> None:
    """Until the hour, over crashes; then it goes with that template, once, and the cause has the figures."""
    home = await opened(house, {"spring.a": 1, "spring.b": 3})
    for _ in range(2):
        await tick(home)
        assert await home.idle()
        row = await shown(home)
        assert (row["state"], row["cause"]) == ("paused", "waits for the best of spring.a, spring.b")
        assert row["variants"]["figures"] == [
            {"name": "spring.a", "hits": 1, "of": 4},
            {"name": "spring.b", "hits": 3, "of": 4},
        ]
        with pytest.raises(ValueError, match="waits for the best of its variants; choose one"):
            await home.queue.ask("campaign-resume", name="spring")
        await home.crash()
    await home.move(4 * HOUR_S)
    await tick(home)
    row = await shown(home)
    assert (row["state"], row["variants"]["winner"]) == ("running", "spring.b")
    assert row["cause"].startswith("spring.b has 75.0% (3 of 4) clicks, spring.a 25.0% (1 of 4); certain to 9")
    assert await text(home) == "spring.b"
    await home.sound()


@pytest.mark.parametrize("written", [True, False])
async def test_a_crash_amid_the_choice_is_finished(house: Make, written: bool) -> None:
    """Whether the store had it or not: the record in the journal counts."""
    home = await opened(house, {"spring.b": 2})
    if not written:
        home.queue.core.lines._start = lambda: None  # nothing more reaches the store
    await home.queue.ask("campaign-decide", name="spring", winner="spring.b")
    await home.crash(power=not written)
    await tick(home)
    assert (await shown(home))["variants"]["winner"] == "spring.b"
    assert await text(home) == "spring.b"
    await home.sound()


async def test_a_person_chooses(house: Make) -> None:
    """At any time, any of them, once; the same campaign can be put again all the same."""
    home = await opened(house, {"spring.b": 3}, after_h=0)
    await home.move(100 * HOUR_S)
    await tick(home)
    assert (await shown(home))["state"] == "paused"
    with pytest.raises(ValueError, match=r"'other' is no variant of 'spring'; use spring.a, spring.b"):
        await home.queue.ask("campaign-decide", name="spring", winner="other")
    await home.queue.ask("campaign-decide", name="spring", winner="spring.a", cause="we like it")
    await home.rest()
    row = await home.queue.ask("campaign-decide", name="spring")
    assert (row["state"], row["cause"]) == ("running", "we like it")
    with pytest.raises(ValueError, match=r"'spring.a' was chosen already: we like it"):
        await home.queue.ask("campaign-decide", name="spring", winner="spring.b")
    choice = {"of": ["spring.a", "spring.b"], "metric": "clicks", "after_h": 0}
    assert await put(home, "spring", "spring.a {{ name }}\n", choice=choice) == {"created": False}
    assert await text(home) == "spring.a"


async def test_variants_that_waited_have_their_time(house: Make) -> None:
    """The hours count from their first results, not from when the campaign was made."""
    home = await opened(house, {}, sent=0)
    await home.move(10 * HOUR_S)
    for name in ("spring.a", "spring.b"):
        await home.queue.accept(batch(f"{name[-1]}@x.test", campaign=name), b"")
    await tick(home)
    for delivery in await home.lease(5):
        await home.settle(delivery)
    for state in ("paused", "running"):
        await tick(home)
        assert (await shown(home))["state"] == state
        await home.move(5 * HOUR_S)
        await tick(home)


async def test_nothing_is_chosen_while_nothing_is_known(house: Make) -> None:
    """No variant was delivered to anybody: the rest waits on."""
    home = await opened(house, {}, sent=0)
    await home.move(10 * HOUR_S)
    await tick(home)
    assert (await shown(home))["state"] == "paused"
    with pytest.raises(ValueError, match="nothing of the variants was delivered yet"):
        await home.queue.ask("campaign-decide", name="spring")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"of": ["spring.a"]}, "variants are 2 to 10 campaigns"),
        ({"of": ["spring.a", "spring.a"]}, "variants are 2 to 10 campaigns"),
        ({"of": ["spring.a", "none"]}, "there is no campaign 'none', to be a variant"),
        ({"of": ["spring.a", "late"]}, "there is no campaign 'late'"),
        ({"of": ["spring.a", "spring.b"], "metric": "sales"}, "there is no metric 'sales'; use clicks, opens"),
        ({"of": ["spring.a", "spring.b"], "after_h": -1}, "after_h is -1; give hours"),
    ],
)
async def test_what_cannot_be_chosen_from_is_refused(house: Make, choice: dict[str, Any], said: str) -> None:
    """With what there is."""
    home = await opened(house, {}, sent=0)
    with pytest.raises(ValueError, match=said):
        await put(home, "late", "x\n", choice=choice)


def test_how_certain_a_difference_is() -> None:
    """By the usual test of two shares."""
    assert certainty(VariantFigures("a", 50, 1000), VariantFigures("b", 50, 1000)) == 0.5
    assert 0.97 < certainty(VariantFigures("a", 70, 1000), VariantFigures("b", 50, 1000)) < 0.98
    assert certainty(VariantFigures("a", 0, 10), VariantFigures("b", 0, 10)) == 0.5
