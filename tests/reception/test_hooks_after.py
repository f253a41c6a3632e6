"""What plugins hear of the end of transactions, messages and connections, and what a quota at RCPT makes of it."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Plugins
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import QueueRefusal, Unanswered

MESSAGE = b"From: a@b.test\r\nDate: x\r\nMessage-ID: <1@b.test>\r\nSubject: x\r\n\r\nhi\r\n"
TELLS = """
from zonemta_py.plugin import Drop, Reject
import asyncio

def setup(api):
    global _api
    _api = api

def _tell(text):
    _api.count(text)

async def smtp_reset(envelope, session, why):
    await asyncio.sleep(0.01)
    _tell(f"reset {why} <{envelope.sender}> {[one.address for one in envelope.recipients]}")

async def message_refused(envelope, session, refusal):
    _tell(f"refused {refusal.stage} {refusal.reply.code} {refusal.recipient} by {refusal.plugin or 'the server'}")

async def message_stored(envelope, session, stored):
    _tell(f"stored {stored.id} {stored.accepted} of {session.client}")

async def smtp_end(session, ending):
    counts = f"{ending.messages} {ending.recipients} {ending.refused}"
    _tell(f"end {ending.why} {ending.reply and ending.reply.code} {counts}")
    assert ending.seconds > 0
"""


class Door:
    """A listener with the plugin, and what that has said."""

    def __init__(self, door: Any, host: Host) -> None:
        self.door, self.host = door, host

    @property
    def said(self) -> list[str]:
        return [row["counter"] for row in self.host.statistics() if "counter" in row]

    def heard(self, *expected: str) -> None:
        """Soon: nobody waits for it where the client is gone."""
        end = time.monotonic() + 20
        while self.said != [*expected] and time.monotonic() < end:
            time.sleep(0.01)
        assert self.said == [*expected]


@pytest.fixture
def tells(open_door: Any, tmp_path: Path) -> Callable[..., Door]:
    def start(code: str = "", **listener: Any) -> Door:
        path = tmp_path / "tells.py"
        path.write_text(TELLS + textwrap.dedent(code))
        host = Host.load(Plugins(enabled=[str(path)]))
        return Door(open_door(host=host, **listener), host)

    return start


def test_a_message_that_is_stored(tells: Callable[..., Door]) -> None:
    """Its id is the one that the client hears; RSET after it ends nothing."""
    here = tells()
    with here.door.greeted() as wire:
        assert wire.mail(MESSAGE) == "250 2.0.0 OK: queued as id1"
        wire.ask("RSET")
        here.heard("stored id1 1 of 127.0.0.1")
        assert wire.ask("QUIT")[:3] == "221"
    here.heard("stored id1 1 of 127.0.0.1", "end quit 221 1 1 0")


@pytest.mark.parametrize("command", ["RSET", "EHLO x.test", "HELO x.test"])
def test_a_transaction_that_is_given_up(tells: Callable[..., Door], command: str) -> None:
    """Before the reply: what a plugin gives back is there for the next transaction."""
    here = tells()
    with here.door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test>")
        wire.ask("RCPT TO:<c@d.test>")
        wire.ask("RCPT TO:<e@d.test>")
        assert wire.ask(command)[:3] == "250"
        why = "RSET" if command == "RSET" else "EHLO"
        assert here.said == [f"reset {why} <a@b.test> ['c@d.test', 'e@d.test']"]
        wire.ask("RSET")
        assert len(here.said) == 1


def test_commands_behind_it_in_one_packet_keep_their_order(tells: Callable[..., Door]) -> None:
    here = tells()
    with here.door.greeted() as wire:
        wire.send(b"MAIL FROM:<a@b.test>\r\nRSET\r\nMAIL FROM:<c@d.test>\r\nRSET\r\nNOOP\r\n")
        assert [wire.reply()[:9] for _ in range(5)] == ["250 2.1.0", "250 2.0.0", "250 2.1.0", "250 2.0.0", "250 2.0.0"]
        assert here.said == ["reset RSET <a@b.test> []", "reset RSET <c@d.test> []"]


def test_a_client_that_goes(tells: Callable[..., Door]) -> None:
    """In the middle of its message, without a word: the transaction first, then the connection."""
    here = tells()
    with here.door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test>")
        wire.ask("RCPT TO:<c@d.test>")
        wire.ask("DATA")
        wire.send(MESSAGE)
    here.heard("reset gone <a@b.test> ['c@d.test']", "end gone None 0 0 0")


def test_a_client_that_is_sent_away(tells: Callable[..., Door]) -> None:
    here = tells()
    with here.door.greeted() as wire:
        assert wire.ask("GET / HTTP/1.1")[:3] == "421"
    here.heard("end closed 421 0 0 0")


REFUSES = {
    "RCPT": ("async def smtp_rcpt_to(address): raise Reject(550, 'no')", "refused RCPT 550 c@d.test by tells"),
    "DATA": ("async def smtp_data(envelope): raise Reject(452, 'no')", "refused DATA 452  by tells"),
    "headers": ("async def message_headers(headers): raise Reject(554, 'no')", "refused message 554  by tells"),
    "queue": ("async def message_queue(envelope): raise Reject(554, 'no')", "refused message 554  by tells"),
    "drop": ("async def message_queue(envelope): raise Drop('no')", "refused message 250  by tells"),
    "fails": ("async def message_queue(envelope): raise OSError", "refused message 451  by tells"),
}


@pytest.mark.parametrize("stage", REFUSES)
def test_a_refusal_by_a_plugin_names_it(tells: Callable[..., Door], stage: str) -> None:
    """Once; of a recipient the transaction goes on, of a message it is over."""
    code, said = REFUSES[stage]
    here = tells(code)
    with here.door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test>")
        wire.ask("RCPT TO:<c@d.test>")
        if stage != "RCPT" and wire.ask("DATA")[:3] == "354":
            wire.ask(MESSAGE + b".")
        assert here.said == [said]
        wire.ask("RSET")
        assert here.said == ([said, "reset RSET <a@b.test> []"] if stage == "RCPT" else [said])


def test_refusals_by_the_server(tells: Callable[..., Door]) -> None:
    """At RCPT, for its size, and by the queue."""
    here = tells()
    with here.door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test>")
        wire.ask("RCPT TO:<nonsense>")
        here.heard("refused RCPT 501 <nonsense> by the server")
        wire.ask("RSET")
        here.door.submission.refusal = QueueRefusal(Reply(452, "4.3.1", "full"))
        assert wire.mail(MESSAGE)[:3] == "452"
        assert here.said[2:] == ["refused message 452  by the server"]


def test_what_is_unknown_is_not_told(tells: Callable[..., Door]) -> None:
    """It may be stored: neither is true."""
    here = tells()
    here.door.submission.refusal = Unanswered(Reply(451, "4.3.0", "gone"))
    with here.door.greeted() as wire:
        wire.mail(MESSAGE)
    here.heard("end gone None 0 0 0")


def test_failures_there_change_no_answer(tells: Callable[..., Door], caplog: pytest.LogCaptureFixture) -> None:
    here = tells("async def message_stored(envelope): raise OSError('no disk')\n")
    with here.door.greeted() as wire:
        assert wire.mail(MESSAGE)[:3] == "250"
    assert "plugin tells, hook message_stored" in caplog.text


QUOTA = """
from zonemta_py.plugin import Reject

