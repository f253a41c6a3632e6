"""`zonemta run`'s own part: which configuration its arguments mean, and whether ports can be opened."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.run.commands import check_port, configured, opening
from zonemta_py.cli.run.folder import until
from zonemta_py.cli.terminal.errors import CommandError
from zonemta_py.cli.version import program
from zonemta_py.config import Config, Listener
from zonemta_py.disk.frame import Record, frame
from zonemta_py.disk.packing import pack
from zonemta_py.journal.records import FORMAT, Type


def test_no_arguments_mean_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is needed."""
    monkeypatch.delenv("ZONEMTA_CONFIG", raising=False)
    assert configured([])[:2] == (Config(), None)


def test_overrides_leave_the_rest_as_it_is(tmp_path: Path) -> None:
    """--folder, --listen and --relay change folder, first listener and every zone's smart host, nothing else."""
    path = tmp_path / "c.toml"
    path.write_text(
        "[[listeners]]\nname='a'\n[[listeners]]\nname='b'\nport=26\n[[zones]]\nname='x'\n[[zones]]\nname='y'"
    )
    arguments = ["--config", str(path), "--folder", "/q", "--listen", "[::1]:2626", "--relay", "mx.example.com:587"]
    config, _, source = configured(arguments)
    assert (source.path, source.text) == (str(path), path.read_text())
    assert config.folder == Path("/q")
    assert [(listener.address, listener.port) for listener in config.listeners] == [("::1", 2626), ("127.0.0.1", 26)]
    assert [(zone.name, zone.host, zone.port) for zone in config.zones] == [
        ("x", "mx.example.com", 587), ("y", "mx.example.com", 587),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("toml", "arguments", "said"),
    [
        ("", ["--listen", "name:2525"], "--listen name:2525: listeners[smtp].address: 'name' is not an IP address"),
        ("", ["--listen", "127.0.0.1:70000"], "--listen: '127.0.0.1:70000' is not a host and a port"),
        ("", ["--relay", "mx:0"], "--relay: 'mx:0' is not a host and a port"),
        (
            "[[zones]]\nname='z'\nhost='mx'\nprotocol='lmtp'\nport=24\n",
            ["--listen", "::1:25", "--relay", "mx:24"],
            "--listen: '::1:25' is not a host and a port",
        ),
    ],
)
def test_the_option_that_is_wrong_is_named(tmp_path: Path, toml: str, arguments: list[str], said: str) -> None:
    """Whichever it is, with what is wrong about it; also where it fits nothing else that is configured."""
    path = tmp_path / "c.toml"
    path.write_text(toml)
    with pytest.raises(CommandError) as caught:
        configured(["--config", str(path), *arguments])
    assert caught.value.sentence.startswith(said)


def test_each_door_is_called_what_it_is() -> None:
    """Whoever starts it reads where programs hand in mail, and how."""
    said = "\n".join(opening(Config.model_validate({"http": {"enabled": True, "port": 8123}}), None))
    assert "mail by SMTP at 127.0.0.1 port 2525" in said
    assert "mail by HTTP at 127.0.0.1 port 8123" in said


def test_connections_that_have_ended_do_not_hold_a_port() -> None:
    """A port with connections in TIME_WAIT is free: the MTA must be able to start again at once."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()
            client.recv(1)
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", port))
    check_port(Listener(port=port))


def test_a_moment_is_given_to_those_who_are_dying() -> None:
    """What is taken at first and free soon is free; only what stays taken is an error."""
    answers = iter([CommandError(69), CommandError(69), None])  # type: ignore[arg-type]

    def check() -> None:
        answer = next(answers)
        if answer:
            raise answer

    until(check)
    assert next(answers, "used up") == "used up"


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_said(zonemta: Callable[..., object], option: str) -> None:
    """Name and version on one line, as a start says them."""
    assert zonemta(option) == (0, f"{program()}\n", "")
    assert program().split()[1][0].isdigit()


def test_a_queue_of_a_newer_version_is_not_started(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """One sentence, and a status after which systemd does not try again."""
    (tmp_path / "journal").mkdir()
    segment = Record(1, 1, Type.SEGMENT, pack({"version": FORMAT + 1, "first": 1, "floor": "0" * 16}))
    (tmp_path / "journal" / f"{1:016d}.journal").write_bytes(frame([segment], 0))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, out, err = zonemta("run", "--folder", tmp_path, "--listen", f"127.0.0.1:{port}")  # type: ignore[misc]
    assert (code, out) == (78, "")
    assert err.count("this queue was last used by a newer version of zonemta-py") == 1
    assert "Traceback" not in err
    assert not (tmp_path / "store").exists()
    unit = Path(__file__).parents[2] / "config" / "zonemta.service"
    assert "\nRestartPreventExitStatus=78\n" in unit.read_text()
