"""Postfix, Debian's, as the receiving server: STARTTLS with a certificate of its own making, delivery to a maildir."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark.contenders import Postfix
from survival.client import Client
from survival.ledger import Ledger
from survival.letters import letter
from survival.rig import Mta

from zonemta_py.delivery.session import Route, open_session
from zonemta_py.delivery.tls import dane
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.memory import TlsMemory
from zonemta_py.delivery.tls.plan import Plan
from zonemta_py.sink.certificate import self_made

PATIENCE_S = 60.0
LETTERS = 30


class Receiver(Postfix):
    """Takes everything for one.test, two.test and bulk.test, under TLS only, into one maildir."""

    def _main(self) -> str:
        domains = "one.test, two.test, bulk.test"
        return super()._main() + (
            f"virtual_mailbox_domains = {domains}\nvirtual_mailbox_base = {self.folder / 'mail'}\n"
            "virtual_mailbox_maps = static:inbox/\nvirtual_minimum_uid = 1\nvirtual_mailbox_limit = 0\n"
            f"virtual_uid_maps = static:{_number('-u')}\nvirtual_gid_maps = static:{_number('-g')}\n"
            f"smtpd_tls_chain_files = {self.folder / 'certificate.pem'}\nsmtpd_tls_security_level = encrypt\n"
            "smtpd_tls_received_header = yes\nsmtpd_recipient_limit = 1000\n"
        )

    def arrived(self) -> list[bytes]:
        """Every message in the maildir, whole; Postfix stores lines with LF."""
        return [path.read_bytes() for path in (self.folder / "mail" / "inbox" / "new").glob("*")]


def _number(kind: str) -> int:
    """The user's or group's number of `nobody`, whose the maildir is."""
    return int(subprocess.run(["id", kind, "nobody"], capture_output=True, text=True, check=True).stdout)


@pytest.fixture
def postfix() -> Iterator[Receiver]:
    if Postfix.missing():
        pytest.skip(Postfix.missing())
    with tempfile.TemporaryDirectory(prefix="zonemta-postfix-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postfix's processes are not root's
        receiver = Receiver(folder / "postfix", 9)
        (receiver.folder / "certificate.pem").write_bytes(self_made("postfix.test"))
        (receiver.folder / "mail").mkdir()
        shutil.chown(receiver.folder / "mail", "nobody")
        receiver.wipe()
        process = subprocess.Popen(receiver.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield receiver
        finally:
            master = int((receiver.folder / "spool" / "pid" / "master.pid").read_text())
            os.kill(master, signal.SIGTERM)  # it has a process group of its own, and outlives the script
            process.wait(30)


async def test_postfix_gets_the_bytes_under_tls(postfix: Receiver, tmp_path: Path) -> None:
    """Each recipient's copy ends in the bytes that were handed in; every connection was encrypted."""
    mta = Mta(tmp_path / "queue", postfix.port, home=tmp_path, tls="opportunistic")
    mta.start()
    try:
        await mta.accepting()
        letters = [letter(number, kinds="plain", large=0.2) for number in range(LETTERS)]
        await Client(mta.port, Ledger(), kinds="plain", large=0.2).hand_in(range(LETTERS), sessions=3)
        await mta.drained()
    finally:
        mta.end()
    expected = sum(len(one.recipients) for one in letters)
    arrived = await asyncio.to_thread(_wait_for, postfix, expected)
    for one in letters:
        body = one.data.replace(b"\r\n", b"\n")
        copies = [copy for copy in arrived if copy.endswith(body)]
        assert len(copies) == len(one.recipients), f"{one.name}: {len(copies)} copies are right"
    assert all(b"using TLSv1" in copy for copy in arrived)


def _wait_for(postfix: Receiver, count: int) -> list[bytes]:
    """What has arrived, once it is that many."""
    end = time.monotonic() + PATIENCE_S
    while len(arrived := postfix.arrived()) < count and time.monotonic() < end:
        time.sleep(0.1)
    assert len(arrived) == count, (postfix.folder / "maillog").read_text()[-2000:]
    return arrived


@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_postfix_is_who_it_should_be(version: str, postfix: Receiver) -> None:
    """Its certificate is validated by an authority, and by TLSA records for its key or its authority's."""
    pem = (postfix.folder / "certificate.pem").read_text()
    key = dane.key_of(ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :]))
    contexts, digest = TlsContexts(postfix.folder / "certificate.pem"), hashlib.sha256(key).digest()
    plans = [Plan("required", "pkix")]
    plans += [
        Plan("required", "dane", tlsa=(dane.Tlsa(usage, 1, 1, digest),), names=("postfix.test",)) for usage in (2, 3)
    ]
    await asyncio.to_thread(_wait_until_open, postfix.port)
    memory = TlsMemory(3600)
    if version == "1.2":
        memory.learn(("postfix.test", postfix.port), frozenset({"1.3"}), time.monotonic())
    for plan in plans:
        session = await open_session(Route("postfix.test", "127.0.0.1", postfix.port, tls=plan), contexts, memory)
        session.dialogue.quit()
        assert session.tls.startswith(f"TLSv{version} ")
        assert session.tls.endswith(f" verified={plan.verify}")


def _wait_until_open(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
