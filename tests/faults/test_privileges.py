"""Root binds the ports and is root no more: seen at the processes of the real MTA, which only root can try."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import plyvel
import pytest
import trustme
from survival.client import Client
from survival.ledger import Ledger
from survival.rig import TOP, Mta, sink

NOBODY, NOGROUP = 65534, 65534
LOW = f"127.79.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
AS_NOBODY: Any = {"user": NOBODY, "group": NOGROUP, "extra_groups": [], "cwd": "/"}
PYTHONPATH = f"{TOP}:{Path(plyvel.__file__).parents[1]}"


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root: run these tests as root")


@cache
def python() -> str:
    """One that everybody may run, with all that is needed: pyenv's may be in root's home."""
    for one in (sys.executable, "/usr/bin/python3"):
        command = [one, "-c", "import plyvel, uvloop, zonemta_py.processes.supervisor"]
        try:
            subprocess.run(command, env={"PYTHONPATH": PYTHONPATH}, check=True, capture_output=True, **AS_NOBODY)
            return one
        except (OSError, subprocess.CalledProcessError):
            continue
    pytest.skip("user nobody may run no Python here that has what zonemta needs")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_nobody(home: Path, sink_port: int, more: str = "") -> Mta:
    mta = Mta(home / "deep" / "queue", sink_port, home=home, more=more)
    mta.config_file.write_text(mta.config_file.read_text().replace("[server]\n", '[server]\nuser = "nobody"\n'))
    mta.python, mta.environment = python(), {"PYTHONPATH": PYTHONPATH}
    return mta


def run(mta: Mta, *arguments: str, out: bool = False, **more: Any) -> tuple[int, str]:
    """Exit status and what was said. out: on standard output."""
    command = [python(), "-m", "zonemta_py", *arguments]
    environment = os.environ | mta.environment
    ran = subprocess.run(
        command, env=environment, text=True, capture_output=True, timeout=60, check=False, **more or {"cwd": "/"}
    )
    return ran.returncode, ran.stdout if out else ran.stderr


def ids(pid: int) -> dict[str, set[int]]:
    """Real, effective, saved and file system's user and group ids, groups and capabilities of a process."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        key: {int(word, 16 if key.startswith("Cap") else 10) for word in rows[key].split()}
        for key in ("Uid", "Gid", "Groups", "CapPrm", "CapEff")
    }


async def test_no_process_stays_root_and_mail_goes_through(home: Path) -> None:
    """The supervisor too, a child that is started again too, and a port below 1024 was bound before."""
    ledger = Ledger(kinds="plain")
    async with sink(ledger) as running:
        mta = as_nobody(home, running.port, f'[[listeners]]\nname = "low"\naddress = "{LOW}"\nport = 587\n')
        mta.start()
        try:
            await mta.taking()
            mta.kill("receiver")
            end = time.monotonic() + 60
            while sorted(mta.children().values()) != ["queue", "receiver", "receiver", "sender", "sender"]:
                assert time.monotonic() < end, mta.log_tail()
                await asyncio.sleep(0.05)
            assert mta._process is not None
            for pid in (mta._process.pid, *mta.children()):
                assert ids(pid) == {
                    "Uid": {NOBODY}, "Gid": {NOGROUP}, "Groups": {NOGROUP}, "CapPrm": {0}, "CapEff": {0},
                }  # fmt: skip
            await Client(mta.port, ledger, kinds="plain").hand_in(range(20))
            _, writer = await asyncio.open_connection(LOW, 587)
            writer.close()
            await mta.drained()
        finally:
            mta.end()
    assert ledger.acknowledged == 20
    assert ledger.judge(()).broken == []
    assert {path.stat().st_uid for path in mta.folder.rglob("*")} == {NOBODY}
    assert run(mta, "fsck", "--config", str(mta.config_file))[0] == 0
    assert {path.stat().st_uid for path in mta.folder.rglob("*")} == {NOBODY}


def test_a_reload_when_root_was_given_up(home: Path) -> None:
    """What only root can do is said, with the remedy; the rest works, with the listener below 1024 that is there."""
    low = f'[[listeners]]\nname = "low"\naddress = "{LOW}"\nport = 587\n'
    mta = as_nobody(home, 9, low)
    text = mta.config_file.read_text()
    mta.start()
    try:
        asyncio.run(mta.taking())
        mta.config_file.chmod(0o600)
        (said,) = mta.ask("reload")["refused"]
        assert said == f"{mta.config_file}: user 'nobody' may not read it; let that user read the file"
        mta.config_file.chmod(0o644)
        mta.config_file.write_text(text + low.replace("587", "588").replace('"low"', '"lower"'))
        (said,) = mta.ask("reload")["refused"]
        assert f"cannot listen on {LOW}:588 (Permission denied: ports below 1024 are opened by root" in said
        assert said.endswith("; restart the MTA")
        mta.config_file.write_text(text.replace('"nobody"', '"daemon"'))
        assert "server.user cannot be changed while the MTA runs" in mta.ask("reload")["refused"][0]
        mta.config_file.write_text(text.replace("receivers = 2", "receivers = 3"))
        assert mta.ask("reload")["refused"] == []
        for _ in range(6):
            with socket.create_connection((LOW, 587), timeout=60) as client:
                assert client.recv(100).startswith(b"220")
    finally:
        mta.end()


