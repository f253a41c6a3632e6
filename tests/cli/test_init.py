"""`zonemta init`: what it writes is a configuration that works, with a key, and records that say the same."""

from __future__ import annotations

import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.config import load

Zonemta = Callable[..., Any]


def test_what_it_writes_is_good(zonemta: Zonemta, tmp_path: Path) -> None:
    """The configuration passes the check, the key is its owner's, the records name address and key."""
    ran = zonemta(
        "init", tmp_path / "etc", "--domain", "Example.COM", "--address", "192.0.2.10, 2001:db8::1",
        "--listen", "127.0.0.1:2599", "--queue", tmp_path / "queue", "--user", "", "--yes",
    )  # fmt: skip
    assert ran.code == Exit.OK, ran.err
    file = tmp_path / "etc" / "zonemta.toml"
    config = load(file)
    assert config.server.hostname == "mail.example.com"
    assert [listener.port for listener in config.listeners] == [2599]
    assert config.zones[0].sources == ["192.0.2.10", "2001:db8::1"]
    [key] = config.dkim
    assert (key.domain, key.state) == ("example.com", "active")
    assert stat.S_IMODE(Path(key.key).stat().st_mode) == 0o600
    assert "mail.example.com. IN A 192.0.2.10\n" in ran.out
    assert "mail.example.com. IN AAAA 2001:db8::1\n" in ran.out
    assert 'example.com. IN TXT "v=spf1 ip4:192.0.2.10 ip6:2001:db8::1 ~all"' in ran.out
    assert 'zonemta._domainkey.example.com. IN TXT "v=DKIM1; k=rsa; p=' in ran.out
    assert "_dmarc.example.com. IN TXT" in ran.out
    assert zonemta("config", "check", file).code == Exit.OK
    assert "bounce.example.com. IN MX 10 mail.example.com.\n" in ran.out


def test_what_it_leaves_commented_is_good(zonemta: Zonemta, tmp_path: Path) -> None:
    """The tables for what comes back, once they are wanted."""
    assert zonemta("init", tmp_path, "--domain", "a.example", "--yes", "--queue", tmp_path / "q").code == Exit.OK
    file = tmp_path / "zonemta.toml"
    head, mark, back = file.read_text().partition("#[[listeners]]")
    back = re.sub("^#", "", mark + back, flags=re.MULTILINE).replace('secret = ""', f'secret = "{"s" * 43}"')
    file.write_text(head + back)
    config = load(file)
    assert [one.name for one in config.listeners if one.feedback] == ["mx"]
    assert config.return_path.verp == "bounce.a.example"
    said = zonemta("config", "check", file).err
    assert 'needs in DNS: "bounce.a.example. IN MX 10 mail.a.example."' in said


def test_for_newsletters(zonemta: Zonemta, tmp_path: Path) -> None:
    """A zone, links, return paths and reports in one go; the file has secrets, so it is its owner's."""
    ran = zonemta(
        "init", tmp_path, "--domain", "a.example", "--newsletter", "--yes", "--queue", tmp_path / "q", "--user", "",
        "--address", "192.0.2.10",
    )  # fmt: skip
    assert ran.code == Exit.OK, ran.err
    file = tmp_path / "zonemta.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    config = load(file)
    assert [(zone.name, zone.campaigns, zone.sources) for zone in config.zones] == [
        ("default", False, ["192.0.2.10"]), ("newsletter", True, ["192.0.2.10"])
    ]  # fmt: skip
    assert (config.links.url, config.return_path.verp) == ("https://links.a.example", "bounce.a.example")
    assert config.links.secrets[0] != config.return_path.secret
    assert config.reports_folder == tmp_path / "q" / "reports"
    for record in (
        "bounce.a.example. IN MX 10 mail.a.example.", 'bounce.a.example. IN TXT "v=spf1 ip4:192.0.2.10 ~all"',
        "links.a.example. IN A",
    ):  # fmt: skip
        assert record in ran.out
    said = zonemta("config", "check", file)
    assert said.code == Exit.OK, said.err


def test_nothing_is_overwritten(zonemta: Zonemta, tmp_path: Path) -> None:
    first = zonemta("init", tmp_path, "--domain", "a.example", "--yes", "--queue", tmp_path / "q")
    assert first.code == Exit.OK
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    again = zonemta("init", tmp_path, "--domain", "b.example", "--yes", "--queue", tmp_path / "q")
    assert (again.code, again.out) == (Exit.CANT_CREATE, "")
    assert "already exists; name another folder" in again.err
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("smtp.example.net:587", "smtp.example.net", 587), ("smtp.example.net", "smtp.example.net", 25),
        ("[2001:db8::5]:587", "2001:db8::5", 587), ("2001:db8::5", "2001:db8::5", 25),
    ],
)  # fmt: skip
def test_a_smart_host(zonemta: Zonemta, tmp_path: Path, given: str, host: str, port: int) -> None:
    """By name or address, with a port or without; the queue's folder may have any name."""
    queue = tmp_path / 'a "queue"'
    ran = zonemta("init", tmp_path, "--domain", "a.example", "--smarthost", given, "--yes", "--queue", queue)
    assert ran.code == Exit.OK, ran.err
    config = load(tmp_path / "zonemta.toml")
    assert [(zone.host, zone.port) for zone in config.zones] == [(host, port)]
    assert config.folder == queue


def test_wrong_answers_are_one_sentence(zonemta: Zonemta, tmp_path: Path) -> None:
    """And nothing is written."""
    for arguments, words in (
        ((), "which domain is mail sent from?"),
        (("--domain", "nodots"), "'nodots' is not a domain such as example.com"),
        (("--domain", "a.example", "--address", "300.1.1.1"), "is not an IP address"),
        (("--domain", "a.example", "--listen", "here"), "is not an address and port"),
        (("--domain", "a.example", "--listen", "127.0.0.1:99999"), "is not an address and port"),
        (("--domain", "a.example", "--smarthost", "smtp.example.net:mail"), "is not a smart host"),
        (("--domain", "a.example", "--smarthost", "smtp.example.net:0"), "is not a smart host"),
    ):
        ran = zonemta("init", tmp_path / "etc", *arguments, "--yes")
        assert ran.code == Exit.USAGE
        assert words in ran.err
        assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "etc").exists()


def test_in_a_terminal_it_asks(tmp_path: Path) -> None:
    """A wrong answer is asked for again."""
    controller, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "zonemta_py", "init", str(tmp_path / "etc"), "--queue", str(tmp_path / "queue")],
        stdin=terminal, stdout=terminal, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    os.write(controller, b"nodots\nexample.com\nmx1.example.com\n300.1.1.1\n192.0.2.10\n")
    seen = b""
    try:
        while part := os.read(controller, 4096):
            seen += part
    except OSError:  # the terminal's other end is closed
        pass
    os.close(controller)
    assert child.wait(60) == Exit.OK, seen
    assert b"is not a domain such as example.com" in seen
    assert b"300.1.1.1" in seen
    assert b"mx1.example.com. IN A 192.0.2.10" in seen
    assert load(tmp_path / "etc" / "zonemta.toml").server.hostname == "mx1.example.com"