_left = 2

async def smtp_rcpt_to(address, session):
    global _left
    if not _left:
        raise Reject(452, "your quota is used up")
    _left -= 1
    session.notes["taken"] = session.notes.get("taken", 0) + 1

async def smtp_reset(session):
    _give_back(session)

async def message_refused(session, refusal):
    if not refusal.recipient:
        _give_back(session)

async def message_stored(session):
    session.notes.pop("taken", 0)

def _give_back(session):
    global _left
    _left += session.notes.pop("taken", 0)
"""


def test_a_quota_is_given_back(open_door: Any, tmp_path: Path) -> None:
    """At a reset, a refusal, and by clients that go; never twice, and never of what was stored."""
    path = tmp_path / "quota.py"
    path.write_text(QUOTA)
    door = open_door(host=Host.load(Plugins(enabled=[str(path)])))
    with door.greeted() as wire:
        for end in ("RSET", "EHLO x.test", "RSET"):
            wire.ask("MAIL FROM:<a@b.test>")
            assert [wire.ask(f"RCPT TO:<{one}@d.test>")[:3] for one in "abc"] == ["250", "250", "452"]
            wire.ask(end)
        door.submission.refusal = QueueRefusal(Reply(452, "4.3.1", "full"))
        assert wire.mail(MESSAGE)[:3] == "452"
        door.submission.refusal = None
        assert wire.mail(MESSAGE)[:3] == "250"
        assert wire.mail(MESSAGE)[:3] == "250"
        wire.ask("MAIL FROM:<a@b.test>")
        assert wire.ask("RCPT TO:<c@d.test>")[:3] == "452"


@pytest.mark.parametrize("hook", ["smtp_mail_from", "smtp_rcpt_to", "smtp_data", "message_queue"])
def test_a_plugin_hangs_up_by_421(tells: Callable[..., Door], hook: str) -> None:
    """At each stage: the reply is the last that the client gets, what it has sent ahead is not looked at."""
    here = tells(f"async def {hook}(): raise Reject(421, 'come back later')")
    with here.door.greeted() as wire:
        assert wire.mail(MESSAGE) == "421 4.7.1 come back later"
        assert wire.reply() == ""
    with here.door.greeted() as wire:
        wire.send(b"MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n" + MESSAGE + b".\r\nNOOP\r\n")
        replies = list(iter(wire.reply, ""))
        assert [one for one in replies if one[0] not in "23"] == ["421 4.7.1 come back later"]
    assert all(one.startswith(("end closed 421 ", "refused ", "reset gone ")) for one in here.said)
