"""Clients that mean no good: what they may cost, and that others are served meanwhile."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.reception.conftest import PASSWORD, OpenDoor, Wire
from tests.reception.test_session import plain, secured, trusting
from zonemta_py.reception.connection_limits import Turns
from zonemta_py.reception.login import Login
from zonemta_py.reception.smtp.session import ServerSession

MESSAGE = b"Subject: hi\r\n\r\nhi\r\n"


def memory_bytes() -> int:
    """Resident, of this process, in which the server runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextlib.contextmanager
def connections(door: OpenDoor, count: int, source: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    opened = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection((door.address, door.port), timeout=60, source_address=(source, 0)))
        yield opened
    finally:
        for one in opened:
            one.close()


def ended(connection: socket.socket) -> bytes:
    """What the server says until it ends the connection."""
    said = b""
    try:
        while piece := connection.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def served(door: OpenDoor) -> None:
    """A client of good will is, at once."""
    with door.greeted() as wire:
        assert wire.mail(MESSAGE)[:3] == "250"


def test_a_header_section_of_encoded_words_stops_nobody(door: Any) -> None:
    """0.94 MB of them froze the whole receiver for seconds."""
    with door.greeted() as hostile, door.rounds() as rounds:
        for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
            hostile.ask(command)
        words = b" =?punycode?q?" + b"b" * 40 + b"?=\r\n"
        hostile.send(b"Subject: a\r\n" + words * (940_000 // len(words)) + b"\r\n.\r\n")
        assert hostile.reply()[:3] == "250"
        served(door)
    assert rounds.longest < 100_000
    assert len(door.submission.kept[0][0].headers["subject"]) <= 200


def test_a_header_section_of_tiny_fields_is_refused(door: Any) -> None:
    """A quarter of a million of them cost everybody who looks at them a quarter of a second."""
    with door.greeted() as wire:
        assert wire.mail(b"a:\r\n" * 200_000 + b"\r\nhi\r\n")[:9] == "552 5.3.4"
        assert wire.mail(b"a:\r\n" * 4_000 + MESSAGE)[:3] == "250"


def test_clients_that_never_read_cost_little_and_are_cut_off(open_door: Any, monkeypatch: Any) -> None:
    """Each got up to 10 MB of replies into memory, for a packet of EHLOs."""
    sessions, begin = list[ServerSession](), ServerSession.connection_made
    monkeypatch.setattr(
        ServerSession, "connection_made", lambda self, transport: sessions.append(self) or begin(self, transport)
    )
    door = open_door(limits={"timeout_s": 2})
    with connections(door, 30) as hostile:
        before = memory_bytes()
        for connection in hostile:
            connection.setblocking(False)
        for _ in range(20):
            for connection in hostile:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    connection.send(b"EHLO x\r\n" * 30_000)
            served(door)
        assert memory_bytes() - before < 48_000_000
        for connection in hostile:
            connection.settimeout(60)
        while not all(session._lost for session in sessions):
            time.sleep(0.05)
        assert all(len(ended(connection)) < 8_000_000 for connection in hostile[:3])


def test_a_packet_of_commands_is_no_reason_for_others_to_wait(door: Any) -> None:
    """Its commands are all answered, in order, and others have their turn between them."""
    with door.greeted() as busy:
        busy.send(b"NOOP\r\n" * 9_000 + b"VRFY\r\n")
        served(door)
        assert [busy.reply()[:3] for _ in range(9_001)] == ["250"] * 9_000 + ["501"]


def test_packets_of_many_clients_make_no_long_round(open_door: Any) -> None:
    """Whatever their commands cost: all together have no more time than one of them."""
    commands = b"EHLO x\r\nMAIL FROM:<%b@%b.test>\r\n" % (b"a" * 64, b".".join([b"b" * 60] * 3)) * 400
    door = open_door(limits={"connections": 600, "connections_per_client": 600})
    with connections(door, 500) as hostile, door.rounds() as rounds:
        for connection in hostile:
            assert connection.recv(100)[:3] == b"220"
        with rounds.held():
            for connection in hostile:
                connection.setblocking(False)
                connection.send(commands)
        for _ in range(20):
            served(door)
    assert rounds.longest < 300_000, "all of them cost six million"


def test_nobodys_turn_is_long(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is time: who waits behind many others waits for a few commands of each."""
    turns, wait = [0], Turns.wait

    def counted(self: Turns, go_on: Any) -> None:
        turns[0] += 1
        wait(self, go_on)

    monkeypatch.setattr(Turns, "spent", lambda _: False)
    monkeypatch.setattr(Turns, "wait", counted)
    with door.greeted() as busy:
        busy.send(b"NOOP\r\n" * 6_400)
        assert [busy.reply()[:3] for _ in range(6_400)] == ["250"] * 6_400
    assert turns[0] > 80


@pytest.mark.parametrize(
    "said", [b"", b"EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nSubject: x\r\n"]
)
def test_a_byte_now_and_then_keeps_nobody_alive(open_door: Any, said: bytes) -> None:
    """Not of a command, nor of a message: both have to come in time."""
    door = open_door(limits={"timeout_s": 0.5, "least_bytes_s": 100})
    with door.wire() as wire:
        wire.send(said)
        begun, alive = time.monotonic(), True
        while alive and time.monotonic() - begun < 20:
            time.sleep(0.05)
            try:
                wire.send(b"X")
            except OSError:
                alive = False
        assert not alive
    served(door)


def test_a_message_that_comes_steadily_may_take_its_time(open_door: Any) -> None:
    """More than twice as long as the client may be silent."""
    door = open_door(limits={"timeout_s": 5, "least_bytes_s": 100})
    with door.greeted() as wire:
        for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
            wire.ask(command)
        for _ in range(48):
            wire.send(b"x" * 500 + b"\r\n")
            time.sleep(0.25)
        assert wire.ask(b".")[:3] == "250"


def test_half_a_handshake_takes_a_place(open_door: Any, certificate: Path) -> None:
    """They were not counted; now they are from the first packet on, end in time, and give their places back."""
    tls = {"tls": "implicit", "certificate": str(certificate)}
    with connections(open_door(limits={"connections": 4, "timeout_s": 600}, **tls), 12) as hostile:
        waiting = hostile
        while len(waiting) > 4:
            waiting = [connection for connection in waiting if not gone(connection)]
        assert len(waiting) == 4
        assert not any(gone(connection) for connection in waiting)
    door = open_door(limits={"connections": 4, "timeout_s": 1}, **tls)
    with connections(door, 4) as hostile:
        assert all(ended(connection) == b"" for connection in hostile)
    with trusting().wrap_socket(socket.create_connection((door.address, door.port), timeout=60)) as client:
        assert client.recv(100)[:3] == b"220"


def gone(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(60)


def test_who_does_not_say_who_he_is_must_go(open_door: Any) -> None:
    """A stranger has login_s to authenticate, however busy he is meanwhile; who may relay is not asked."""
    door = open_door(limits={"login_s": 4}, relay_networks=["127.0.0.2/32"])
    with door.greeted() as stranger, connections(door, 1, "127.0.0.2") as [known]:
        answer = "250"
        while answer == "250":
            answer = stranger.ask("NOOP")[:3]
            time.sleep(0.02)
        assert answer == "421"
        wire = Wire(known)
        wire.ask("EHLO x")
        assert wire.mail(MESSAGE)[:3] == "250"


def test_a_share_is_kept_for_those_who_may_relay(open_door: Any) -> None:
    """Strangers cannot take the last quarter of the places."""
    door = open_door(limits={"connections": 8}, relay_networks=["127.0.0.2/32"])
    with connections(door, 10) as strangers:
        banners = [Wire(stranger).banner[:3] for stranger in strangers]
        assert banners == ["220"] * 6 + ["421"] * 4
        with connections(door, 2, "127.0.0.2") as known:
            assert [Wire(one).banner[:3] for one in known] == ["220"] * 2


def test_an_endless_command_line_is_cut(door: Any) -> None:
    """Not read for ever."""
    with connections(door, 1) as [hostile], contextlib.suppress(ConnectionError):
        for _ in range(1_000):
            hostile.sendall(b"x" * 65_536)
        pytest.fail("65 MB of one line were taken")
    served(door)


def test_honest_programs_are_not_cut_for_their_diligence(open_door: Any) -> None:
    """Messages, and recipients on their way to one, do not count as too many commands; idle talk does."""
    door = open_door(limits={"commands_per_connection": 20})
    people = tuple(f"{number}@d.test" for number in range(30))
    with door.greeted() as wire:
        for _ in range(4):
            assert wire.mail(MESSAGE, recipients=people)[:3] == "250"
        wire.ask("MAIL FROM:<a@b.test>")
        for person in people:
            assert wire.ask(f"RCPT TO:<{person}>")[:3] == "250"
        assert wire.ask("RSET")[:3] == "250"
        assert wire.ask("NOOP")[:3] == "421"


def test_refused_relays_are_logged_and_told_later_and_later(open_door: Any, caplog: Any) -> None:
    """Who tries again and again waits, and the log names him, not a thousand times."""
    door = open_door(relay_networks=["192.0.2.0/24"], limits={"errors_per_connection": 100})
    with door.greeted() as wire:
        wire.ask("MAIL FROM:<a@b.test>")
        took = []
        for _ in range(6):
            begun = time.monotonic()
            assert wire.ask("RCPT TO:<c@d.test>")[:9] == "550 5.7.1"
            took.append(time.monotonic() - begun)
    assert took[5] > 1.5
    lines = [line for line in caplog.messages if "relaying refused, from <a@b.test> to <c@d.test>" in line]
    assert len(lines) == 5
    assert "client 127.0.0.1" in lines[0]


def test_wrong_logins_are_logged_and_told_later_and_later(
    open_door: Any, certificate: Path, users: dict[str, str], caplog: Any
) -> None:
    """On one connection or on several: it is the client and the user that are counted."""
    door = open_door(tls="starttls", certificate=str(certificate), auth=True, users=users)
    took = []
    for _ in range(6):
        with secured(door) as wire:
            wire.ask("EHLO x")
            begun = time.monotonic()
            assert wire.ask(f"AUTH PLAIN {plain('anna', 'wrong')}")[:9] == "535 5.7.8"
            took.append(time.monotonic() - begun)
    assert took[5] > 1.5
    lines = [line for line in caplog.messages if "login of 'anna' refused" in line]
    assert lines
    assert all("client 127.0.0.1" in line and "wrong'" not in line for line in lines)


def test_guessers_do_not_delay_a_real_login(
    open_door: Any, certificate: Path, users: dict[str, str], monkeypatch: Any
) -> None:
    """Sixty at once, from his own address; he comes last, and his password is looked at before nearly all of theirs."""
    looked_at: list[str] = []
    verify, enqueue, all_there = Login._verify, Login._enqueue, Event()

    def note(self: Login, hash_: str, password: str) -> bool:
        assert all_there.wait(60)
        looked_at.append(password)
        return verify(self, hash_, password)

    def entered(self: Login, user: str, hashed: str, password: str, network: str) -> Any:
        right = enqueue(self, user, hashed, password, network)
        if password == PASSWORD:
            all_there.set()
        return right

    monkeypatch.setattr(Login, "_verify", note)
    monkeypatch.setattr(Login, "_enqueue", entered)
    users = {"anna": users["anna"], "otto": users["anna"]}
    door = open_door(tls="implicit", certificate=str(certificate), auth=True, users=users)
    with contextlib.ExitStack() as stack:
        guessers = [stack.enter_context(tls_wire(door)) for _ in range(60)]
        anna = stack.enter_context(tls_wire(door))
        for number, wire in enumerate(guessers):
            name = ("otto", f"nobody{number}")[number % 2]
            wire.send(f"AUTH PLAIN {plain(name, f'guess {number}')}\r\n".encode())
        assert anna.ask(f"AUTH PLAIN {plain('anna', PASSWORD)}")[:3] == "235"
        while len(looked_at) < 40:
            time.sleep(0.01)
    assert looked_at.index(PASSWORD) < 30


def tls_wire(door: OpenDoor) -> Wire:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    wire = Wire(context.wrap_socket(socket.create_connection((door.address, door.port), timeout=60)))
    wire.ask("EHLO x")
    return wire


def sessions() -> int:
    return sum(isinstance(one, ServerSession) for one in gc.get_objects())


@pytest.mark.parametrize("tls", ["none", "starttls", "implicit"])
def test_a_connection_that_is_gone_leaves_nothing(open_door: Any, certificate: Path, tls: str) -> None:
    """Nobody has to find out that it is garbage: under TLS each kept a quarter of a megabyte until somebody did."""
    door = open_door(tls=tls, certificate=str(certificate) if tls != "none" else None)
    gc.collect()
    others = sessions()  # of listeners that ended with clients
    gc.disable()
    try:
        for message in range(12):
            wire = {"none": door.greeted, "starttls": lambda: secured(door), "implicit": lambda: tls_wire(door)}[tls]()
            wire.ask("EHLO x")
            if message % 2:
                for command in ("MAIL FROM:<a@b.test>", "RCPT TO:<c@d.test>", "DATA"):
                    wire.ask(command)
                wire.send(b"Subject: large\r\n\r\n" + b"a" * 200_000)
            wire.close()
        until = time.monotonic() + 60
        while (left := sessions() - others) > 0 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        gc.enable()
    assert left <= 0
