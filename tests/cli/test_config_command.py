"""`zonemta config`: check, show, password."""

import os
import stat
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from argon2 import PasswordHasher
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from zonemta_py.cli.config import history
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.config.file import SourceFile, of_text
from zonemta_py.queue.reload import history as kept

ROOT = "[server]\nfolder = '/q'\nuser = 'root'\n"
"""Nobody need be told that it stays root: it is meant."""


def test_check_says_what_a_good_file_means(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """Where it listens, which zones there are, where the queue is."""
    path = tmp_path / "good.toml"
    path.write_text("[server]\nfolder = '/q'\nuser = 'root'\n[[zones]]\nname = 'bulk'\n[[listeners]]\nport = 2626")
    ran = zonemta("config", "check", path)
    assert ran == (Exit.OK, f"{path}: good; listens on 127.0.0.1:2626; zones: bulk; queue in /q\n", "")


def test_a_folder_with_too_long_a_name(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """Its socket could not be made: that is said before, not in a traceback for each start of the queue."""
    path = tmp_path / "c.toml"
    for long, code in ((100, Exit.OK), (101, Exit.CONFIG)):
        path.write_text(f"[server]\nfolder = '/{'q' * (long - 1)}'\nuser = 'root'\n")
        ran = zonemta("config", "check", path)
        assert ran.code == code, ran
    assert "is too long by 1 bytes for the path of a socket; name a shorter server.folder" in ran.err
    ran = zonemta("status", "--folder", f"/{'q' * 100}")
    assert (ran.code, "the path is too long for a socket" in ran.err) == (Exit.UNAVAILABLE, True)


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_file_with_passwords_that_everybody_can_read(
    zonemta: Callable[..., object], tmp_path: Path, mode: int
) -> None:
    """A warning, as at the start."""
    path = tmp_path / "c.toml"
    path.write_text(f"{ROOT}[return_path]\nsecret = 'open sesame, please'")
    path.chmod(mode)
    ran = zonemta("config", "check", path)
    said = f"zonemta: {path}: warning: contains passwords or secrets, and everybody can read it; `chmod o-r {path}`\n"
    assert (ran.code, ran.err) == (Exit.OK, said if mode == 0o644 else "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root stays root")
def test_root_that_stays_root(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """A warning where no user is named, and one where there is no such user."""
    path = tmp_path / "c.toml"
    path.write_text("")
    assert 'started as root it stays root; write server.user = "NAME"' in zonemta("config", "check", path).err
    path.write_text("[server]\nfolder = '/q'\nuser = 'no-such-user'\n")
    ran = zonemta("config", "check", path)
    assert (ran.code, "this machine has no user 'no-such-user'; `useradd --system" in ran.err) == (Exit.OK, True)


@pytest.mark.parametrize("section", ["user = 'mail'", "folder = '/q'\ngroup = 'mail'"])
def test_a_user_needs_a_folder_and_a_group_a_user(zonemta: Callable[..., object], tmp_path: Path, section: str) -> None:
    """The home folder that ~ means would be another before and after."""
    path = tmp_path / "c.toml"
    path.write_text(f"[server]\n{section}")
    ran = zonemta("config", "check", path)
    assert ran.code == Exit.CONFIG
    assert "needs a folder that begins with /" in ran.err or "user, which is not set" in ran.err


def test_an_interface_that_is_not_here(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """The file may be meant for another machine: it is good, and one sentence warns."""
    path = tmp_path / "mine.toml"
    sources = "".join(
        f"[[pools.sources]]\naddress = '127.0.0.{number}'\ninterface = '{name}'\n"
        for number, name in enumerate(("lo", "eth99"), 2)
    )
    path.write_text(f"{ROOT}[[zones]]\nname = 'z'\npool = 'p'\n[[pools]]\nname = 'p'\n{sources}")
    ran = zonemta("config", "check", path)
    assert ran.code == Exit.OK
    assert ran.err.startswith(f"zonemta: {path}: warning: 127.0.0.3 is bound to interface 'eth99'; this machine has")
    assert ran.err.count("\n") == 1


def test_a_source_that_this_machine_has_not(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """The file may be meant for another machine: a warning. What a proxy sends from is not ours to have."""
    path = tmp_path / "mine.toml"
    path.write_text(
        f"{ROOT}[[pools]]\nname = 'p'\n"
        "[[pools.sources]]\naddress = '127.0.0.3'\n[[pools.sources]]\naddress = '192.0.2.7'\n"
        "[[pools.sources]]\naddress = '192.0.2.8'\nproxy = 'socks5://127.0.0.1:1080'\n"
        "[[zones]]\nname = 'z'\npool = 'p'\n"
    )
    ran = zonemta("config", "check", path)
    where = "pools[p].sources[192.0.2.7].address"
    said = f"warning: {where}: this machine does not have the address 192.0.2.7; nothing can be sent from it"
    assert (ran.code, ran.err) == (Exit.OK, f"zonemta: {path}: {said}\n")


@pytest.mark.parametrize(
    ("begins", "ends", "code", "said"),
    [
        (-400, -3, Exit.CONFIG, "listeners.smtp.certificate: {pem} has expired on"),
        (3, 300, Exit.CONFIG, "listeners.smtp.certificate: {pem} is not valid before"),
        (-300, 5, Exit.OK, "warning: listeners.smtp.certificate: {pem} expires on"),
        (-300, 90, Exit.OK, ""),
    ],
)
def test_a_certificate_out_of_its_time(
    zonemta: Callable[..., object], tmp_path: Path, begins: int, ends: int, code: int, said: str
) -> None:
    """An expired one is no good anywhere; one that ends within two weeks is good, with a warning."""
    pem, path, now = tmp_path / "own.pem", tmp_path / "c.toml", datetime.now(UTC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = trustme.CA().issue_cert(
            "mx.test", not_before=now + timedelta(days=begins), not_after=now + timedelta(days=ends)
        )
    pem.write_bytes(made.private_key_and_cert_chain_pem.bytes())
    path.write_text(
        f"{ROOT}[[listeners]]\nname = 'smtp'\nport = 2526\ntls = 'starttls'\ncertificate = '{pem}'\nkey = '{pem}'\n"
    )
    ran = zonemta("config", "check", path)
    assert ran.code == code
    assert said.format(pem=pem) in ran.err
    assert bool(ran.err) == bool(said)


def test_who_is_not_signed_for_is_named(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """Of several that hand in mail, those that are bound to no senders."""
    key, path = tmp_path / "dkim.pem", tmp_path / "c.toml"
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key.write_bytes(pem)
    hashed = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("x")
    path.write_text(
        f'[users]\nann = "{hashed}"\nben = "{hashed}"\n[senders]\nann = ["bank.test"]\n'
        f'[[dkim]]\ndomain = "bank.test"\nselector = "a"\nkey = "{key}"\n'
    )
    ran = zonemta("config", "check", path)
    assert ran.code == Exit.OK
    assert "user 'ben' has no senders" in ran.err
    assert "set senders.ben" in ran.err
    assert "'ann'" not in ran.err


def test_show_prints_every_key_in_force(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """As TOML that says what each key means; secrets are hidden, wherever the file was named."""
    path = tmp_path / "mine.toml"
    zone = "[[zones]]\nname = 'z'\nhost = 'h'\ntls = 'required'\nusername = 'u'\npassword = 'sesame'"
    path.write_text(f"[server]\nhostname = 'mx.example.com'\n[users]\nann = '$argon2id$secret'\n{zone}")
    ran = zonemta("config", "show", path)
    assert ran == zonemta("config", "show", "--config", path)
    shown = tomllib.loads(ran.out)
    assert shown["server"]["hostname"] == "mx.example.com"
    assert shown["limits"]["recipients"] == 1000
    assert "# RCPT commands in one transaction; more get 452." in ran.out
    assert "sesame" not in ran.out
    assert "argon2" not in ran.out


def test_show_without_a_file_is_the_defaults(zonemta: Callable[..., object]) -> None:
    """There is always a configuration in force."""
    assert tomllib.loads(zonemta("config", "show").out)["zones"][0]["name"] == "default"


def test_the_environment_can_name_the_configuration(
    zonemta: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZONEMTA_CONFIG stands in for --config."""
    (tmp_path / "mine.toml").write_text("[server]\nhostname = 'from.environment'")
    monkeypatch.setenv("ZONEMTA_CONFIG", str(tmp_path / "mine.toml"))
    assert tomllib.loads(zonemta("config", "show").out)["server"]["hostname"] == "from.environment"
    assert zonemta("config", "check").out.startswith(f"{tmp_path / 'mine.toml'}: good")  # type: ignore[attr-defined]


def test_password_prints_a_hash_that_verifies(zonemta: Callable[..., object]) -> None:
    """Read from stdin without a terminal; the hash matches that password and no other."""
    ran = zonemta("config", "password", stdin=b"open sesame\n")
    assert ran.code == Exit.OK
    assert PasswordHasher().verify(ran.out.strip(), "open sesame")


def test_a_password_that_is_no_text(zonemta: Callable[..., object]) -> None:
    """Bytes that no client could send are refused in a sentence, not in a traceback."""
    ran = zonemta("config", "password", stdin=b"\xff\xfe\n")
    assert (ran.code, ran.err.count("\n")) == (Exit.DATA, 1)
    assert "is not UTF-8" in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pull]\nenabled = true\n[[zones]]\nname = 'in'\ndelivery = 'pull'\n", "'in' is the default and a pull"),
        ("[[zones]]\nname = 'x'\n[[zones]]\nname = 'in'\ndelivery = 'pull'\n", "no client can fetch the mail in zone"),
        ("[http]\nenabled = true\n[[zones]]\nname = 'x'\n[[zones]]\nname = 'in'\ndelivery = 'pull'\n", ""),
        ("[[zones]]\nname = 'x'\n", ""),
    ],
)  # fmt: skip
def test_mail_that_would_wait_for_nobody(zonemta: Callable[..., object], tmp_path: Path, text: str, said: str) -> None:
    """A pull zone that is the default, or that nobody can reach."""
    path = tmp_path / "c.toml"
    path.write_text(ROOT + text)
    ran = zonemta("config", "check", path)
    assert ran.code == Exit.OK
    assert (said in ran.err) if said else (ran.err == "")


def test_what_cannot_be_written_leaves_the_file_whole(tmp_path: Path) -> None:
    """An earlier configuration takes its place with its rights, also behind a link."""
    file, link = tmp_path / "real.toml", tmp_path / "zonemta.toml"
    file.write_text("x = 1\n")
    file.chmod(0o640)
    link.symlink_to(file)
    with pytest.raises(UnicodeEncodeError):
        history._write(link, "y = 2\udc80\n")
    assert file.read_text() == "x = 1\n"
    history._write(link, "y = 2\n")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode), link.is_symlink()) == ("y = 2\n", 0o640, True)


def test_reports_that_cannot_be_made(
    zonemta: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is said before a campaign has ended, with the remedy."""
    from zonemta_py.pipeline.spark import java

    path, place = tmp_path / "c.toml", tmp_path / "file"
    place.write_text("")
    path.write_text(f"[server]\nfolder = '{tmp_path}/q'\nuser = 'root'\n[reports]\nfolder = '{place}/pages'\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_PLACES", ())
    ran = zonemta("config", "check", path)
    assert ran.code == Exit.OK
    assert f"no report can be made yet: Spark needs Java 17 or 21, and none was found; {java.REMEDY}" in ran.err
    assert f"warning: reports: {place} is not a folder; name another" in ran.err


@pytest.mark.parametrize(
    ("mistake", "named"),
    [("receivers = 'many'\n", False), ("user = \n[retry\n", False), ("receivers = 'many'\n", True)],
)
def test_a_file_with_mistakes_is_left_for_an_earlier_one(
    zonemta: Callable[..., Any], tmp_path: Path, mistake: str, named: bool
) -> None:
    """What was in force last is known, and commands that look at the MTA do so by that."""
    file, folder, good = tmp_path / "zonemta.toml", tmp_path / "queue", ROOT.replace("/q", "queue")
    folder.mkdir()
    kept.add(folder, of_text(file, good), SourceFile(str(file), good), "ann", 1000)
    file.write_text(good + mistake)
    options = ("--config", file, *(("--folder", folder) if named else ()))
    ran = zonemta("config", "history", *options)
    assert (ran.code, len(ran.out.splitlines())) == (Exit.OK, 2)
    assert ran.err == (
        f"zonemta: {file}: has errors, which `zonemta config check` lists; this uses the running configuration\n"
    )
    ran = zonemta("status", *options)
    assert ran.code == Exit.UNAVAILABLE
    assert f"no queue answers at {folder}/socket" in ran.err
    assert zonemta("reload", *options).code == Exit.CONFIG
    assert zonemta("config", "back", "1", *options).code == Exit.DATA
    assert file.read_text() == good + mistake
    assert zonemta("config", "back", "1", "--force", *options).code == Exit.OK
    assert file.read_text() == good


def test_a_file_with_mistakes_of_no_mta(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing else is in force, so its mistakes are said."""
    file = tmp_path / "zonemta.toml"
    file.write_text(f"[server]\nfolder = '{tmp_path}/queue'\nreceivers = 'many'\n")
    ran = zonemta("status", "--config", file)
    assert ran.code == Exit.CONFIG
    assert "server.receivers" in ran.err


def test_options_of_no_plugin_are_named_once(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """Also where others are enabled, which are loaded for the check."""
    (tmp_path / "mark.py").write_text("async def smtp_rcpt_to(): ...\n")
    file = tmp_path / "zonemta.toml"
    file.write_text('[plugins]\nenabled = ["./mark.py"]\n[plugins.options.marc]\na = 1\n')
    command = [sys.executable, "-m", "zonemta_py", "config", "check", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.count("plugins.options.marc") for line in ran.stderr.splitlines() if "marc" in line] == [1]
    assert "plugins.options.marc: there is no 'marc' in plugins.enabled; did you mean 'mark'?" in ran.stderr
