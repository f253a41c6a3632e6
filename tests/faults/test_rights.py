"""Rights that a reload takes away, with the real MTA: sessions that are open lose them at once, and no others do."""

from __future__ import annotations

import contextlib
import http.client
import smtplib
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from ports import free_port
from survival.rig import Mta

from zonemta_py.web.keys import hashed, new_key

PATIENCE_S = 60
PASSWORD = "correct horse"


def test_a_login_and_a_network_lose_their_right_at_once(mta: Mta, users: dict[str, str], certificate: Path) -> None:
    """Between two messages, and within one whose content has not begun; one that has goes on. Others notice nothing,
    over several reloads."""
    listener = f'auth = true\ntls = "starttls"\ncertificate = "{certificate}"\nrelay_networks = ["127.0.0.1"]\n'
    text = mta.config_file.read_text().replace('name = "smtp"', f'name = "smtp"\n{listener}')
    three = "".join(f'{name} = "{users["anna"]}"\n' for name in ("anna", "otto", "eva"))
    mta.config_file.write_text(f"{text}[users]\n{three}")
    mta.start()
    _until(lambda: mta.ask("generation"))
    with contextlib.ExitStack() as held:
        anna, amid, within, otto, eva = (
            _login(held, mta.port, name) for name in ("anna", "anna", "anna", "otto", "eva")
        )
        here = _connected(held, mta.port)
        for one in (anna, otto, eva, here):
            assert one.sendmail("a@x.test", "b@y.test", "one\r\n") == {}
        for one in (amid, within):
            assert (one.mail("a@x.test")[0], one.rcpt("b@y.test")[0]) == (250, 250)
        assert within.docmd("DATA")[0] == 354
        _reload(mta, f"{text}[users]\n{three.replace('anna', 'berta')}")
        _until(lambda: anna.mail("a@x.test")[0] == 535 or anna.rset()[0] != 250)
        assert anna.mail("a@x.test") == (535, b"5.7.8 This login holds no more; connect again")
        assert amid.docmd("DATA")[0] == amid.rcpt("c@y.test")[0] == 535
        within.send(b"two\r\n.\r\n")
        assert within.getreply()[0] == 250
        assert within.mail("a@x.test")[0] == 535
        other = users["anna"].replace("$", "$", 1)[:-1] + ("A" if users["anna"][-1] != "A" else "B")
        new = three.replace("anna", "berta").replace(f'otto = "{users["anna"]}"', f'otto = "{other}"')
        assert (otto.sendmail("a@x.test", "b@y.test", "three\r\n"), here.noop()[0]) == ({}, 250)
        _reload(mta, f"{text.replace('127.0.0.1', '192.0.2.1', 1)}[users]\n{new}")
        _until(lambda: otto.mail("a@x.test")[0] == 535 or otto.rset()[0] != 250)
        _until(lambda: here.mail("a@x.test") == (550, b"5.7.1 This network may relay no more") or here.rset()[0] != 250)
        assert eva.sendmail("a@x.test", "b@y.test", "four\r\n") == {}


def test_senders_and_accounts_that_change_hold_at_once(mta: Mta, users: dict[str, str], certificate: Path) -> None:
    """For users, networks and HTTP keys, narrower or another account: whoever is concerned is sent away to come again,
    also within a message whose content has not begun; others, and those with other quotas only, notice nothing."""
    port, key = free_port(), new_key()
    relays = 'relay_networks = ["127.0.0.1"]\nrelay_senders = { "127.0.0.1" = ["a.test", "b.test"] }\n'
    listener = f'auth = true\ntls = "starttls"\ncertificate = "{certificate}"\n{relays}'
    text = mta.config_file.read_text().replace('name = "smtp"', f'name = "smtp"\n{listener}')
    text += "[users]\n" + "".join(f'{name} = "{users["anna"]}"\n' for name in ("anna", "otto", "eva", "paul"))
    text += '[[accounts]]\nname = "shop"\nusers = ["paul"]\nsenders = ["a.test", "b.test"]\nmessages = ["90/s"]\n'
    text += f'[http]\nenabled = true\nport = {port}\n[[http.keys]]\nname = "k"\nhash = "{hashed(key)}"\n'
    senders = 'senders = ["a.test", "b.test"]\n[senders]\nanna = ["a.test", "b.test"]\notto = ["b.test"]\n'
    mta.config_file.write_text(text + senders)
    mta.start()
    _until(lambda: mta.ask("generation"))
    with contextlib.ExitStack() as held:
        anna, amid, otto, eva, paul = (_login(held, mta.port, name) for name in ("anna", "anna", "otto", "eva", "paul"))
        here, quiet = _connected(held, mta.port), _connected(held, mta.port)
        for one in (anna, otto, eva, paul, here):
            assert one.sendmail("x@b.test", "b@y.test", "one\r\n") == {}
        assert (amid.mail("x@b.test")[0], amid.rcpt("b@y.test")[0]) == (250, 250)
        _until(lambda: _connects(port))
        shop = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        held.callback(shop.close)
        assert _hand_in(shop, key) == 200
        _reload(mta, (text + senders.replace('["a.test", "b.test"]', '["a.test"]')).replace("90/s", "80/s"))
        gone = (421, b"4.7.0 Other rights hold for you now; connect again")
        _until(lambda: (said := anna.mail("x@b.test")) == gone or anna.rset()[0] != 250 or said[0] == 550)
        assert (said := amid.docmd("DATA")) == gone, said
        assert _hand_in(shop, key) == 503
        for one in (otto, eva, paul, here):
            assert one.sendmail("x@b.test", "b@y.test", "two\r\n") == {}
        assert _login(held, mta.port, "anna").mail("x@b.test")[0] == 550
        narrow = text.replace('["a.test", "b.test"]', '["a.test"]')
        _reload(mta, narrow + senders.replace('["a.test", "b.test"]', '["a.test"]'))
        for one in (paul, here):
            _until(lambda one=one: one.mail("x@b.test") == gone or one.rset()[0] != 250)
        assert quiet.mail("x@a.test") == gone
        for one in (otto, eva):
            assert one.sendmail("x@b.test", "b@y.test", "three\r\n") == {}


