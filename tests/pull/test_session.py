"""Named queues as their clients see them; the MTA's processes are the real ones."""

from __future__ import annotations

import contextlib
import re
import smtplib
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO

import pytest

from tests.pull.conftest import Server
from zonemta_py.mail.reply import Reply
from zonemta_py.pull.server import refused

BINARY = bytes(range(256)) * 1_000 + b"\n.\r\n\0"
"""Several chunks, of all bytes there are."""


class Typing:
    """Somebody at a terminal: types a line, looks, types the next, and ^D at last."""

    def __init__(self, server: Server) -> None:
        self._ncat = subprocess.Popen(
            ["ncat", "localhost", str(server.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._ncat.stdin is not None
        self._keys: IO[bytes] = self._ncat.stdin

    def line(self, text: str) -> None:
        self._keys.write(text.encode() + b"\n")
        self._keys.flush()
        time.sleep(0.05)

    def control_d(self) -> str:
        said, _ = self._ncat.communicate(timeout=60)
        assert self._ncat.returncode == 0
        return said.decode()


def test_the_session_of_the_seed(server: Server) -> None:
    """As its page has it, typed into ncat: pop, push, push, pop."""
    server.ncat(b"pop\n")  # skips where there is no ncat
    first = Typing(server)
    first.line("pop")
    assert first.control_d() == ""
    for package in ("package 1", "package 2"):
        push = Typing(server)
        push.line("push")
        push.line(package)
        assert push.control_d() == ""
    for package in ("package 1\n", "package 2\n", ""):
        pop = Typing(server)
        pop.line("pop")
        assert pop.control_d() == package


def test_any_bytes_come_back_as_they_were(server: Server) -> None:
    """Also none, and also several chunks; CRLF ends the first line as well as LF does."""
    for body in (BINARY, b"", b"\r\n", b"x" * 65_536, b"x" * 65_537):
        assert server.say(b"push bytes\r\n" + body) == b""
        assert server.say(b"pop bytes\r\n", end=False) == body
    assert server.say(b"pop bytes\n") == b""


def test_ncat_carries_files(server: Server) -> None:
    assert server.ncat(b"push files\n" + BINARY).returncode == 0
    popped = server.ncat(b"pop files\n")
    assert (popped.returncode, popped.stdout) == (0, BINARY)


def test_a_push_is_answered_when_one_asks(server: Server) -> None:
    """With the message's id; with its size said, no end of file is needed, and one that is cut off is not stored."""
    said = server.say(b"push asked size=5 id\nhello", end=False).decode()
    assert re.fullmatch(r"[0-9a-f]{16}\n", said)
    assert "4 bytes came and size=5 was said, so nothing is stored" in server.refused(
        b"push asked size=5\nhell", end=True
    )
    for text in (b"push asked size=0\nx", b"push asked size=5\nhello\n", b"push asked size=0\n\n"):
        assert "more bytes came than size=" in server.refused(text)
    assert server.say(b"size asked\n") == b"1 ready 0 leased 0 delayed 0 held\n"
    assert server.say(b"push asked size=0\n", end=False) == b""


def test_an_aborted_push_is_not_stored(server: Server) -> None:
    """A reset is not an end of file. (A client that is killed ends its file, says TCP: size= tells the difference.)"""
    with server.connect() as connection:
        connection.sendall(b"push aborted\n" + BINARY)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert "cut off" in server.refused(b"push aborted", end=True)
    time.sleep(0.2)
    assert server.say(b"size aborted\n") == b"0 ready 0 leased 0 delayed 0 held\n"


def test_order_priority_and_delay(server: Server) -> None:
    """The oldest of the highest priority first; delayed ones when their time has come."""
    for line in (b"delay=600", b"priority=-1", b"", b"", b"priority=9"):
        server.say(b"push order " + line + b"\n" + line + b" ")
    first = [server.say(b"pop order\n").split(b" ")[0] for _ in range(5)]
    assert first == [b"priority=9", b"", b"", b"priority=-1", b""]
    server.say(b"push soon delay=0.5\nafter half a second")
    assert server.say(b"pop soon wait=60\n") == b"after half a second"


def test_whoever_waits_gets_it_at_once(server: Server) -> None:
    said = list[bytes]()
    waiting = threading.Thread(target=lambda: said.append(server.say(b"pop waits wait=60\n")))
    waiting.start()
    time.sleep(0.3)
    server.say(b"push waits\nfor you")
    waiting.join(60)
    assert said == [b"for you"]
    began = time.monotonic()
    assert server.say(b"pop waits wait=0.3\n") == b""
    assert time.monotonic() - began >= 0.3


def test_a_message_that_was_not_taken_is_given_again(server: Server) -> None:
    """Its client went before it had all: at once, in the middle, or before it had looked."""
    large = b"y" * 8_000_000
    server.say(b"push again\n" + large)
    for read in (0, 100, 100_000):
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"pop again\n")
            connection.recv(read)
    assert server.say(b"pop again wait=60 envelope\n").partition(b"\n\n")[2] == large
    server.say(b"push again\nsmall")
    with server.connect() as connection:
        connection.sendall(b"pop again\n")
        time.sleep(0.5)  # it has come, and is never read
    assert server.say(b"pop again wait=60\n") == b"small"


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("body", [b"", b"small", b"z" * 200_000])
def test_whoever_ended_its_side_and_died_while_it_waited_takes_nothing(
    server: Server, body: bytes, reset: bool
) -> None:
    """As `printf … | ncat` that is killed: its kernel refuses what comes. (It acknowledges an end without a byte.)"""
    for command in (b"pop dead wait=60\n", b"reserve dead 600 wait=60\n"):
        if not body and not reset and command.startswith(b"pop"):
            continue
        with server.connect() as connection:
            connection.sendall(command)
            connection.shutdown(socket.SHUT_WR)
            time.sleep(0.2)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.1)
        server.say(b"push dead\n" + body)
        head, _, came = server.say(b"pop dead wait=60 envelope\n").partition(b"\n\n")
        assert (head[:4], came) == (b"Id: ", body)
        assert server.say(b"size dead\n") == b"0 ready 0 leased 0 delayed 0 held\n"


def test_reservations(server: Server) -> None:
    """A receipt on the first line, then the bytes; nobody else gets it until it is given back or its time is over."""
    server.say(b"push held\nA")
    server.say(b"push held\nB")
    receipt, size, body = server.say(b"reserve held 60\n").replace(b"\n", b" ").split(b" ")
    assert (size, body) == (b"1", b"A")
    assert server.say(b"size held\n") == b"1 ready 1 leased 0 delayed 0 held\n"
    assert server.say(b"extend " + receipt + b" 120\n") == b""
    assert server.say(b"peek held\n") == b"B"
    assert server.say(b"nack " + receipt + b"\n") == b""
    assert "is not reserved any more" in server.refused(b"ack " + receipt + b"\n")
    again = server.say(b"reserve held\n")
    assert again.endswith(b"\nA")
    assert server.say(b"ack " + again.split(b" ")[0] + b"\n") == b""
    assert server.say(b"reserve held 0.5\n").endswith(b"B")
    assert server.say(b"pop held wait=60\n") == b"B"
    assert server.say(b"reserve held\n") == b""


def test_giving_back_with_a_delay(server: Server) -> None:
    server.say(b"push later\nC")
    receipt = server.say(b"reserve later\n").split(b" ")[0]
    server.say(b"nack " + receipt + b" 60\n")
    assert server.say(b"size later\n") == b"0 ready 0 leased 1 delayed 0 held\n"
    assert server.say(b"pop later\n") == b""


def test_the_envelope_comes_first_if_one_asks(server: Server) -> None:
    """Which also tells an empty message from no message."""
    server.say(b"push enveloped\n")
    head, _, body = server.say(b"pop enveloped envelope\n").partition(b"\n\n")
    fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
    assert fields.items() >= {"Size": "0", "Sender": "<>", "Recipients": "<enveloped@queue>", "Attempts": "0"}.items()
    assert body == b""
    assert server.say(b"pop enveloped envelope\n") == b""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"frob\n", "error: 'frob' is not a command"),
        (b"\x16\x03\x01\x02garbage\xff\n", "is not a command"),
        (b"x" * 100_000, "the first line is longer than 1,000 bytes"),
        (b"ack 00.1\n", "is not reserved any more"),
        (b"auth me\nauth me\npop\n", "the token was sent already; send the command on the line after it"),
        (b"reserve q 999999999\n", "(pull.reserve_max_s)"),
        (b"pop q wait=999999999\n", "(pull.reserve_max_s)"),
        (b"push q delay=999999999\nx", "(limits.hold_days)"),
    ],
)
def test_an_error_is_a_line_and_then_a_reset(server: Server, text: bytes, said: str) -> None:
    """A clean end would mean yes."""
    line = server.refused(text)
    assert said in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (452, "the disk is full", "the disk is full; try again later"),
        (451, "it restarts; try again in a moment", "it restarts; try again in a moment"),
        (554, "there is no such queue", "there is no such queue"),
    ],
)
def test_one_is_asked_to_try_again_once(code: int, text: str, said: str) -> None:
    assert refused(Reply(code, "4.3.0" if code < 500 else "5.5.0", text)) == said


