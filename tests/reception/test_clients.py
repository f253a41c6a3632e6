"""Other people's clients, as they come: swaks and nodemailer (Python's smtplib is in the other files)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "correct horse"
_NODE = """
const nodemailer = require('nodemailer');
const client = nodemailer.createTransport({
  host: '127.0.0.1', port: PORT, secure: false, requireTLS: true, tls: {rejectUnauthorized: false},
  auth: {user: 'anna', pass: PASSWORD}, pool: true, maxConnections: 2});
const send = (n) => client.sendMail({
  from: 'a@b.test', to: 'c@d.test', subject: 'Grüße ' + n, text: '.\\n..\\nHallo\\n',
  dsn: {id: 'x1', return: 'headers', notify: ['failure'], recipient: 'c@d.test'},
  attachments: [{filename: 'x.bin', content: Buffer.alloc(300000, 7)}]});
Promise.all([1, 2, 3].map(send)).then(
  (sent) => { console.log(sent.map((s) => s.response).join('\\n')); client.close(); },
  (error) => { console.error(error); process.exit(1); });
"""


@pytest.fixture
def tls_door(open_door: Any, certificate: Path, users: dict[str, str]) -> Any:
    return open_door(tls="starttls", certificate=str(certificate), auth=True, users=users, relay_networks=[])


@pytest.fixture
def nodemailer(request: pytest.FixtureRequest) -> Path:
    """A folder with nodemailer in it, kept in pytest's cache from run to run."""
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("npm and node are not installed: nodemailer is NOT tested")
    folder = Path(request.config.cache.mkdir("nodemailer"))  # type: ignore[union-attr]
    if not (folder / "node_modules" / "nodemailer").is_dir():
        command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder), "nodemailer@6"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)
        if done.returncode:
            pytest.skip(f"npm cannot install nodemailer, it is NOT tested: {done.stderr[-300:]}")
    return folder


@pytest.mark.parametrize(
    "options", [["--pipeline"], ["--protocol", "SMTP"], ["--tls", "--auth", "LOGIN"], ["--tls", "-a", "PLAIN"]]
)
def test_swaks(open_door: Any, tls_door: Any, options: list[str]) -> None:
    """Plain, pipelined, and logged in under STARTTLS."""
    if not shutil.which("swaks"):
        pytest.skip("swaks is not installed (apt install swaks): it is NOT tested")
    door = tls_door if "--tls" in options else open_door()
    login = ["--auth-user", "anna", "--auth-password", PASSWORD] if "--tls" in options else []
    command = ["swaks", "--server", "127.0.0.1", "--port", str(door.port), "-f", "a@b.test", "-t", "c@d.test,e@d.test"]
    command += ["--ehlo", "client.test", "--body", ".\\n..dots\\n", *options, *login]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "TLS not available" in done.stderr:
        pytest.skip("swaks has no TLS (apt install libnet-ssleay-perl): STARTTLS and AUTH are NOT tested with it")
    assert done.returncode == 0, done.stdout + done.stderr
    envelope, stored = door.submission.kept[0]
    assert [r.address for r in envelope.recipients] == ["c@d.test", "e@d.test"]
    assert b"\r\n\r\n.\r\n..dots\r\n" in stored
    assert envelope.user == ("anna" if login else None)


def test_nodemailer(tls_door: Any, nodemailer: Path, tmp_path: Path) -> None:
    """STARTTLS, login, pooled connections, attachments of several chunks, delivery status notification."""
    script = tmp_path / "send.js"
    script.write_text(_NODE.replace("PORT", str(tls_door.port), 1).replace("PASSWORD", json.dumps(PASSWORD)))
    environment = {"NODE_PATH": str(nodemailer / "node_modules"), "PATH": "/usr/bin:/bin:/usr/local/bin"}
    node = shutil.which("node")
    assert node
    done = subprocess.run(
        [node, str(script)], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("250 2.0.0 OK: queued as ") == 3
    subjects = {envelope.headers["subject"] for envelope, _ in tls_door.submission.kept}
    assert subjects == {"Grüße 1", "Grüße 2", "Grüße 3"}
    for envelope, stored in tls_door.submission.kept:
        assert (envelope.ret, envelope.envid, envelope.user) == ("HDRS", "x1", "anna")
        assert len(stored) > 400_000
