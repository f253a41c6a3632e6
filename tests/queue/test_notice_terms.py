"""Notices as [notices] has them: languages, sender and zone, for each tenant its own, and who is told of delays."""

import email
import email.policy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queue.test_reload import reload
from zonemta_py.config import Config, ConfigError
from zonemta_py.mail.envelope import Notify
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import BOUNCED, DEFERRED
from zonemta_py.queue.hooks import NoHooks
from zonemta_py.queue.lifecycle import notices
from zonemta_py.queue.reload import apply

Make = Callable[..., Any]
LATE = {"delay_notice_h": 1, "schedule_min": [61], "jitter": 0}
ZONES = [{"name": "default", "default": True}, {"name": "postmaster"}, {"name": "shop"}]


async def told(home: Any) -> list[Any]:
    """Notices that are queued: (zone, message), by zone."""
    await home.rest()
    found = [] if await home.idle(50) else await home.lease(50)
    made = [(d.zone, email.message_from_bytes(d.body, policy=email.policy.default)) for d in found if not d.sender]
    return sorted(made, key=lambda one: one[0])


async def test_each_tenant_has_its_own(house: Make) -> None:
    """What a tenant's table does not say is as for everybody; notices survive a crash as they were."""
    shop = {"tenant": "shop", "address": "help@shop.test", "languages": ["de", "en"], "zone": "shop"}
    terms = {"address": "bounces@mta.test", "name": "Our Mail", "zone": "postmaster", "tenants": [shop]}
    home = await house(zones=ZONES, notices=terms)
    for tenant in ("", "shop", "other"):
        await home.put("bob@x.test", tenant=tenant or None, headers={"subject": "Hello"})
    for delivery in await home.lease(5):
        await home.settle(delivery, BOUNCED, reply=Reply(550, "5.1.1", "No such user here"))
    await home.rest()
    await home.crash()
    usual, other, its = await told(home)
    assert [usual[0], other[0], its[0]] == ["postmaster", "postmaster", "shop"]
    assert usual[1]["From"] == other[1]["From"] == "Our Mail <bounces@mta.test>"
    assert its[1]["From"] == "Our Mail <help@shop.test>"
    assert its[1]["Subject"] == "Ihre Nachricht konnte nicht zugestellt werden"
    text = " ".join(its[1].get_body().get_content().split())
    assert "Betreff: Hello" in text
    assert "Dieses Postfach gibt es nicht" in text
    assert text.index("nicht an <bob@x.test>") < text.index("delivered to <bob@x.test>")


@pytest.mark.parametrize(
    ("delays", "notify", "campaign", "expected"),
    [
        ("asked", Notify.UNSET, None, 0),
        ("asked", Notify.DELAY, None, 1),
        ("always", Notify.UNSET, None, 1),
        ("always", Notify.UNSET, "spring", 0),
        ("always", Notify.DELAY, "spring", 1),
        ("always", Notify.FAILURE, None, 0),
        ("always", Notify.NEVER, None, 0),
        ("never", Notify.DELAY, None, 0),
        ("never", Notify.UNSET, None, 0),
    ],
)
async def test_who_is_told_of_delays(
    house: Make, delays: str, notify: Notify, campaign: str | None, expected: int
) -> None:
    """Those who asked, all who did not say and are of no campaign, or nobody; once."""
    home = await house(retry=LATE, notices={"delays": delays})
    await home.put("bob@x.test", notify=notify, campaign=campaign)
    seen = []
    for _ in range(3):
        leased = await home.lease(5)
        seen += [one.body for one in leased if not one.sender]
        (delivery,) = [one for one in leased if one.sender]
        await home.settle(delivery, DEFERRED)
        await home.move(3700)
    assert [b"Action: delayed" in body for body in seen] == [True] * expected


async def test_another_configuration_writes_them_anew(house: Make, tmp_path: Path) -> None:
    """From a reload on; a file that cannot be read later harms nobody."""
    home = await house()
    file = tmp_path / "en.toml"
    file.write_text('signature = "Ask Ann"\n')
    for signed in (False, True, False):
        if signed:
            reload(home, notices={"texts": tmp_path})
        await home.put("bob@x.test")
        (delivery,) = await home.lease()
        await home.settle(delivery, BOUNCED)
        ((_, notice),) = await told(home)
        assert ("Ask Ann" in notice.get_body().get_content()) == signed
        if signed:
            prepared = apply.prepare(home.config, NoHooks(), home.resolver)
            file.write_text("signature = 3")
            apply.take(home.queue, prepared)
    with pytest.raises(ConfigError, match="signature must be a text"):
        notices.load(home.config)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"zone": "nowhere"}, "no zone that sends is named 'nowhere'; add it"),
        ({"address": "nobody"}, "'nobody' is not an address such as"),
        ({"address": "a b@x.test"}, "is not an address such as"),
        ({"tenants": [{"tenant": "a"}, {"tenant": "a"}]}, "two tenants are 'a'; keep one"),
        ({"tenants": [{"tenant": "a", "zone": "nowhere"}]}, "no zone that sends is named 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused(terms: dict[str, Any], said: str) -> None:
    """With the remedy."""
    with pytest.raises(ValueError, match=said):
        Config.model_validate({"notices": terms})
