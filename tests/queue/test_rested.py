"""A site that a sender's plugin lets rest, as rules let it: all mail there waits, and people see whose word it is."""

from __future__ import annotations

from typing import Any

from tests.queue.flow import drain
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import DEFERRED
from zonemta_py.queue.hooks import NoHooks

LATER = Reply(451, "4.7.1", "too much")
REST: dict[str, Any] = {"reply": LATER, "stage": "plugin", "by": ["calm", "sender_connected", ""], "rest_s": 600.0}


class Sending(NoHooks):
    """A plugin with a sender's hooks."""

    sends = True


async def test_all_mail_to_the_site_waits(house: Any) -> None:
    """With no attempt counted, through a crash, for as long as it said; that elsewhere goes."""
    home = await house(hooks=Sending())
    await home.put("a@x.test")
    [delivery] = await home.leases()
    await home.settle(delivery, DEFERRED, delay_s=5.0, **REST)
    await home.put("b@x.test", "c@y.test")
    assert [one.recipients[0].address for one in await home.leases()] == ["c@y.test"]
    await home.crash()
    assert [one.recipients[0].address for one in await home.leases()] == ["c@y.test"]
    [row] = (await home.queue.ask("explain", what="b@x.test"))["rows"]
    why = "451 4.7.1 too much (plugin calm, hook sender_connected)"
    assert row["reasons"][0]["cause"] == f"destination x.test is suspended: {why}"
    assert row["attempts"] == 0
    [stop] = [one for one in await home.queue.ask("standing") if one["kind"] == "destination"]
    assert (stop["name"], stop["cause"], stop["until_ms"] - stop["since_ms"]) == ("x.test", why, 600_000)
    await home.move(601)
    assert sorted(one.recipients[0].address for one in await drain(home)) == ["a@x.test", "b@x.test"]
    await home.sound()


async def test_an_operator_ends_it(house: Any) -> None:
    """And a choice for this mail alone is none against a rest."""
    home = await house(hooks=Sending())
    await home.put("a@x.test", "b@x.test")
    [delivery] = await home.leases()
    result = home.result(delivery, DEFERRED, delay_s=5.0, **REST)
    result.chosen = True
    await home.queue.settle(result)
    await home.put("c@x.test")
    assert await home.leases() == []
    await home.queue.ask("lift", kind="destination", name="x.test")
    assert [one.recipients[0].address for one in await home.leases()] == ["c@x.test"]
    await home.sound()
