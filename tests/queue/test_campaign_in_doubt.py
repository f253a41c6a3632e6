"""What becomes of a campaign's mail whose final reply was awaited at a crash."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.queue.test_campaigns import template

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("zone", "own", "held"), [("retry", "hold", True), ("hold", "retry", False), ("hold", "", True)]
)
async def test_what_a_campaign_says_of_those_in_doubt_holds(house: Make, zone: str, own: str, held: bool) -> None:
    """Before its zone, whether a sender died or the queue; of its own mail only."""
    home = await house(zones=[{"name": "z", "in_doubt": zone}])
    await home.queue.ask("campaign-put", name="spring", sender="news@src.test", template=template(), in_doubt=own)
    for killed in (True, False):
        for name in ("spring", None):
            await home.put(f"{name}.{killed}@x.test".lower(), campaign=name)
        assert len(await home.queue.lease(2, "sender")) == 2
        if killed:
            await home.crash()
        else:
            home.queue.lost("sender")
            await home.rest()
        rows = {row["recipient"]: row["action"] for row in await home.queue.ask("in-doubt")}
        assert rows[f"spring.{killed}@x.test".lower()] == ("hold" if held else "retry")
        assert rows[f"none.{killed}@x.test".lower()] == zone
        for delivery in [] if await home.idle(5) else await home.lease(5):
            await home.settle(delivery)
        assert (await home.sizes())["held"] == len({row for row, action in rows.items() if action == "hold"})
    with pytest.raises(ValueError, match="there is no in_doubt 'drop'; use retry, hold"):
        await home.queue.ask("campaign-put", name="b", sender="", template=template(), in_doubt="drop")
