"""Dovecot, Debian's, as the mail store behind LMTP: a final reply for each recipient, over TCP and a unix socket."""

from __future__ import annotations

import asyncio
import os
import shutil
import smtplib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from survival.rig import Mta

from zonemta_py.sink import Sink, SinkOptions

PATIENCE_S = 60.0

_CONFIG = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = lmtp
ssl = no
auth_username_format = %n
mail_location = maildir:{folder}/mail/%n
mail_uid = nobody
mail_gid = nogroup
first_valid_uid = 1
first_valid_gid = 1
mail_plugins = quota
quota_full_tempfail = yes
plugin {{
  quota = count:all
  quota_vsizes = yes
}}
passdb {{
  driver = passwd-file
  args = {folder}/users
}}
userdb {{
  driver = passwd-file
  args = {folder}/users
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {port}
  }}
  unix_listener {folder}/lmtp.sock {{
    mode = 0666
  }}
}}
"""
_USERS = "ann:::::::\nbob:::::::\nfull:::::::userdb_quota_rule=*:bytes=100\n"
_ZONE = """
[[zones]]
name = "{name}"
recipient_domains = ["{name}.test"]
protocol = "lmtp"
host = "{host}"
port = {port}
"""


class Dovecot:
    """Users ann, bob, and full (whose quota no message fits), at any domain."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.socket = folder, free_port(), folder / "lmtp.sock"
        (folder / "mail").mkdir()
        shutil.chown(folder / "mail", "nobody")
        (folder / "users").write_text(_USERS)
        (folder / "dovecot.conf").write_text(_CONFIG.format(folder=folder, port=self.port))
        self.process = subprocess.Popen(["dovecot", "-F", "-c", folder / "dovecot.conf"])
        end = time.monotonic() + PATIENCE_S
        while not self.socket.exists() and time.monotonic() < end:
            assert self.process.poll() is None, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text()[-2000:] if path.exists() else "no log"

    def mailbox(self, user: str) -> list[bytes]:
        """Every message of that user, whole; Dovecot stores lines with LF."""
        return [path.read_bytes() for path in (self.folder / "mail" / user / "new").glob("*")]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def dovecot() -> Iterator[Dovecot]:
    if shutil.which("dovecot") is None or not Path("/usr/lib/dovecot/lmtp").exists():
        pytest.skip("Dovecot's LMTP server is not installed: apt-get install dovecot-lmtpd")
    if os.geteuid() != 0:
        pytest.skip("Dovecot starts its processes as several users: run as root")
    with tempfile.TemporaryDirectory(prefix="zonemta-dovecot-") as name:
        Path(name).chmod(0o755)  # Dovecot's processes are not root's
        server = Dovecot(Path(name))
        try:
            yield server
        finally:
            server.end()


def hand_in(port: int, domain: str) -> None:
    """One message to ann, to nobody, to full and to bob, in this order."""
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        recipients = [f"{user}@{domain}" for user in ("ann", "nobody.here", "full", "bob")]
        refused = client.sendmail("news@letters.test", recipients, f"Subject: {domain}\r\n\r\n.dot\r\n{'x' * 200}\r\n")
        assert refused == {}


async def test_each_recipient_by_its_own_reply(dovecot: Dovecot, tmp_path: Path) -> None:
    """Ann and bob have it once; the unknown one bounced at RCPT; the full one, refused behind the dot, is not lost."""
    zones = _ZONE.format(name="tcp", host="127.0.0.1", port=dovecot.port)
    zones += _ZONE.format(name="unix", host=dovecot.socket, port=24)
    # What bounces goes to a port where nobody listens: the notices stay in the queue.
    mta = Mta(tmp_path / "queue", free_port(), home=tmp_path, more=zones, processes=1)
    mta.start()
    try:
        await mta.accepting()
        for domain in ("tcp.test", "unix.test"):
            await asyncio.to_thread(hand_in, mta.port, domain)
        left = await asyncio.to_thread(settled, mta)
    finally:
        mta.end()
    assert set(left) == {"full@tcp.test", "full@unix.test"}, dovecot.log() + mta.log_tail()
    assert all("452 4.2.2" in last for last in left.values()), left
    for user in ("ann", "bob"):
        bodies = dovecot.mailbox(user)
        assert len(bodies) == 2
        assert sum(b"\nSubject: tcp.test\n" in body for body in bodies) == 1
        assert all(body.endswith(b"\n\n.dot\n" + b"x" * 200 + b"\n") for body in bodies)
    assert dovecot.mailbox("full") == []


async def test_success_is_told(dovecot: Dovecot, tmp_path: Path) -> None:
    """NOTIFY=SUCCESS: Dovecot offers no DSN and is the end of the way, so the sender hears `delivered` from us."""
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        zone = _ZONE.format(name="tcp", host="127.0.0.1", port=dovecot.port)
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=zone, processes=1)
        mta.start()
        try:
            await mta.accepting()
            await asyncio.to_thread(ask_to_be_told, mta.port)
            await mta.drained()
        finally:
            mta.end()
        [notice] = sink.messages
    assert notice.recipients == ["news@letters.test"]
    assert b"\r\nAction: delivered\r\nStatus: 2." in notice.body, notice.body
    assert len(dovecot.mailbox("ann")) == 1


def ask_to_be_told(port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        refused = client.sendmail(
            "news@letters.test", ["ann@tcp.test"], "Subject: x\r\n\r\nx\r\n", rcpt_options=["NOTIFY=SUCCESS"]
        )
        assert refused == {}


def settled(mta: Mta) -> dict[str, str]:
    """Recipients left to the two zones, with the last reply, once each of them has got one."""
    end = time.monotonic() + PATIENCE_S
    while True:
        page = mta.ask("list")
        left = {row["recipient"]: row["last"] for row in page["rows"] if row["zone"] in ("tcp", "unix")}
        whole = page["next"] is None  # on a busy machine a page may end before the first row
        total = mta.ask("size")["total"]  # the list is of the store, which lags a moment behind the counters
        there = len(page["rows"]) == total["queued"] + total["leased"] + total["deferred"] + total["held"]
        if (whole and there and all(left.values())) or time.monotonic() > end:
            return left
        time.sleep(0.05)
