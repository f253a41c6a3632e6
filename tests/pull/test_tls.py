"""Beyond this machine: TLS, and tokens with rights and queues."""

from __future__ import annotations

import hashlib
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from tests.pull.conftest import Server

TOKENS = {
    "boss": ('["*"]', '["push", "pop"]'),
    "adder": ('["jobs", "in.*"]', '["push"]'),
    "taker": ('["jobs"]', '["pop"]'),
}


@pytest.fixture(scope="module")
def guarded(open_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Server:
    """TLS, and a token for each of TOKENS, which is its name."""
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    tables = [
        f'[[pull.tokens]]\nname = "{name}"\nhash = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        f"queues = {queues}\nrights = {rights}\n"
        for name, (queues, rights) in TOKENS.items()
    ]
    return open_server(f'certificate = "{file}"\ntimeout_s = 1.5\n' + "".join(tables))


def secure(server: Server) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(server.connect(), suppress_ragged_eofs=False)


def said(server: Server, text: bytes) -> bytes:
    """To its clean end, which is a close_notify."""
    with secure(server) as connection:
        connection.sendall(text)
        answer = b""
        while block := connection.recv(65_536):
            answer += block
        return answer


def refused(server: Server, text: bytes) -> str:
    """The line before the reset."""
    with secure(server) as connection:
        connection.sendall(text)
        line = connection.recv(1_000)
        with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
            connection.recv(1_000)
        return line.decode()


def test_ncat_pushes_and_pops_over_tls(guarded: Server) -> None:
    """It ends its side without a close_notify, and is answered all the same."""
    if shutil.which("ncat") is None:
        pytest.skip("ncat is not installed (apt-get install ncat)")
    body = bytes(range(256)) * 4_000
    pushed = guarded.ncat(b"auth boss\npush jobs id\n" + body, "--ssl")
    assert (pushed.returncode, len(pushed.stdout)) == (0, 17)
    popped = guarded.ncat(b"auth boss\npop jobs\n", "--ssl")
    assert (popped.returncode, popped.stdout) == (0, body)


def test_rights_and_queues_of_tokens(guarded: Server) -> None:
    assert said(guarded, b"auth adder\r\npush in.box size=1\r\nx") == b""
    assert said(guarded, b"auth adder\npush jobs size=1\nx") == b""
    assert "may not pop at 'jobs'" in refused(guarded, b"auth adder\npop jobs\n")
    assert "may not push at 'others'" in refused(guarded, b"auth adder\npush others\nx")
    assert said(guarded, b"auth taker\nqueues\n") == b"jobs 1 ready 0 leased 0 delayed 0 held\n"
    assert "the token is unknown" in refused(guarded, b"auth nobody\npop jobs\n")
    assert "a token is needed; send auth TOKEN" in refused(guarded, b"pop jobs\n")
    assert said(guarded, b"auth taker\npop jobs\n") == b"x"


def test_a_receipt_of_another_queue_is_worth_nothing(guarded: Server) -> None:
    said(guarded, b"auth boss\npush secret size=1\ny")
    receipt = said(guarded, b"auth boss\nreserve secret\n").split(b" ")[0]
    for command in (b"ack %s", b"nack %s", b"extend %s 60"):
        assert "is not reserved any more" in refused(guarded, b"auth taker\n" + command % receipt + b"\n")
    assert said(guarded, b"auth boss\nack " + receipt + b"\n") == b""


def test_who_speaks_no_tls_is_told_so(guarded: Server) -> None:
    for text in (b"pop\n", b"push jobs\nwhatever it is, it is long enough\n"):
        assert guarded.refused(text, end=True) == "error: this port speaks TLS; connect with ncat --ssl\n"


def test_a_silent_or_slow_client_is_cut_off_and_harms_nobody(guarded: Server) -> None:
    """Before the handshake, before the command, in the middle of a push, and while it should read."""
    said(guarded, b"auth boss\npush large size=4000000\n" + b"z" * 4_000_000)
    silent, handshaken, pushing, deaf = guarded.connect(), secure(guarded), secure(guarded), secure(guarded)
    pushing.sendall(b"auth boss\npush slow\nx")
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b"auth boss\npop large\n")
    for connection in (silent, handshaken, pushing):
        connection.settimeout(60)
        with connection, pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
            connection.recv(100)
    assert len(said(guarded, b"auth boss\npop large wait=30\n")) == 4_000_000
    deaf.close()
    assert said(guarded, b"auth boss\nsize slow\n") == b"0 ready 0 leased 0 delayed 0 held\n"


def test_a_cut_push_over_tls_is_not_stored(guarded: Server) -> None:
    with secure(guarded) as connection:
        connection.sendall(b"auth boss\npush cut\nhalf")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert said(guarded, b"auth boss\nsize cut\n") == b"0 ready 0 leased 0 delayed 0 held\n"


def test_an_address_beyond_loopback_needs_both(tmp_path: Path) -> None:
    from zonemta_py.config import Config

    for more in ({}, {"certificate": tmp_path / "x.pem"}, {"tokens": [{"name": "a", "hash": "0" * 64}]}):
        with pytest.raises(ValueError, match="is not loopback: set certificate = a PEM file and add a"):
            Config.model_validate({"pull": {"enabled": True, "address": "192.0.2.1", **more}})


def test_ncat_that_sends_slowly_over_tls(guarded: Server) -> None:
    """As somebody who types: token, command, message, each after a while; and one who waits for what comes later."""
    if shutil.which("ncat") is None:
        pytest.skip("ncat is not installed (apt-get install ncat)")
    address = f"ncat --ssl 127.0.0.1 {guarded.port}"
    steps = "printf 'auth boss\\n'; sleep 0.3; printf 'push typed\\n'; sleep 0.3; printf one; sleep 0.3; printf two"
    push = subprocess.run(["sh", "-c", f"({steps}) | {address}"], timeout=120, check=False)
    taken = subprocess.run(
        ["sh", "-c", f"(printf 'auth boss\\npop typed wait=9\\n'; sleep 1) | {address}"],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (push.returncode, taken.returncode, taken.stdout) == (0, 0, b"onetwo")