def _hand_in(one: http.client.HTTPConnection, key: str) -> int:
    """The status for a message from x@b.test."""
    head = {"authorization": f"Bearer {key}", "content-type": "message/rfc822"}
    one.request("POST", "/v1/inject?sender=x@b.test&to=b@y.test", b"From: x@b.test\r\n\r\none\r\n", head)
    response = one.getresponse()
    response.read()
    return response.status


def test_streams_of_a_key_end_and_it_is_refused_at_once(mta: Mta) -> None:
    """On connections of the process before, too; others' streams go on where nobody has lost anything."""
    port, keys = free_port(), {name: new_key() for name in ("shop", "desk")}
    rows = {
        name: f'[[http.keys]]\nname = "{name}"\nhash = "{hashed(key)}"\nrole = "read"\n' for name, key in keys.items()
    }
    text = f"{mta.config_file.read_text()}[http]\nenabled = true\nport = {port}\n"
    mta.config_file.write_text(text + rows["shop"] + rows["desk"])
    mta.start()
    with contextlib.ExitStack() as held:
        _until(lambda: _connects(port))
        stream, desk, kept = (_asks(held, port, keys[name], "/v1/events") for name in ("shop", "desk", "desk"))
        idle = [_asks(held, port, keys[name], "/v1/status") for name in ("shop", "desk")]
        for one in (stream, desk, kept, *idle):
            assert b" 200 " in one.recv(60_000)
        _reload(mta, f"{text}{rows['shop']}{rows['desk']}[learning]\ninitial = 7\n")
        time.sleep(1.0)
        assert not _ended(stream)
        _reload(mta, text + rows["desk"])
        _until(lambda: _ended(stream))
        for one, key, status in zip(idle, keys.values(), (b" 401 ", b" 200 "), strict=True):
            _ended(one)  # the rest of the first answer
            one.setblocking(True)
            one.sendall(_request(key, "/v1/status"))
            assert status in one.recv(60_000)[:20]


def _request(key: str, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n".encode()


def _asks(held: contextlib.ExitStack, port: int, key: str, path: str) -> socket.socket:
    one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
    one.sendall(_request(key, path))
    return one


def _connects(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def _ended(one: socket.socket) -> bool:
    """Whether the last piece of a response has come."""
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return (b"\r\n" + one.recv(60_000)).endswith(b"\r\n0\r\n\r\n")
    return False


def _connected(held: contextlib.ExitStack, port: int) -> smtplib.SMTP:
    one = smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S)
    held.callback(one.close)
    one.ehlo()
    return one


def _login(held: contextlib.ExitStack, port: int, name: str) -> smtplib.SMTP:
    one = _connected(held, port)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    one.starttls(context=context)
    one.login(name, PASSWORD)
    return one


def _reload(mta: Mta, text: str) -> None:
    mta.config_file.write_text(text)
    assert mta.ask("reload")["refused"] == []


def _until(done: Callable[[], object]) -> None:
    """Soon: long before clients of the process before are sent away."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_who_waits_with_a_queue_token_that_is_gone_is_sent_away(mta: Mta) -> None:
    """At once; whoever comes again is refused."""
    port, token = free_port(), new_key()
    text = mta.config_file.read_text() + f"[pull]\nenabled = true\nport = {port}\n"
    rows = {name: f'[[pull.tokens]]\nname = "{name}"\nhash = "{hashed(name + token)}"\n' for name in ("old", "kept")}
    mta.config_file.write_text(text + rows["old"] + rows["kept"])
    mta.start()
    _until(lambda: _connects(port))
    with contextlib.ExitStack() as held:
        waiting = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        waiting.sendall(f"auth old{token}\npop jobs wait=50\n".encode())
        time.sleep(0.5)
        _reload(mta, text + rows["kept"])
        with contextlib.suppress(ConnectionError):
            assert waiting.recv(1000) == b""
        again = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        again.sendall(f"auth old{token}\nqueues\n".encode())
        assert b"token is unknown" in again.recv(1000)
