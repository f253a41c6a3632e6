"""Wrong usage: each mistake is one sentence with its remedy on stderr, the documented exit code, and no traceback."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_port

from zonemta_py.cli.run.folder import check_unlocked, ensure_writable
from zonemta_py.cli.terminal.errors import CommandError, Exit

MISTAKES = [
    ("queu", Exit.USAGE, "No such command 'queu'", "`zonemta --help`"),
    ("queue lst", Exit.USAGE, "No such command 'lst'", "zonemta queue --help"),
    ("queue list --limit many", Exit.USAGE, "--limit", "zonemta queue list --help"),
    ("queue list --limit 0", Exit.USAGE, "--limit", "zonemta queue list --help"),
    ("queue list --state lost", Exit.USAGE, "--state", "zonemta queue list --help"),
    ("queue list --colour red", Exit.USAGE, "No such option: --colour", "zonemta queue list --help"),
    ("queue list --zone nowhere --folder {folder}", Exit.USAGE, "there is no zone 'nowhere'", "has default"),
    ("config history --folder {folder}", Exit.NO_INPUT, "contains no configurations", "name the MTA's folder"),
    ("doctor --address 1.2.3", Exit.USAGE, "'1.2.3' is not an IP address", "write one like 192.0.2.10"),
    ("queue size --folder {folder}", Exit.UNAVAILABLE, "no queue answers at", "`zonemta run`"),
    ("queue list --folder {folder}", Exit.UNAVAILABLE, "no queue answers at", "`zonemta run`"),
    ("queue in-doubt --folder {folder}", Exit.UNAVAILABLE, "no queue answers at", "`zonemta run`"),
    ("queue show 123 --folder {folder}", Exit.UNAVAILABLE, "no queue answers at", "`zonemta run`"),
    ("queue show", Exit.USAGE, "Missing argument 'ID'", "zonemta queue show --help"),
    ("queue size --config {folder}/absent.toml", Exit.CONFIG, "cannot be read", "name an existing file"),
    ("queue size --config {broken}", Exit.CONFIG, "is not TOML", "correct that line"),
    ("journal dump --folder {folder}", Exit.NO_INPUT, "contains no journal", "--folder"),
    ("journal positions --folder {folder}", Exit.NO_INPUT, "contains no journal", "--folder"),
    ("journal dump --type letter", Exit.USAGE, "'letter' is not a type of record", "use one of segment, envelope"),
    ("journal dump --since yesterday", Exit.USAGE, "--since: 'yesterday' is not a moment", "write it like 2h (ago)"),
    ("fsck --folder {folder}", Exit.NO_INPUT, "contains no queue", "--folder"),
    ("config check", Exit.USAGE, "Missing argument 'FILE'", "zonemta config check --help"),
    ("config check {folder}/absent.toml", Exit.CONFIG, "cannot be read", "name an existing file"),
    ("config check {broken}", Exit.CONFIG, "is not TOML", "correct that line"),
    ("config check {certless}", Exit.CONFIG, "absent.pem", "name a file that is there"),
    ("config check {bad_certificate}", Exit.CONFIG, "listeners.smtp.certificate", "give a PEM file with the chain"),
    ("config check {bad_hash}", Exit.CONFIG, "users.ann: is not a password hash", "`zonemta config password`"),
    ("config check {pluginless}", Exit.CONFIG, "plugin no_such_plugin", "no_such_plugin"),
    ("config check {folder}", Exit.CONFIG, "cannot be read (is a directory)", "name an existing file"),
    ("config check {capless}", Exit.CONFIG, "'none': caps is empty", "give at least one number"),
    ("config check {falling}", Exit.CONFIG, "'down': caps falls from 50 to 20", "caps must not fall"),
    ("config show {folder}/absent.toml", Exit.CONFIG, "cannot be read", "name an existing file"),
    ("suspend", Exit.USAGE, "Missing argument 'KIND'; choose from destination, provider", "zonemta suspend --help"),
    ("suspend source", Exit.USAGE, "Missing argument 'NAME'", "zonemta suspend --help"),
    ("rules explain 550 --provider nosuch", Exit.USAGE, "there is no provider 'nosuch'", "use one of "),
    ("config password", Exit.DATA, "an empty password protects nothing", "give one"),
    ("send", Exit.USAGE, "no recipients", "-t"),
    ("send --file {folder}/absent.eml a@b.c", Exit.NO_INPUT, "absent.eml: no such file", "name one that exists"),
    ("send --file {folder} a@b.c", Exit.NO_INPUT, "is a directory", "name a file"),
    ("send --port 99999 a@b.c", Exit.USAGE, "--port", "zonemta send --help"),
    ("send --host 127.0.0.1 --port {closed} a@b.c", Exit.TEMPORARY, "no mail server answers", "`zonemta run`"),
    ("sink --listen here", Exit.USAGE, "'here' is not an address", "write 127.0.0.1:2526"),
    ("sink --listen 127.0.0.1:{taken}", Exit.UNAVAILABLE, "cannot listen", "choose another port"),
    ("sink --rule nonsense", Exit.USAGE, "'nonsense' is not a rule", "write STAGE"),
    ("run --wrong", Exit.USAGE, "unrecognized arguments: --wrong", "zonemta run --help"),
    ("run --config {folder}/absent.toml", Exit.CONFIG, "cannot be read", "name an existing file"),
    ("run --config {broken}", Exit.CONFIG, "is not TOML", "correct that line"),
    ("run --config {bad_certificate} --folder {folder}", Exit.CONFIG, "cannot be used", "give a PEM file"),
    ("run --config {bad_hash} --folder {folder}", Exit.CONFIG, "users.ann", "`zonemta config password`"),
    ("run --listen 25", Exit.USAGE, "'25' is not a host and a port", "write it like 127.0.0.1:2525"),
    (
        "run --listen localhost:2525",
        Exit.USAGE,
        "--listen localhost:2525: listeners[smtp].address",
        "such as 127.0.0.1",
    ),
    ("run --relay example.com", Exit.USAGE, "'example.com' is not a host and a port", "write it like"),
    ("run --folder {broken}", Exit.CANT_CREATE, "is not a folder", "name another"),
    ("run --folder {broken}/below", Exit.CANT_CREATE, "not a directory", "name a folder"),
    ("run --folder {folder} --listen 127.0.0.1:{taken}", Exit.UNAVAILABLE, "in use by another program", "another port"),
    ("run --folder {folder} --listen 192.0.2.1:2525", Exit.CONFIG, "not an address of this machine", "`ip address`"),
    ("run --folder {locked}", Exit.UNAVAILABLE, "another process has this queue open", "name another --folder"),
    ("fsck --folder {locked}", Exit.UNAVAILABLE, "another process has this queue open", "end it"),
]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """What the commands above run into: broken files, a taken port, a locked store."""
    monkeypatch.setattr("zonemta_py.cli.run.folder._PATIENCE_S", 0.05)
    broken, certless, pluginless = (tmp_path / f"{name}.toml" for name in ("broken", "certless", "pluginless"))
    broken.write_text("[server")
    certless.write_text("[[listeners]]\ntls = 'starttls'\ncertificate = 'absent.pem'")
    pluginless.write_text("[plugins]\nenabled = ['no_such_plugin']")
    capless, falling = tmp_path / "capless.toml", tmp_path / "falling.toml"
    capless.write_text("[[warmups]]\nname = 'none'\ncaps = []")
    falling.write_text("[[warmups]]\nname = 'down'\ncaps = [10, 50, 20]")
    bad_certificate, bad_hash = tmp_path / "bad_certificate.toml", tmp_path / "bad_hash.toml"
    (tmp_path / "text.pem").write_text("no certificate")
    tls = f"tls = 'starttls'\ncertificate = '{tmp_path}/text.pem'"
    bad_certificate.write_text(f"[[listeners]]\nport = {free_port()}\n{tls}")
    bad_hash.write_text(f"[[listeners]]\nport = {free_port()}\n[users]\nann = '$argon2id$secret'")
    bad_hash.chmod(0o600)  # one mistake at a time
    (tmp_path / "locked" / "store").mkdir(parents=True)
    for folder in (tmp_path / "locked", tmp_path / "locked" / "store"):
        folder.chmod(0o700)
    with socket.socket() as taken, socket.socket() as closed:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        ports = {"taken": taken.getsockname()[1], "closed": closed.getsockname()[1]}
        with locked_by_another_process(tmp_path / "locked" / "store" / "LOCK"):
            files = {"broken": broken, "certless": certless, "pluginless": pluginless, "locked": tmp_path / "locked"}
            files |= {"bad_certificate": bad_certificate, "bad_hash": bad_hash, "capless": capless, "falling": falling}
            yield {"folder": tmp_path, **files, **ports}


LOCKER = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    """Locks as LevelDB does, which only other processes notice."""
    locker = subprocess.Popen([sys.executable, "-c", LOCKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert locker.stdout is not None
    locker.stdout.readline()
    try:
        yield
    finally:
        locker.communicate(b"\n")


@pytest.mark.parametrize(("line", "code", "what", "remedy"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_a_mistake_is_one_sentence(
    zonemta: Callable[..., object], places: dict[str, object], line: str, code: Exit, what: str, remedy: str
) -> None:
    """What is wrong and what to do, on one line of stderr, and the exit code of the table in errors.py."""
    ran = zonemta(*(word.format(**places) for word in line.split()))
    assert ran.code == code
    assert what.lower() in ran.err.lower()
    assert remedy in ran.err
    assert ran.err.startswith("zonemta: ")
    assert ran.err.count("\n") == 1


COMMANDS = [mistake for mistake in MISTAKES if not mistake[0].startswith("run ")]


@pytest.mark.parametrize(("line", "code", "what", "remedy"), COMMANDS[::9])
def test_for_programs_a_mistake_is_one_object(
    zonemta: Callable[..., object], places: dict[str, object], line: str, code: Exit, what: str, remedy: str
) -> None:
    """With --json, whatever the mistake, also where the command has no such option; `run` is a server and has none."""
    ran = zonemta(*(word.format(**places) for word in line.split()), "--json")
    said = json.loads(ran.err)
    assert (ran.code, said["exit"], {*said}) == (said["exit"], ran.code, {"error", "exit"})
    if "No such option: --json" not in said["error"]:
        assert ran.code == code
        assert what.lower() in said["error"].lower()
        assert remedy in said["error"]


def test_what_follows_two_hyphens_is_no_option(zonemta: Callable[..., object]) -> None:
    """It is an argument of that name, so the mistake is told to a person."""
    assert zonemta("queue", "show", "--folder", "none", "--", "--json").err.startswith("zonemta: ")


def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """A folder that we may not write is exit code 77, whether it is there already or was to be made."""
    (tmp_path / "closed").mkdir(mode=0o500)
    for folder in (tmp_path / "closed", tmp_path / "closed" / "below"):
        with (
            as_nobody_special(),
            pytest.raises(CommandError, match=r"may not be written|permission denied; change") as caught,
        ):
            ensure_writable(folder)
        assert caught.value.code == Exit.PERMISSION


@contextmanager
def as_nobody_special() -> Iterator[None]:
    """Root may write everywhere: takes another effective user for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_looking_at_the_lock_leaves_it_free(tmp_path: Path) -> None:
    """Looking whether the store is locked must not lock it for the queue that starts next."""
    (tmp_path / "store").mkdir()
    lock = tmp_path / "store" / "LOCK"
    lock.touch()
    check_unlocked(tmp_path)
    with locked_by_another_process(lock), pytest.raises(CommandError, match="another process"):
        check_unlocked(tmp_path)
    check_unlocked(tmp_path)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`zonemta config show | head -1` ends quietly."""
    command = f"{sys.executable} -m zonemta_py config show | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_without_a_command_the_help_is_shown(zonemta: Callable[..., object]) -> None:
    """And the exit status says that nothing was done."""
    ran = zonemta()
    assert ran.code == Exit.USAGE
    assert "newsletter" not in ran.out
    assert all(name in ran.out for name in ("run", "send", "sink", "queue", "journal", "fsck", "config"))


def test_run_loads_neither_typer_nor_rich() -> None:
    """The server's processes pay for nothing that only people at a terminal need."""
    code = (
        "import sys; sys.argv = ['zonemta', 'run', '--listen', 'x']; from zonemta_py.__main__ import main; main();"
        "print(sorted({'typer', 'rich', 'click'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
