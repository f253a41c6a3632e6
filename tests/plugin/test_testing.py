"""What plugins are tested with: a real MTA whose mail arrives at a sink, and arguments of hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from email.message import EmailMessage
from pathlib import Path

import pytest

from zonemta_py.mail.envelope import Recipient
from zonemta_py.plugin.testing import Mta, MtaNotStarted, delivery, envelope, running, session

pytest_plugins = ["zonemta_py.plugin.testing.fixtures"]
PLUGIN = """
from pydantic import BaseModel
from zonemta_py.plugin import *

class Options(BaseModel):
    name: str

def setup(api: PluginApi, options: Options):
    global _name
    _name = options.name

async def smtp_auth(auth, session):
    if auth.password == "secret":
        session.user = auth.username

async def smtp_rcpt_to(address, session):
    if address.address.startswith("no"):
        raise Reject(550, "nobody here")

async def message_headers(envelope, headers):
    if "virus" in headers.get("subject"):
        raise Reject(554, "no viruses")

async def queue_route(envelope, routing):
    if routing.recipient.startswith("bulk"):
        routing.zone = "bulk"
    if routing.recipient.startswith("later"):
        raise Defer(3600)

async def sender_headers(delivery, headers):
    headers.add("X-Name", _name)
    headers.add("X-Zone", delivery.zone)
    headers.add("X-User", delivery.user)
"""


@pytest.fixture
def steer(tmp_path: Path) -> Path:
    file = tmp_path / "steer.py"
    file.write_text(PLUGIN)
    return file


async def test_what_is_handed_in_arrives_as_the_plugin_left_it(steer: Path) -> None:
    replies = ("rcpt:/^full-/ 452 4.2.2 Mailbox full",)
    async with running(steer, options={"name": "x"}, zones=("default", "bulk"), replies=replies) as mta:
        answer = await mta.send("anna@one.test", "nobody@one.test", "bulk@one.test", "full-bob@one.test")
        assert (answer.code, list(answer.refused)) == (250, ["nobody@one.test"])
        assert str(answer.refused["nobody@one.test"]) == "550 5.7.1 nobody here"
        found = await mta.arrived("anna@one.test")
        assert (found.sender, found.body, found.helo) == ("shop@example.com", b"Hello!\r\n", "mta.test")
        assert [found.headers.get(name) for name in ("Subject", "X-Name", "X-Zone")] == ["hello", "x", "default"]
        assert (await mta.arrived("bulk@one.test")).headers.get("X-Zone") == "bulk"
        rows = await mta.trace(answer.id)
        assert {("accepted", 3), ("deferred", 1)} <= {(row["what"], row["count"]) for row in rows}
        assert answer.id in await mta.logged("full-bob@one.test")
        made = EmailMessage()
        made["Subject"] = "second"
        made.set_content("Grüße\n")
        await mta.send("anna@one.test", message=made)
        assert (await mta.arrived("anna@one.test")).headers.get("Subject") == "second"
        with pytest.raises(AssertionError, match=r"nothing has arrived for anna@one.test after 0.1 s; its log ends:"):
            await mta.arrived("anna@one.test", within_s=0.1)
        refused = await mta.send("anna@one.test", message=b"Subject: a virus\r\n\r\n")
        assert (str(refused.reply), refused.id) == ("554 5.7.1 no viruses", "")
        assert str((await mta.send("nobody@one.test")).reply) == "550 5.7.1 nobody here"
        process, folder = mta._process, mta.config_file.parent
    assert process is not None
    assert process.poll() is not None
    assert not folder.exists()


async def test_clients_log_in(steer: Path, start_mta: Callable[..., Awaitable[Mta]]) -> None:
    """By the fixture; more of the configuration counts before what is usual, table by table."""
    mta = await start_mta(steer, options={"name": "x"}, auth=True, config='[server]\nhostname = "other.test"\n')
    assert (await mta.send("anna@one.test", login=("ann", "secret"))).code == 250
    found = await mta.arrived("anna@one.test")
    assert (found.headers.get("X-User"), found.helo) == ("ann", "other.test")
    assert (await mta.send("anna@one.test", login=("ann", "guessed"))).code == 535
    await mta.send("anna@one.test", "later@one.test")
    await mta.idle()
    assert await mta.size() == {"queued": 0, "leased": 0, "deferred": 1, "held": 0}
    assert "later@one.test" in await mta.zonemta("explain", "later@one.test")
    with pytest.raises(AssertionError, match=r"zonemta explain nobody exits with \d+"):
        await mta.zonemta("explain", "nobody")


async def test_zones_of_ones_own(tmp_path: Path) -> None:
    """Those without a host send to the sink; a bundled plugin goes by its name."""
    config = """
        [[zones]]
        name = "own"
        default = true
        connections = 3
        [[plugins.options.default_headers.fields]]
        name = "X-Zone"
        value = "{zone}"
    """
    async with running("default_headers", config=config) as mta:
        await mta.send("anna@one.test")
        assert (await mta.arrived("anna@one.test")).headers.get("X-Zone") == "own"


async def test_a_plugin_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("async def smtp_rcpt(address): ...\n")
    with pytest.raises(MtaNotStarted, match="did you mean 'smtp_rcpt_to'"):
        async with running(tmp_path / "broken.py"):
            pass


def test_arguments_of_hooks() -> None:
    """With what a test is about, and what else such a thing has."""
    assert [one.address for one in envelope().recipients] == ["anna@example.com"]
    assert envelope("bob@one.test", sender="", size=5).recipients == [Recipient("bob@one.test")]
    made = delivery("bob@one.test", "eve@one.test", notes={"score": 3}, user="ann", zone="bulk")
    assert (made.destination, made.zone, made.user, made.notes) == ("one.test", "bulk", "ann", {"score": 3})
    assert (made.attempts, made.size) == ([0, 0], len(made.body or b""))
    assert (session().client, session("::1", user="ann").user) == ("192.0.2.1", "ann")
