"""A plugin that ends its process at one message: that message stands aside, everything else goes on."""

import asyncio
import smtplib
import time
from collections import Counter
from pathlib import Path
from typing import Any

from survival.rig import Mta

from tests.delivery.conftest import Takes
from tests.faults.test_reload import zonemta

PLUGIN = '''"""Dies of whoever is called after a hook."""
import os
import signal

from zonemta_py.plugin import *


def die(hook, *people):
    if any(hook in person for person in people):
        os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(3)


async def smtp_rcpt_to(address, session):
    die("rcpt", address.address)


async def message_queue(envelope, info):
    die("message", envelope.sender)


async def message_analyze(envelope, stream):
    async for _ in stream:
        die("analyze", envelope.sender)


async def queue_route(envelope, routing):
    die("route", routing.recipient)


async def sender_headers(delivery, headers):
    die("headers", *(one.address for one in delivery.recipients))


async def sender_delivered(delivery, result):
    die("told", *(one.address for one in delivery.recipients))


async def queue_bounce(bounce):
    die("bounce", *(one.address for one in bounce.recipients))


async def queue_release(zone, delivery):
    die("release", delivery.sender)
'''


def given(mta: Mta, recipient: str, sender: str = "a@b.test") -> tuple[int, str]:
    """The last reply; (0, "") if the connection was lost."""
    try:
        with smtplib.SMTP("127.0.0.1", mta.port, timeout=30) as client:
            client.sendmail(sender, [recipient], b"Subject: x\r\n\r\nhello\r\n")
            return 250, ""
    except smtplib.SMTPRecipientsRefused as error:
        [(code, text)] = error.recipients.values()
        return code, text.decode()
    except smtplib.SMTPResponseException as error:
        return error.smtp_code, error.smtp_error.decode() if isinstance(error.smtp_error, bytes) else error.smtp_error
    except (smtplib.SMTPException, OSError):
        return 0, ""


def refused_in_the_end(mta: Mta, *arguments: str) -> tuple[int, str]:
    """What a client hears that tries until it is answered, three times at the most."""
    answers = [given(mta, *arguments)]
    while answers[-1][0] in (0, 421) or (answers[-1][0] == 451 and "plugin" not in answers[-1][1]):
        assert len(answers) < 12, answers
        time.sleep(0.1)
        answers.append(given(mta, *arguments))
    return answers[-1]


async def test_who_ends_a_process_twice_stands_aside(tmp_path: Path) -> None:
    """In receivers and in the queue before it is accepted: 451, and the plugin's name. In senders: held, by name of
    process, plugin and hook. What is only told to plugins is told no more. Others are delivered, once."""
    plugin = tmp_path / "deadly.py"
    plugin.write_text(PLUGIN)
    server = Takes("smtp")
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    more = f'[plugins]\nenabled = ["{plugin}"]\n[learning]\ninitial = 100\n'
    mta = Mta(tmp_path / "queue", listening.sockets[0].getsockname()[1], home=tmp_path, more=more, processes=1)
    mta.start()
    try:
        await mta.taking()

        async def run(function: Any, *arguments: Any) -> Any:
            return await asyncio.to_thread(function, mta, *arguments)

        for kind, arguments, hook in (
            ("receiver-1", ("rcpt@x.test",), "smtp_rcpt_to"),
            ("receiver-1", ("x@x.test", "message@x.test"), "message_queue"),
            ("receiver-1", ("x@x.test", "analyze@x.test"), "message_analyze"),
            ("queue", ("route@x.test",), "queue_route"),
        ):
            code, text = await run(refused_in_the_end, *arguments)
            assert (code, f"(plugin deadly, hook {hook})" in text) == (451, True), text
            assert f"process {kind} ended in plugin deadly, hook {hook} about" in mta.log.read_text()
        for number in range(5):
            assert (await run(given, f"before{number}@x.test"))[0] == 250
        assert (await run(given, "ended@x.test", "release@x.test"))[0] == 250
        while (await run(given, "told@x.test"))[0] != 250:  # noqa: ASYNC110 - the queue is restarting
            await asyncio.sleep(0.1)
        while "hook sender_delivered about message" not in mta.log.read_text():  # noqa: ASYNC110 - or a sender dies first
            await asyncio.sleep(0.1)
        for to in ("headers@x.test", *(f"after{number}@x.test" for number in range(5))):
            while (await run(given, to))[0] != 250:  # noqa: ASYNC110 - as a client does
                await asyncio.sleep(0.1)
        await mta.drained()
        assert (await asyncio.to_thread(mta.ask, "size"))["total"]["held"] == 1
        why = str(await asyncio.to_thread(mta.ask, "explain", what="headers@x.test"))
        assert "process sender-1 has ended twice in plugin deadly, hook sender_headers at it" in why
        copies = Counter(server.people)
        innocent = {f"{when}{number}@x.test" for when in ("before", "after") for number in range(5)}
        assert set(copies) == innocent | {"ended@x.test", "told@x.test"}
        doubtful = set(await asyncio.to_thread(mta.in_doubt))
        assert {who for who, count in copies.items() if count > 1} <= doubtful
        assert "process queue ended in plugin deadly, hook queue_release about message" in mta.log.read_text()
        assert "process sender-1 ended in plugin deadly, hook sender_delivered about message" in mta.log.read_text()

        mta.config_file.write_text(mta.config_file.read_text().replace(f'"{plugin}"', ""))
        status, said = await asyncio.to_thread(zonemta, mta, "reload")
        assert status == 0, said
        while (await run(given, "route@x.test"))[0] != 250:  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.1)
    finally:
        mta.end()
        listening.close()


async def test_a_reload_takes_out_what_ends_the_queue_again_and_again(tmp_path: Path) -> None:
    """While its process is being lost to one message after the other."""
    plugin = tmp_path / "deadly.py"
    plugin.write_text(PLUGIN)
    mta = Mta(tmp_path / "queue", 9, home=tmp_path, more=f'[plugins]\nenabled = ["{plugin}"]\n', processes=1)
    mta.start()
    try:
        await mta.taking()
        over = False

        def giving() -> None:
            number = 0
            while not over:
                number += 1
                given(mta, f"route{number}@x.test")

        clients = [asyncio.create_task(asyncio.to_thread(giving)) for _ in range(2)]
        while mta.log.read_text().count("queue (process") < 2:  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(0.05)
        mta.config_file.write_text(mta.config_file.read_text().replace(f'"{plugin}"', ""))
        status, said = await asyncio.to_thread(zonemta, mta, "reload")
        over = True
        await asyncio.wait(clients)
        assert status == 0, said
        while (await asyncio.to_thread(given, mta, "route@x.test"))[0] != 250:  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.1)
    finally:
        mta.end()
