"""Another configuration without a restart, and an end that cuts nothing off: the real MTA, and the real commands.

`scripts/trials/reload` does at length what the first test does in short.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from survival import reload
from survival.client import Connection
from survival.ledger import Ledger
from survival.letters import Letter
from survival.rig import TOP, Mta, sink

from zonemta_py.wire.blocking_client import QueueGone, ask


async def test_reloads_under_load_break_nothing(tmp_path: Path) -> None:
    """Five configurations, one of them wrong, while clients hand in, one in the middle of its DATA; then a drain."""
    figures = await reload.trial(tmp_path, reloads=5)
    assert figures["broken"] == []
    assert figures["reloads"] == 5
    assert figures["refused"] >= 1
    assert figures["http"] > 0


def zonemta(mta: Mta, *arguments: str) -> tuple[int, str]:
    """A command's exit status, and what it says."""
    file = [] if "--config" in arguments else ["--config", str(mta.config_file)]
    command = [sys.executable, "-m", "zonemta_py", *arguments, *file]
    ran = subprocess.run(command, cwd=TOP, env=os.environ | {"PYTHONPATH": str(TOP)}, capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def mta(tmp_path: Path) -> Iterator[Mta]:
    one = Mta(tmp_path / "queue", 9, home=tmp_path, processes=1)
    one.start()
    asyncio.run(one.taking())
    yield one
    one.end()


def accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(60)
        try:
            client.connect(("127.0.0.1", port))
            return client.recv(100).startswith(b"220")
        except OSError:
            return False


def test_what_a_reload_says_and_the_way_back(mta: Mta, tmp_path: Path) -> None:
    """Listeners come and go; a wrong configuration, one that would strand mail, and a port that is taken change
    nothing; the history has who and what, and gives it back."""
    text, other = mta.config_file.read_text(), Mta(tmp_path / "unused", 9)
    mta.config_file.write_text(f'{text}[[listeners]]\nname = "second"\nport = {other.port}\n')
    status, said = zonemta(mta, "reload", "--check")
    assert (status, accepts(other.port)) == (0, False)
    assert "listeners.second.port" in said
    status, said = zonemta(mta, "reload")
    assert status == 0
    assert "configuration 2 holds" in said
    assert accepts(other.port)
    assert accepts(mta.port)
    mta.config_file.write_text(text.replace("jitter", "jiter"))
    status, said = zonemta(mta, "reload")
    assert status == 78
    assert "did you mean 'jitter'?" in said
    asyncio.run(give(mta, "waits@bulk.test"))
    mta.config_file.write_text(text.partition('[[zones]]\nname = "bulk"')[0])
    status, said = zonemta(mta, "reload")
    assert status == 78
    assert "nothing has changed: zone 'bulk' is gone from the configuration, but 1 recipients wait" in said
    assert "the configuration is unchanged: zone 'bulk'" in mta.log_tail()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        mta.config_file.write_text(f'{text}[[listeners]]\nname = "x"\nport = {taken.getsockname()[1]}\n')
        status, said = zonemta(mta, "reload")
        assert status == 78
        assert "cannot listen on 127.0.0.1" in said
    mta.config_file.write_text(text.replace("life_h", "life_h") + '[plugins]\nenabled = ["no-such-plugin"]\n')
    status, said = zonemta(mta, "reload")
    assert status == 78
    assert "no-such-plugin" in said
    status, said = zonemta(mta, "config", "back", "1")
    assert status == 65
    assert "never applied" in said
    status, said = zonemta(mta, "config", "back", "1", "--force")
    assert status == 0
    assert mta.config_file.read_text() == text
    end = time.monotonic() + 60
    while accepts(other.port):
        assert time.monotonic() < end
    status, said = zonemta(mta, "config", "history", "--plain")
    lines = said.splitlines()
    assert (status, len(lines)) == (0, 3)
    assert "listeners.second" in lines[-2]
    assert "user" in lines[-2]
    assert "at the start" in lines[-1]
    assert mta.ask("generation") == {"generation": 3, "number": 3}
    mta.stop()
    mta.start()
    assert "3; `zonemta config history` lists them" in _said_soon(mta, "config history"), "the same number"


def _said_soon(mta: Mta, words: str) -> str:
    """What `zonemta status` says, once that is among it."""
    end = time.monotonic() + 60
    while words not in (said := zonemta(mta, "status")[1]):
        assert time.monotonic() < end, said
    return said


def test_a_reload_names_plugin_files_that_have_changed(tmp_path: Path) -> None:
    """What the running processes have loaded is compared with what would be; touching a file changes nothing."""
    plugin = tmp_path / "mark.py"
    plugin.write_text("async def sender_headers(delivery, headers):\n    headers.add('X-Mark', '1')\n")
    mta = Mta(tmp_path / "queue", 9, home=tmp_path, processes=1, more=f'[plugins]\nenabled = ["{plugin}"]\n')
    mta.start()
    try:
        asyncio.run(mta.taking())
        os.utime(plugin)
        assert zonemta(mta, "reload", "--check") == (0, "nothing would change\n")
        plugin.write_text(plugin.read_text().replace("'1'", "'2'"))
        status, said = zonemta(mta, "reload", "--check")
        assert (status, f"{plugin}: is another plugin file than the one that was loaded" in said) == (0, True)
        assert "nothing is wrong; nothing was changed" in said
        assert f"{plugin}: is another" in zonemta(mta, "reload")[1]
        assert f"changed: {plugin}" in mta.log_tail(50)
        assert zonemta(mta, "reload", "--check") == (0, "nothing would change\n")
    finally:
        mta.end()


def test_a_reload_of_another_file_is_refused(mta: Mta, tmp_path: Path) -> None:
    """The MTA reads its own file again: a reload or a comparison with another one would be answered about that."""
    other = tmp_path / "other.toml"
    other.write_text(mta.config_file.read_text() + '[[listeners]]\nname = "more"\nport = 9\n')
    link = tmp_path / "link.toml"
    link.symlink_to(mta.config_file)
    for command in (("reload",), ("reload", "--check"), ("config", "diff")):
        status, said = zonemta(mta, *command, "--config", str(other))
        assert (status, f"with {mta.config_file}, and reads that, not {other}; " in said) == (64, True), said
        assert zonemta(mta, *command, "--config", str(link))[0] == 0


def test_a_file_that_cannot_be_read_changes_nothing(mta: Mta, tmp_path: Path) -> None:
    """One sentence each, and the MTA goes on."""
    text, file = mta.config_file.read_text(), mta.config_file
    for wrong, said in (
        ("x = " + "[" * 20_000 + "\n" + text, "brackets in too many brackets"),
        (text.replace("receivers = 1", "receivers = " + "9" * 5000), "a number of thousands of digits"),
        (text + "\0", "is not TOML"),
        (text + "# \xe9", "is not UTF-8 text"),
    ):
        file.write_bytes(wrong.encode("latin-1"))
        assert refusal(mta).count(said) == 1
    file.unlink()
    assert "cannot be read (No such file" in refusal(mta)
    file.mkdir()
    assert "cannot be read (Is a directory" in refusal(mta)
    file.rmdir()
    file.write_text(text)
    assert mta.ask("reload")["refused"] == []
    assert (mta.alive, accepts(mta.port)) == (True, True)


def refusal(mta: Mta) -> str:
    (sentence,) = mta.ask("reload")["refused"]
    return str(sentence)


def test_processes_are_kept_up_while_a_plugin_loads(mta: Mta, tmp_path: Path) -> None:
    """It blocks until nobody writes to a FIFO any more: a receiver and the queue are killed meanwhile, then SIGTERM."""
    gate, plugin = tmp_path / "gate", tmp_path / "slow.py"
    os.mkfifo(gate)
    plugin.write_text(f"open({str(gate)!r}).read()\nraise RuntimeError('at last')\n")
    text = mta.config_file.read_text()
    mta.config_file.write_text(f'{text}[plugins]\nenabled = ["{plugin}"]\n')
    with ThreadPoolExecutor(2) as pool, ExitStack() as held:
        asked = pool.submit(mta.ask, "reload")
        keeps = held_open(gate, held)
        before = pids(mta)
        os.kill(before["receiver"], signal.SIGKILL)
        until(lambda: pids(mta).get("receiver", before["receiver"]) != before["receiver"])
        assert accepts(mta.port)
        assert not asked.done()
        os.close(keeps)
        assert "at last" in asked.result(30)["refused"][0]
        asked = pool.submit(ask, mta.folder, "reload")
        held_open(gate, held)
        os.kill(before["queue"], signal.SIGKILL)
        assert isinstance(asked.exception(30), QueueGone)
        until(lambda: pids(mta).get("queue", before["queue"]) != before["queue"])
        assert mta.ask("generation")["generation"] == 1
        mta.terminate()
        until(lambda: not mta.alive)


def held_open(gate: Path, held: ExitStack) -> int:
    """The writing end, once somebody reads."""
    found: list[int] = []

    def opened() -> bool:
        with suppress(OSError):  # nobody reads yet
            found.append(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return bool(found)

    until(opened)
    held.callback(closed, found[0])
    return found[0]


def closed(number: int) -> None:
    with suppress(OSError):
        os.close(number)


def pids(mta: Mta) -> dict[str, int]:
    return {role: pid for pid, role in mta.children().items()}


async def give(mta: Mta, to: str) -> None:
    connection = await Connection.open(mta.port)
    await connection.transaction(Letter("1.0", "a@b.test", [to], b"Subject: x\r\n\r\nx\r\n"))
    connection.close()


async def test_a_plugin_that_is_new_is_heard(tmp_path: Path) -> None:
    """In the queue's process too, which goes on; a plugin's file that has changed is read anew."""
    ledger = Ledger()
    plugin = tmp_path / "marks.py"
    code = "async def queue_route(envelope, routing):\n    routing.zone = '{zone}'\n"
    plugin.write_text(code.format(zone="bulk"))
    async with sink(ledger) as running:
        mta = Mta(tmp_path / "queue", running.port, home=tmp_path, processes=1)
        text = mta.config_file.read_text()
        mta.config_file.write_text(text)
        mta.start()
        try:
            await mta.taking()
            assert await _zone_of(mta) == "default"
            mta.config_file.write_text(f'{text}[plugins]\nenabled = ["{plugin}"]\n')
            assert (await asyncio.to_thread(mta.ask, "reload"))["refused"] == []
            assert await _zone_of(mta) == "bulk"
            plugin.write_text(code.format(zone="default"))
            assert (await asyncio.to_thread(mta.ask, "reload"))["refused"] == []
            assert await _zone_of(mta) == "default"
        finally:
            mta.end()


async def _zone_of(mta: Mta) -> Any:
    """In which zone mail goes out now."""
    mta.ask("stop", kind="zone", name="default", seconds=3600, cause="a test")
    mta.ask("stop", kind="zone", name="bulk", seconds=3600, cause="a test")
    await give(mta, "somebody@one.test")
    (row,) = mta.ask("list")["rows"]
    for name in ("default", "bulk"):
        mta.ask("lift", kind="zone", name=name)
    await mta.drained()
    return row["zone"]


def test_a_program_reloads_by_http(mta: Mta) -> None:
    """First what it would do, then done; the next process of the listener answers, and the history says who it was."""
    free = Mta(mta.folder.parent / "unused", 9).port
    mta.config_file.write_text(f"{mta.config_file.read_text()}[http]\nenabled = true\nport = {free}\n")
    assert zonemta(mta, "reload")[0] == 0
    config = mta.config_file.read_text()
    with httpx.Client(base_url=f"http://127.0.0.1:{free}", timeout=60) as client:
        until(lambda: shown(mta, client, "/v1/status") is not None)
        mta.config_file.write_text(config.replace("[http]", "[http]\nrequests = 65"))
        for check, key in ((True, "http.requests"), (False, "http.requests")):
            said = client.post("/v1/configuration/reload", json={"check": check}, headers=token(mta)).json()
            assert (said["changes"][0][0], said["refused"]) == (key, []), said
        until(lambda: (shown(mta, client, "/v1/configuration") or NONE)["settings"]["http"]["requests"] == 65)
        until(lambda: (shown(mta, client, "/v1/configuration/history") or [{"by": ""}])[0]["by"] == "key local")
        mta.config_file.write_text(config.replace("[http]", "[http]\nrequest = 65"))
        until(lambda: refuses(mta, client))


NONE: dict[str, Any] = {"settings": {"http": {"requests": 0}}}


def refuses(mta: Mta, client: httpx.Client) -> bool:
    """A wrong file: the sentence says what was meant."""
    answer = client.post("/v1/configuration/reload", json={}, headers=token(mta) | {"connection": "close"})
    return answer.status_code in (200, 409) and "did you mean" in answer.text


def token(mta: Mta) -> dict[str, str]:
    return {"authorization": f"Bearer {(mta.folder / 'http.token').read_text().strip()}"}


def shown(mta: Mta, client: httpx.Client, path: str) -> Any:
    """None: nobody answers yet. The key is the same before, during and after a reload."""
    try:
        answer = client.get(path, headers=token(mta) | {"connection": "close"})
    except (httpx.TransportError, FileNotFoundError):
        return None
    assert answer.status_code != 401
    return answer.json() if answer.status_code == 200 else None


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_first_reload_is_as_light_as_any(mta: Mta) -> None:
    """What the HTTP listener needs was loaded at the start, for all its processes."""
    port = Mta(mta.folder.parent / "unused", 9).port
    mta.end()
    text = f"{mta.config_file.read_text()}[http]\nenabled = true\ndashboard = true\nport = {port}\n"
    mta.config_file.write_text(text)
    mta.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        until(lambda: shown(mta, client, "/v1/status") is not None)
    started_s = _processor_s(mta)
    mta.config_file.write_text(f"{text}[learning]\ninitial = 7\n")
    assert mta.ask("reload")["refused"] == []
    assert _processor_s(mta) - started_s < started_s / 4


def _processor_s(mta: Mta) -> float:
    """Of the supervisor alone."""
    queue = next(pid for pid, role in mta.children().items() if role == "queue")
    parent = Path(f"/proc/{queue}/stat").read_text().rpartition(")")[2].split()[1]
    used = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
    return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")
