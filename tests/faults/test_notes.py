"""Notes of plugins: what a hook sets is there in all later ones, in whichever process, over retries, kills and a
reload."""

from __future__ import annotations

import asyncio
import json
import smtplib
from pathlib import Path

from survival.rig import Mta

from tests.faults.test_reload import zonemta
from zonemta_py.sink import Sink, SinkOptions

PLUGIN = '''"""Notes on the way."""
import json
from zonemta_py.plugin import *

TRIES = 4


async def smtp_mail_from(address, session):
    address.notes["helo"] = session.helo


async def smtp_rcpt_to(address, session):
    address.notes["rank"] = [len(address.address), None, 0.5]


async def message_queue(envelope, info):
    assert envelope.notes["helo"] and all(one.notes["rank"] for one in envelope.recipients)
    envelope.notes["subject"] = envelope.headers["subject"]
    envelope.notes["gone"] = True


async def queue_route(envelope, routing):
    routing.notes["route"] = f"{envelope.notes['subject']} {routing.notes['rank'][0]}"
    envelope.notes["routed"] = {"by": ["notes"]}


async def sender_fetch(delivery):
    if not delivery.sender:  # the notice
        return
    notes = delivery.recipients[0].notes
    notes["tries"] = notes.get("tries", 0) + 1
    delivery.notes["last"] = notes["tries"]
    delivery.notes.pop("gone", None)
    if notes["tries"] < TRIES:
        raise Defer(0.2 if notes["tries"] != 2 else 3)
    if delivery.recipients[0].address.startswith("gone"):
        raise Reject(550, "No such person")


async def sender_headers(delivery, headers):
    if not delivery.sender:
        return
    known = [delivery.notes, delivery.recipients[0].notes, delivery.origin, delivery.headers["x-campaign-kind"]]
    headers.add("X-Notes", json.dumps(known))


async def queue_bounce(bounce):
    with open(FILE, "a") as file:
        print(json.dumps([bounce.notes, bounce.recipients[0].notes]), file=file)


async def queue_release(zone, delivery):
    with open(FILE, "a") as file:
        print(json.dumps([delivery.notes, delivery.origin]), file=file)


def setup(api):
    api.keep_headers("X-Campaign-Kind")
'''


def hand_in(mta: Mta, to: str) -> None:
    with smtplib.SMTP("127.0.0.1", mta.port, timeout=30) as client:
        client.sendmail("ann@src.test", [to], b"Subject: hello\r\nX-Campaign-Kind: spring\r\n\r\nHi\r\n")


async def test_what_a_hook_sets_is_there_in_all_later_ones(tmp_path: Path) -> None:
    plugin, told = tmp_path / "noting.py", tmp_path / "told"
    plugin.write_text(PLUGIN.replace("TRIES = 4", f"TRIES, FILE = 4, {str(told)!r}"))
    more = f'[plugins]\nenabled = ["{plugin}"]\n'
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, processes=1)
        mta.start()
        try:
            await mta.taking()
            for to in ("anna@x.test", "gone@x.test"):
                await asyncio.to_thread(hand_in, mta, to)

            async def tried(times: int) -> bool:
                rows = (await asyncio.to_thread(mta.ask, "list"))["rows"]
                return len(rows) == 2 and all(row["attempts"] >= times for row in rows)

            while not await tried(2):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
            mta.kill("all")  # what its results have said is in the journal
            mta.dead()
            mta.start()
            await mta.taking()
            status, said = await asyncio.to_thread(zonemta, mta, "reload")
            assert status == 0, said
            await mta.drained()
            while not told.exists() or len(told.read_text().splitlines()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        finally:
            mta.end()
        of_message = {"subject": "hello", "routed": {"by": ["notes"]}, "last": 4}
        of_person = {"rank": [11, None, 0.5], "route": "hello 11", "tries": 4}
        [mail] = [one for one in sink.messages if one.recipients == ["anna@x.test"]]
        [line] = [line for line in mail.body.decode().splitlines() if line.startswith("X-Notes: ")]
        found = json.loads(mail.body.decode().replace("\r\n ", " ").split("X-Notes: ")[1].split("\r\n")[0])
        assert found[0].pop("helo"), line
        assert found == [of_message, of_person, "127.0.0.1", "spring"]
        rows = [json.loads(line) for line in told.read_text().splitlines()]
        for row in rows:
            row[0].pop("helo", None)  # the notice has none
        assert [of_message, of_person] in rows, "a notice knows them"
        assert rows.count([of_message, "127.0.0.1"]) == 2, "and whoever hears of the end"
    assert await mta.problems() == []
