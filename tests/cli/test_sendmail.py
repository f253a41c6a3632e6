"""Programs that call sendmail, mailq or newaliases by a link to `zonemta`: real processes, and what arrives."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_send import Running
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.sink import Sink

LETTER = b"To: bob@x.org\nBcc: eve@z.org\nSubject: Hi\n\nHello\n.\nmore\n"


class Called:
    """The links, and a configuration whose listener is the sink."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        for name in ("sendmail", "mailq", "newaliases", "postqueue", "postsuper"):
            (folder / name).symlink_to(Path(sys.executable).with_name("zonemta"))
        self.config = folder / "zonemta.toml"
        self.config.write_text(
            f'[server]\nhostname = "mx.example.com"\nfolder = "{folder}"\n[[listeners]]\nport = {port}\n'
        )

    def __call__(self, line: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit status, stdout, stderr."""
        program, *arguments = line.split()
        ran = subprocess.run(
            [self.folder / program, *arguments], input=stdin, capture_output=True, timeout=60, check=False,
            env=os.environ | {"ZONEMTA_CONFIG": str(self.config), "USER": "cron", "LOGNAME": "cron"},
        )  # fmt: skip
        return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Running("rcpt:/nobody@/ 550 5.1.1 none such") as sink:
        yield sink


@pytest.fixture
def called(tmp_path: Path, sink: Sink) -> Called:
    return Called(tmp_path, sink.port)


def test_php_and_mutt(called: Called, sink: Sink) -> None:
    """-t takes the recipients from the header and removes Bcc; -i takes a lone dot for text. -- ends the flags."""
    assert called("sendmail -t -i -f web@example.com", LETTER) == (0, "", "")
    assert called("sendmail -oem -oi -f ann@example.com -- -carl@y.org", LETTER) == (0, "", "")
    first, second = sink.messages
    assert (first.sender, sorted(first.recipients)) == ("web@example.com", ["bob@x.org", "eve@z.org"])
    assert b"eve@z.org" not in first.body
    assert first.body.endswith(b"\r\nHello\r\n.\r\nmore\r\n")
    assert second.recipients == ["-carl@y.org"]
    assert b"Bcc: eve@z.org\r\n" in second.body


def test_cron(called: Called, sink: Sink) -> None:
    """Names without a domain are users of this machine; -F makes the From that is missing; a dot ends the message."""
    assert called("sendmail -FCronDaemon -odi -oem -f root ann", b"Subject: Cron\n\nout\n.\nnot this\n") == (0, "", "")
    (message,) = sink.messages
    assert (message.sender, message.recipients) == ("root@mx.example.com", ["ann@mx.example.com"])
    assert message_from_bytes(message.body)["From"] == "CronDaemon <root@mx.example.com>"
    assert message.body.endswith(b"\r\n\r\nout\r\n")


def test_bs_speaks_smtp(called: Called, sink: Sink) -> None:
    """On stdin and stdout, for mail programs that want to hear each reply."""
    lines = b"EHLO me\r\nMAIL FROM:<a@b.c>\r\nRCPT TO:<d@e.f>\r\nDATA\r\nSubject: x\r\n\r\ny\r\n.\r\nQUIT\r\n"
    code, out, err = called("sendmail -bs", lines)
    assert (code, err) == (0, "")
    assert out.startswith("220 ")
    assert out.splitlines()[-1].startswith("221 ")
    assert [message.recipients for message in sink.messages] == [["d@e.f"]]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("sendmail -i", Exit.USAGE, "no recipients"),
        ("sendmail -i -Z ann@example.com", Exit.USAGE, "option -Z not recognized; see `zonemta sendmail --help`"),
        ("sendmail -bd -q15m", Exit.UNAVAILABLE, "no queue answers at"),
        ("sendmail -bd", Exit.USAGE, "sendmail -bd is not supported; `zonemta run` is the server"),
        ("sendmail -bv ann", Exit.USAGE, "`zonemta route` shows where mail goes"),
        ("sendmail -i nobody@x.org", Exit.NO_USER, "refused nobody@x.org: 550 5.1.1 none such"),
        ("sendmail -C /nowhere -i ann@example.com", Exit.CONFIG, "/nowhere"),
        ("sendmail -q", Exit.UNAVAILABLE, "no queue answers at"),
        ("newaliases", Exit.OK, ""),
        ("postqueue -x", Exit.USAGE, "see `zonemta postqueue --help`"),
        ("postqueue -p -f", Exit.USAGE, "say one of -p, -j, -f, -i ID and -s DOMAIN"),
        ("postsuper", Exit.USAGE, "say what is to be done"),
        ("postsuper -d junk", Exit.USAGE, "'junk' is no message id"),
        ("postqueue -i junk", Exit.USAGE, "'junk' is no message id"),
        ("postsuper -d ALL junk", Exit.USAGE, "there is no queue 'junk'"),
        ("postsuper -d ALL", Exit.UNAVAILABLE, "no queue answers at"),
        ("mailq", Exit.UNAVAILABLE, "no queue answers at"),
    ],
)
def test_exit_statuses_are_those_of_sysexits(called: Called, line: str, code: Exit, said: str) -> None:
    """With one sentence, or silence where nothing is wrong; nothing is read as mail that is none."""
    ended, out, err = called(line, LETTER)
    assert (ended, out) == (code, "")
    assert said in err
    assert err.count("\n") == (1 if said else 0)


def test_a_server_that_is_away(tmp_path: Path) -> None:
    """The number by which programs know that they may try again."""
    ended, _, err = Called(tmp_path, 1)("sendmail -i ann@example.com", LETTER)
    assert ended == Exit.TEMPORARY
    assert "start the MTA" in err


def test_mailq(served: Callable[..., Any], tmp_path: Path) -> None:
    """A message with its recipients below it; the last reply before whom it is about; what is in all of it."""

    async def put(queue: LocalQueue) -> str:
        body = b"Subject: Hi\r\n\r\n" + 2000 * b"x\r\n"
        envelope = Envelope("ann@example.com", [Recipient("bob@x.org"), Recipient("carl@y.org")], len(body))
        envelope.received_ms = 1_700_000_000_000
        return (await queue.accept(envelope, body)).id

    queue = served()
    called = Called(tmp_path, 1)
    assert called("mailq") == (0, "Mail queue is empty\n", "")
    id = queue.do(put)
    code, out, err = called("mailq")
    assert (code, err) == (0, "")
    head, message, *recipients, _, last = out.splitlines()
    assert head.startswith("-Queue ID-")
    assert message.split()[:2] == [id, "6015"]
    assert message.endswith(" ann@example.com")
    assert sorted(one.strip() for one in recipients) == ["bob@x.org", "carl@y.org"]
    assert last == "-- 6 Kbytes in 1 Request."
    assert called("sendmail -bp") == (0, out, "")
    assert called("postqueue -p") == (0, out, "")
    assert called("sendmail -q") == (0, "", "")
    (task,) = queue.do(lambda queue: queue.ask("tasks"))
    assert (task["verb"], task["where"]) == ("flush", {"all": True})
    for line, stdin, verb, where in (
        ("postqueue -s x.org", "", "flush", {"domain": ["x.org"]}),
        ("postsuper -h -", f"{id}*\n", "hold", {"id": [id]}),
        ("postsuper -H ALL hold", "", "release", {"state": ["held"]}),
        (f"postsuper -d {id}", "", "delete", {"id": [id]}),
    ):
        code, out, err = called(line, stdin.encode())
        assert (code, err) == (0, "")
        task = queue.do(lambda queue: queue.ask("tasks"))[0]
        assert (task["verb"], task["where"]) == (verb, where)
    assert "2 recipients are deleted" in out


def test_a_reader_that_leaves(served: Callable[..., Any], tmp_path: Path) -> None:
    """`mailq | head` says nothing more."""
    served()
    called = Called(tmp_path, 1)
    command = f"ZONEMTA_CONFIG={called.config} {tmp_path}/mailq | true"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
