"""The README is run: its commands as a reader would paste them, its configurations and its plugin as they stand."""

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from zonemta_py.config import Config, Plugins
from zonemta_py.plugin.host import Host

TOP = Path(__file__).parent.parent
README = (TOP / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    found = [text for name, text in BLOCKS if name == language]
    assert found
    return found


@pytest.mark.parametrize("text", blocks("toml"))
def test_configurations_load_and_their_plugins_too(text: str) -> None:
    """Every fragment is a configuration that can be used as it is."""
    sections = tomllib.loads(text)
    config = Config.model_validate(sections)
    assert config.model_fields_set >= set(sections)
    host = Host.load(config.plugins, [zone.name for zone in config.zones])
    assert {row["plugin"] for row in host.statistics()} == {Path(name).stem for name in config.plugins.enabled}


@pytest.mark.parametrize("name", re.findall(r"`((?:config|zonemta_py|plugins|scripts)/[\w./-]+)`", README))
def test_files_that_are_named_exist(name: str) -> None:
    """A path in the text leads somewhere."""
    assert (TOP / name).exists()


@pytest.mark.parametrize("text", blocks("python"))
def test_the_plugin_loads(text: str, tmp_path: Path) -> None:
    """The example is a plugin: its hook's name and arguments are checked by the host."""
    (tmp_path / "example.py").write_text(text)
    host = Host.load(Plugins(enabled=[str(tmp_path / "example.py")]))
    assert host.listens("queue_route")


def test_the_two_commands_are_there() -> None:
    """They are the first two blocks, can be executed, and are what continuous integration runs."""
    assert [text.strip() for text in blocks("sh")[:2]] == ["scripts/quickstart", "scripts/test"]
    assert all(os.access(TOP / path, os.X_OK) for path in ("scripts/quickstart", "scripts/test", ".ci/run"))
    assert "scripts/test" in (TOP / ".ci" / "run").read_text()


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def test_quickstart_delivers(tmp_path: Path) -> None:
    """The real thing, on free ports: all accepted, all delivered or deferred, and what to do next."""
    command = [TOP / "scripts/quickstart", "--port", "0", "--folder", tmp_path / "queue"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = re.search(r"1,000 accepted, ([\d,]+) delivered, ([\d,]+) deferred in [\d.]+ seconds", ran.stdout)
    assert found
    delivered, deferred = (int(number.replace(",", "")) for number in found.groups())
    assert delivered + deferred == 1000
    assert delivered >= 900
    assert all(f"example.{end}" in ran.stdout for end in ("com", "net", "org"))
    assert "What next?" in ran.stdout


def test_by_hand(tmp_path: Path) -> None:
    """The commands of "By hand" and "Why does it not go?", pasted into a shell, with free ports and a folder."""
    mta, sink = free_ports(2)
    config = tmp_path / "c.toml"
    config.write_text(f"[server]\nfolder = '{tmp_path}/queue'\n[[listeners]]\nport = {mta}")
    (why,) = (text for text in blocks("sh") if "zonemta explain" in text)
    script = paced(blocks("sh")[2].replace("2526", str(sink)) + why, (sink, mta))
    environment = {
        **os.environ,
        "ZONEMTA_CONFIG": str(config),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ["bash", "-euc", script], cwd=TOP, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Recipients by zone" in ran.stdout
    assert "envelope" in ran.stdout
    assert "you@example.com" in ran.stdout
    assert "zone default is lifted" in ran.stdout


def test_http(tmp_path: Path) -> None:
    """The commands of "HTTP", on free ports and in a folder of their own, pasted whole: both messages are taken."""
    mta, door, nobody = free_ports(3)
    (block,) = (text for text in blocks("sh") if "/v1/inject" in text)
    block = block.replace("enabled = true", f"enabled = true\\nport = {door}").replace(
        "127.0.0.1:8525", f"127.0.0.1:{door}"
    )
    block = block.replace("zonemta run", f"zonemta run --listen 127.0.0.1:{mta} --relay 127.0.0.1:{nobody}")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ["bash", "-euc", paced(block, ())], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count('"accepted": 1, "suppressed": 0, "repeated": false') == 2


def paced(script: str, ports: tuple[int, ...]) -> str:
    """A person waits until a server that went to the background is there, and ends it at last."""
    awake = "until (exec 3<>/dev/tcp/127.0.0.1/{}) 2>/dev/null; do kill -0 $!; sleep 0.05; done"
    lines = []
    waits = iter(awake.format(port) for port in ports)
    for line in script.splitlines():
        lines.append(line)
        if re.search(r"&\s*#", line):
            lines += [wait for wait in [next(waits, "")] if wait]
    return "trap 'kill $(jobs -p)' EXIT\n" + "\n".join(lines) + "\n"
