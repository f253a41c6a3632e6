"""A campaign whose template is chosen between variants that were sent before."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest

from tests.queue.test_campaigns import batch, template, tick
from zonemta_py.delivery import worker
from zonemta_py.pipeline.prepare.reached import NobodyReached, reached, silent
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, Feedback, template_name
from zonemta_py.queue.campaigns.choice import VariantFigures, certainty
from zonemta_py.sink import Sink, SinkOptions

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
        home.queue.core.disk.lines._start = lambda: None  # nothing more reaches the store
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


@asynccontextmanager
async def sending(home: Any) -> AsyncIterator[None]:
    """A sender of its own."""
    task = asyncio.create_task(worker.run(home.config, home.queue, Host.empty(), 1))
    yield
    task.cancel()
    await asyncio.wait([task])


async def came(sink: Sink, count: int) -> dict[str, str]:
    """What the server has got, by recipient, once that many messages have come."""
    async with asyncio.timeout(60):
        while len(sink.messages) < count:  # noqa: ASYNC110 - the sink tells nobody
            await asyncio.sleep(0.01)
    return {
        one.recipients[0]: message_from_bytes(one.body, policy=default).get_content().strip() for one in sink.messages
    }


def through(sink: Sink) -> dict[str, Any]:
    zone = {"name": "default", "default": True, "host": "127.0.0.1", "port": sink.port, "tls": "none"}
    return {"zones": [zone | {"allow_private": True}]}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_server_gets_the_chosen_text(house: Make, restarts: bool) -> None:
    """The rest has the winner's text, and each other campaign its own, though a variant of it reads the same."""
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink, AsyncExitStack() as stack:
        home = await house(**through(sink))
        for campaign, other in (("spring", "B"), ("autumn", "C")):
            for name, word in (("a", "A"), ("b", other)):
                await put(home, f"{campaign}.{name}", f"{word} {{{{ name }}}}\n")
            of = [f"{campaign}.a", f"{campaign}.b"]
            await put(home, campaign, "A {{ name }}\n", choice={"of": of, "after_h": 0})
            await home.queue.accept(batch(f"{campaign}@x.test", f"{campaign}2@x.test", campaign=campaign), b"")
        await home.queue.accept(batch("first@x.test", campaign="spring.a"), b"")
        await stack.enter_async_context(sending(home))
        assert await came(sink, 1) == {"first@x.test": "A First"}
        for campaign in ("spring", "autumn"):
            if restarts and campaign == "autumn":
                await home.crash()
                await tick(home)
                await stack.enter_async_context(sending(home))
            await home.queue.ask("campaign-decide", name=campaign, winner=f"{campaign}.b")
        assert await came(sink, 5) == {
            "first@x.test": "A First", "spring@x.test": "B Spring", "spring2@x.test": "B Spring2",
            "autumn@x.test": "C Autumn", "autumn2@x.test": "C Autumn2",
        }  # fmt: skip
        await home.rest()
        assert {one["waiting"] for one in await home.queue.ask("campaigns")} == {0}


async def test_the_text_of_a_suspended_campaign_is_corrected(house: Make) -> None:
    """What waits gets it, deferred or never tried, over a crash; what is refused changes nothing."""
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink, AsyncExitStack() as stack:
        home = await house(**through(sink))
        await put(home, "spring", "Wrong {{ name }}\n")
        await home.queue.accept(batch("one@x.test", "two@x.test"), b"")
        right = template("Right {{ name }}\n")
        with pytest.raises(ValueError, match=r"'spring' is not suspended.*suspend spring"):
            await home.queue.ask("campaign-text", name="spring", template=right)
        (delivery,) = await home.lease()
        await home.settle(delivery, DEFERRED)
        await home.queue.ask("campaign-pause", name="spring")
        before = await home.queue.template("spring")
        with pytest.raises(ValueError, match="this is not a template"):
            await home.queue.ask("campaign-text", name="spring", template=b"?")
        assert await home.queue.template("spring") == before
        for _ in range(2):
            await home.queue.ask("campaign-text", name="spring", template=right)
        assert (await home.queue.ask("campaign-templates", name="spring"))[0] == ["spring", template_name(right)]
        for text in ("Wrong {{ name }}\n", "Right {{ name }}\n"):  # what was put is put again, and what it is now
            assert await put(home, "spring", text) == {"created": False}
        with pytest.raises(ValueError, match="already exists with another template"):
            await put(home, "spring", "Another {{ name }}\n")
        await home.crash(power=True)
        await home.queue.accept(batch("three@x.test"), b"")
        await stack.enter_async_context(sending(home))
        await home.queue.ask("campaign-resume", name="spring")
        await home.move(HOUR_S)
        assert await came(sink, 3) == {f"{name}@x.test": f"Right {name.title()}" for name in ("one", "two", "three")}
        await home.rest()
        with pytest.raises(ValueError, match="there is no campaign 'other'"):
            await home.queue.ask("campaign-text", name="other", template=right)
        await home.sound()