def test_a_folder_of_somebody_else_is_refused_with_the_remedy(home: Path) -> None:
    """As an MTA that was root before left it, or a command that root gave."""
    mta = as_nobody(home, 9)
    (mta.folder / "store").mkdir(parents=True)
    shutil.chown(mta.folder, "nobody")
    code, said = run(mta, "run", "--config", str(mta.config_file))
    assert code == 77
    assert said == (
        f"zonemta: {mta.folder}/store: belongs to 'root', but the MTA is to be 'nobody' (server.user);"
        f" `chown -R nobody {mta.folder}`\n"
    )
    code, said = run(mta, "config", "check", str(mta.config_file))
    assert (code, "chown -R nobody" in said) == (0, True)


@pytest.mark.parametrize("command", [("run", "--config"), ("config", "check")])
def test_a_key_that_only_root_may_read_is_named(home: Path, command: tuple[str, str]) -> None:
    """At the start and in the check; not by a receiver that ends again and again."""
    key = home / "key.pem"
    key.write_text("secret")
    key.chmod(0o600)
    mta = as_nobody(home, 9, f'[[dkim]]\ndomain = "a.test"\nselector = "s"\nkey = "{key}"\n')
    code, said = run(mta, *command, str(mta.config_file))
    assert code == 78
    assert (
        f"dkim[s._domainkey.a.test].key: {key}: user 'nobody' (server.user) may not read it; let that user read" in said
    )


def test_doctor_sees_what_the_user_of_the_mta_may_not_read(home: Path) -> None:
    """Root may read all: a certificate that only root may read is a problem all the same."""
    mta = as_nobody(home, 9)
    code, said = run(mta, "doctor", "--no-dns", "--plain", "--config", str(mta.config_file), out=True)
    assert (code, "ok\tuser\tnobody may read all that the configuration names" in said) == (0, True), said
    key = home / "key.pem"
    key.write_text("secret")
    key.chmod(0o600)
    mta = as_nobody(home, 9, f'[[dkim]]\ndomain = "a.test"\nselector = "s"\nkey = "{key}"\n')
    code, said = run(mta, "doctor", "--no-dns", "--plain", "--config", str(mta.config_file), out=True)
    assert code == 1
    assert (
        f"problem\tuser\tdkim[s._domainkey.a.test].key: {key}: user 'nobody' (server.user) may not read it\tlet that"
        in said
    )


def test_status_sees_certificates_as_the_user_of_the_mta_does(home: Path) -> None:
    """A renewed one that only root may read is not the one in force."""
    pair = trustme.CA().issue_cert("mx.test").private_key_and_cert_chain_pem
    pair.write_to_path(str(home / "mx.pem"))
    more = (
        f'[[listeners]]\nname = "low"\naddress = "{LOW}"\nport = 588\ntls = "starttls"\ncertificate = "{home}/mx.pem"\n'
    )
    mta = as_nobody(home, 9, more)
    (home / "mx.pem").chmod(0o644)
    mta.start()
    try:
        asyncio.run(mta.taking())
        file = ("--config", str(mta.config_file))
        code, said = run(mta, "status", "--plain", *file, out=True)
        assert (code, "certificate listeners.low.certificate\tends in" in said) == (0, True)
        (home / "mx.pem").chmod(0o600)
        for _ in range(20):  # listeners report once a second what they show
            code, said = run(mta, "status", "--plain", *file, out=True)
            if "; the one in use ends in" in said:
                break
        assert f"certificate listeners.low.certificate\t{home}/mx.pem cannot be used ({home}/mx.pem: permission" in said
        assert "denied); give a PEM file" in said
        assert "; the one in use ends in" in said
        code, said = run(mta, "status", "--nagios", *file, out=True)
        assert (code, said.startswith("ZONEMTA CRITICAL - listeners.low.certificate: ")) == (2, True)
    finally:
        mta.end()


def test_who_may_not_ask_is_told_so(home: Path) -> None:
    """And as whom to ask; a check does not know how the MTA is, so it raises no alarm, and a port is no problem that
    the MTA may have."""
    mta = as_nobody(home, 9)
    mta.start()
    try:
        asyncio.run(mta.taking())
        folder, somebody = mta.folder, {"user": 1, "group": 1, "extra_groups": [], "cwd": "/"}
        file = ("--config", str(mta.config_file))
        for command in (["status"], ["mailq"], ["campaign", "list"], ["suspend", "zone", "bulk"], ["reload"]):
            said = f"zonemta: {folder}: permission denied; run this as user nobody, or as root\n"
            assert run(mta, *command, *file, **somebody) == (77, said)
        code, line = run(mta, "status", "--nagios", *file, out=True, **somebody)
        assert (code, line.startswith(f"ZONEMTA UNKNOWN - {folder}: permission denied")) == (3, True)
        code, said = run(mta, "doctor", "--no-dns", "--plain", *file, out=True, **somebody)
        assert (code, "problem" in said) == (0, False), said
        assert "note\tuser\tdaemon may not look into" in said
        assert "smtp\tis in use, by the MTA or by another program" in said
    finally:
        mta.end()


def test_who_is_not_root_cannot_become_another(home: Path) -> None:
    """One sentence, before anything is bound."""
    mta = as_nobody(home, 9)
    mta.config_file.write_text(mta.config_file.read_text().replace('"nobody"', '"daemon"'))
    assert run(mta, "run", "--config", str(mta.config_file), **AS_NOBODY) == (
        78,
        "zonemta: server.user: 'nobody' cannot become 'daemon'; start it as root or as 'daemon', or remove the key\n",
    )