def test_help_and_queues(server: Server) -> None:
    assert b"push [queue]" in server.say(b"help\n")
    server.say(b"push listed\nx")
    assert b"listed 1 ready 0 leased 0 delayed 0 held\n" in server.say(b"queues\n")
    assert server.say(b"") == b""


def test_limits_are_refused_in_one_sentence(open_server: Callable[..., Server]) -> None:
    """Queues that may not be made, messages that are too large, connections that are too many."""
    server = open_server(
        "connections = 3\nmessage_bytes = 100000\ncreate = false\n"
        '[[zones]]\nname = "branch"\ndelivery = "pull"\nrecipient_domains = ["branch.test"]\n'
    )
    line = server.refused(b"push unknown\nx", end=True)
    print(line)
    assert re.fullmatch("error: .*; .*\n", line)
    assert "larger than 100,000 bytes" in server.refused(b"push branch\n" + b"x" * 100_001, end=True)
    assert server.say(b"push branch\n" + b"x" * 100_000) == b""
    several = [server.connect() for _ in range(3)]
    time.sleep(0.2)
    assert server.refused(b"pop branch\n") == "error: too many connections; try again later\n"
    for connection in several:
        connection.close()
    said = b""
    while not said:
        with contextlib.suppress(ConnectionResetError):  # their ends are seen in a moment
            said = server.say(b"pop branch\n")
    assert len(said) == 100_000


def test_mail_is_fetched_with_its_envelope(open_server: Callable[..., Server]) -> None:
    """A zone that nobody sends from: SMTP mail for it waits for its owner."""
    server = open_server('[[zones]]\nname = "branch"\ndelivery = "pull"\nrecipient_domains = ["branch.test"]\n')
    with smtplib.SMTP("127.0.0.1", server.mta.port) as mail:
        mail.sendmail("ann@src.test", ["bob@branch.test"], "Subject: hello\r\n\r\ntext\r\n")
    head, _, body = server.say(b"pop branch envelope wait=60\n").partition(b"\n\n")
    assert b"Sender: <ann@src.test>\nRecipients: <bob@branch.test>\n" in head
    assert b"\r\nSubject: hello\r\n" in body
    assert body.endswith(b"\r\n\r\ntext\r\n")
    assert server.say(b"size branch\n") == b"0 ready 0 leased 0 delayed 0 held\n"