async def test_the_text_of_one_that_is_chosen_is_that_of_its_variants(house: Make) -> None:
    """Corrected there, and until somebody has chosen."""
    home = await opened(house, {}, sent=0)
    with pytest.raises(ValueError, match=r"gets the template of one of spring.a, spring.b; correct those, or choose"):
        await home.queue.ask("campaign-text", name="spring", template=template("x {{ name }}\n"))
    await home.queue.ask("campaign-pause", name="spring.b")
    await home.queue.ask("campaign-text", name="spring.b", template=template("spring.a {{ name }}, mended\n"))
    await home.queue.ask("campaign-decide", name="spring", winner="spring.b")
    assert await text(home) == "spring.a"
    assert b"mended" in await home.queue.template("spring")


async def test_whom_a_campaign_has_reached(house: Make) -> None:
    """Delivered, waiting, or in doubt; not who bounced or was taken out: another campaign is for those. Of the journal
    and the archive, running or not."""
    home = await house()
    await put(home, "spring", "Hi {{ name }}\n")
    await put(home, "other", "Hi {{ name }}\n")
    for name in ("got", "bounced", "waits", "removed"):
        await home.queue.accept(batch(f"{name}@x.test"), b"")
    await home.queue.accept(batch("else@x.test", campaign="other"), b"")
    for delivery in await home.leases():
        verdict = {"got@x.test": DELIVERED, "bounced@x.test": BOUNCED}.get(delivery.recipients[0].address, DEFERRED)
        await home.settle(delivery, verdict)
    await home.queue.ask("suppress", rows=[["removed@x.test", "manual"]])
    await home.move(HOUR_S)
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.rest()
    expected = {"got@x.test": "spring", "waits@x.test": "spring"}
    for _ in range(2):
        assert reached(home.folder, ["spring"]) == expected
        await home.queue.ask("rotate")
        await home.rest()
    assert reached(home.folder, ["spring", "other"]) == expected | {"else@x.test": "other"}
    with pytest.raises(NobodyReached, match="no mail of the campaign 'sprnig' is in its journal or archive"):
        reached(home.folder, ["spring", "sprnig"])


async def test_who_has_not_opened_or_clicked(house: Make) -> None:
    """Of those to whom it was delivered. A click is an open, too; an open within seconds is the provider's own."""
    home = await house()
    await put(home, "spring", "Hi {{ name }}\n")
    for name in ("Opens", "clicks", "nothing", "proxy", "bounced", "waits", "twice"):
        await home.queue.accept(batch(f"{name}@x.test"), b"")
    ids = dict[str, str]()
    for delivery in await home.leases():
        address = delivery.recipients[0].address
        ids[address.partition("@")[0]] = delivery.id
        await home.settle(delivery, {"bounced@x.test": BOUNCED, "waits@x.test": DEFERRED}.get(address, DELIVERED))
    await home.move(10)
    await tell(home, "open", "proxy@x.test", ids["proxy"])
    await home.move(60)
    await tell(home, "open", "opens@x.test", ids["Opens"])
    await tell(home, "click", "clicks@x.test", ids["clicks"])
    await tell(home, "open", "waits@x.test", ids["waits"])
    await home.rest()
    for _ in range(2):
        assert silent(home.folder, ["spring"], "opened").keys() == {"nothing@x.test", "proxy@x.test", "twice@x.test"}
        assert silent(home.folder, ["spring"], "clicked").keys() == {
            "Opens@x.test", "nothing@x.test", "proxy@x.test", "twice@x.test",
        }  # fmt: skip
        await home.queue.ask("rotate")
        await home.rest()
    await put(home, "again", "Hi {{ name }}\n")
    await home.queue.accept(batch("twice@x.test", campaign="again"), b"")
    for delivery in await home.leases():
        await home.settle(delivery, DELIVERED)
        await home.move(60)
        await tell(home, "open", "twice@x.test", delivery.id)
    await home.rest()
    followed = silent(home.folder, ["spring", "again"], "opened")
    assert followed == {"nothing@x.test": "spring", "proxy@x.test": "spring"}, "one that was opened is enough"
    with pytest.raises(NobodyReached):
        silent(home.folder, ["sprnig"], "opened")


async def tell(home: Any, kind: str, recipient: str, message: str) -> None:
    await home.queue.feedback([Feedback(kind, recipient, message, genuine="token")])
