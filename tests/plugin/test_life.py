"""The life of plugins in a process: start, background tasks, locks, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import MakeHost
from zonemta_py.plugin import life, locks
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.arguments import Process, Session
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.locks import OneProcess

RECEIVER = Process("receiver", 2)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and patience of tests."""
    for name, seconds in (("PAUSE_S", 0.01), ("PAUSE_MAX_S", 0.04), ("TASKS_S", 0.3), ("LAST_S", 0.1), ("END_S", 1.0)):
        monkeypatch.setattr(life, name, seconds)
    monkeypatch.setattr(locks, "LOOK_S", 0.02)


async def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)


def row(host: Host, **wanted: str) -> dict[str, Any]:
    (found,) = [one for one in host.statistics() if wanted.items() <= one.items()]
    return found


def counted(host: Host, name: str) -> float:
    return sum(one["value"] for one in host.statistics() if one.get("counter") == name)


# -- start and stop


async def test_start_and_stop_know_their_process(make_host: MakeHost, tmp_path: Path) -> None:
    host = make_host(
        """
        said = []
        async def start(api, process):
            api.count(f"began in {process} {process.role} {process.number}")
        async def stop(process, api):
            api.count(f"ended in {process}")
        """
    )
    await host.begin(RECEIVER, tmp_path)
    assert counted(host, "began in receiver-2 receiver 2") == 1
    await host.end()
    await host.end()
    assert counted(host, "ended in receiver-2") == 1


def test_processes_by_their_names() -> None:
    assert [Process.named(name) for name in ("queue", "queue-1", "sender-12")] == [
        Process("queue"),
        Process("queue", 1),
        Process("sender", 12),
    ]
    assert str(Process("queue")) == "queue"


async def test_without_plugins_nothing_happens(tmp_path: Path) -> None:
    host = Host.empty()
    await host.begin(RECEIVER, tmp_path)
    host.retire()
    await host.end()
    assert host.life is None
    assert os.listdir(tmp_path) == []


FAILS = """
_tries = 0
async def start(api):
    global _tries
    _tries += 1
    if _tries < 3:
        raise OSError("no database yet")
    api.count("begun")
"""


async def test_a_start_that_fails_is_named_and_tried_again(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The process goes on without waiting for it, and so do the other plugins."""
    host = make_host(FAILS, "async def start(api): api.count('other')\n")
    await host.begin(RECEIVER, tmp_path)
    assert counted(host, "other") == 1
    assert "plugin p1, hook start" in caplog.text
    assert "p1.py:7: raised OSError: no database yet" in caplog.text
    await until(lambda: counted(host, "begun"))
    found = row(host, plugin="p1", hook="start")
    assert (found["calls"], found["failures"]) == (3, 2)
    assert ("zonemta_plugin_failures_total", ("p1", "start"), 2) in list(host.totals())
    await host.end()


@pytest.mark.parametrize("hook", ["start", "stop", "task work"])
async def test_one_that_blocks_is_named_afterwards_too(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    """However short that was: the thread that looks may have missed it."""
    code = f"""
        import time
        async def _block():
            time.sleep(0.15)
        def setup(api):
            {"api.task('work', _block)" if hook == "task work" else "pass"}
        async def start():
            {"await _block()" if hook == "start" else "pass"}
        async def stop():
            {"await _block()" if hook == "stop" else "pass"}
        """
    host = make_host(code, timeout_s=0.1)
    await host.begin(RECEIVER, tmp_path)
    await until(lambda: hook != "task work" or row(host, plugin="p1", task="work")["state"] == life.ENDED)
    if hook == "task work":
        assert row(host, plugin="p1", task="work")["overruns"] == 1
    await host.end()
    assert f"plugin p1, hook {hook}, " in caplog.text
    assert "the limit is 0.1 s; it blocked its process" in caplog.text


@pytest.mark.parametrize("hook", ["start", "stop"])
@pytest.mark.parametrize(
    "does", ["await asyncio.sleep(600)", "for _ in range(99):\n  with suppress(BaseException): await asyncio.sleep(9)"]
)
async def test_one_that_never_ends_is_cut_off(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture, hook: str, does: str
) -> None:
    """Also one that swallows its cancellation: nobody waits for it for ever, and it does not go on in secret."""
    code = f"import asyncio\nfrom contextlib import suppress\nasync def {hook}(api):\n {does}\n"
    host = make_host(code, timeout_s=0.2)
    async with asyncio.timeout(20):
        await host.begin(RECEIVER, tmp_path)
        await host.end()
    assert f"plugin p1, hook {hook}" in caplog.text
    assert "was cut off" in caplog.text
    assert ("abandoned" in caplog.text) == ("for" in does)
    assert row(host, plugin="p1", hook=hook)["overruns"] >= 1
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@pytest.mark.parametrize("what", ["raise SystemExit", "raise KeyboardInterrupt", "return 5", "raise Reject(550, 'x')"])
async def test_whatever_a_start_does_is_contained(make_host: MakeHost, tmp_path: Path, what: str) -> None:
    host = make_host(f"from zonemta_py.plugin import Reject\nasync def start(api):\n    {what}\n")
    await host.begin(RECEIVER, tmp_path)
    assert row(host, plugin="p1", hook="start")["failures"] == 1
    await host.end()


async def test_hooks_wait_for_the_start(make_host: MakeHost, tmp_path: Path) -> None:
    """The queue's process is asked for mail's routes while its plugins still begin."""
    host = make_host(
        """
        import asyncio
        _open = False
        async def start(api):
            global _open
            await asyncio.sleep(0.1)
            _open = True
        async def smtp_connect(session):
            assert _open
        """
    )
    beginning = asyncio.ensure_future(host.begin(RECEIVER, tmp_path))
    await asyncio.sleep(0)
    await host.call("smtp_connect", session=Session())
    assert row(host, hook="smtp_connect")["failures"] == 0
    await beginning
    await host.end()


# -- tasks

TICKS = """
import asyncio
def setup(api):
    global _api
    _api = api
    api.task("tick", _tick)
async def _tick():
    while True:
        _api.count("ticks")
        await asyncio.sleep(0.01)
async def stop(api):
    api.count("stopped")
"""


async def test_a_task_runs_until_the_process_is_retired(make_host: MakeHost, tmp_path: Path) -> None:
    """`stop` comes when the process has nothing left to do, which may be much later."""
    host = make_host(TICKS)
    await host.begin(RECEIVER, tmp_path)
    await until(lambda: counted(host, "ticks") > 2)
    assert row(host, task="tick")["state"] == "runs"
    assert list(host.gauges()) == [("zonemta_plugin_tasks", ("p1", "tick"), 1)]
    host.retire()
    await asyncio.sleep(0.05)
    ticks = counted(host, "ticks")
    await asyncio.sleep(0.05)
    assert (counted(host, "ticks"), counted(host, "stopped")) == (ticks, 0)
    await host.end()
    assert counted(host, "stopped") == 1


async def test_a_task_that_fails_begins_again(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a pause that grows; a task that returns has done its work."""
    host = make_host(
        """
        _tries = 0
        async def start(api):
            api.task("feed", _feed)
        async def _feed():
            global _tries
            _tries += 1
            if _tries < 4:
                raise ValueError("bad line")
        """
    )
    await host.begin(RECEIVER, tmp_path)
    await until(lambda: row(host, task="feed")["state"] == "ended")
    assert caplog.text.count("p1.py:9: raised ValueError: bad line") == 3
    assert "plugin p1, hook task feed" in caplog.text
    assert ("zonemta_plugin_failures_total", ("p1", "task feed"), 3) in list(host.totals())
    await host.end()


async def test_a_task_that_swallows_its_end_is_abandoned_and_named(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(
        """
        import asyncio
        async def start(api):
            global _api
            _api = api
            api.task("stubborn", _stubborn)
        async def _stubborn():
            for _ in range(1000):  # it ends once this process does
                _api.count("turns")
                try:
                    await asyncio.sleep(0.01)
                except BaseException:
                    pass
        async def stop(api):
            api.count("stopped")
        """
    )
    await host.begin(RECEIVER, tmp_path)
    await until(lambda: counted(host, "turns"))
    await host.end()
    assert "plugin p1, hook task stubborn" in caplog.text
    assert "is abandoned" in caplog.text
    assert row(host, task="stubborn")["state"] == "abandoned"
    turns = counted(host, "turns")
    await asyncio.sleep(0.05)
    assert (counted(host, "turns"), counted(host, "stopped")) == (turns, 1)


async def test_a_task_that_blocks_is_skipped_for_a_while(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host(
        "import asyncio, time\nasync def start(api): api.task('slow', _slow)\n"
        "async def _slow():\n while True:\n  time.sleep(0.15)\n  await asyncio.sleep(0)\n",
        timeout_s=0.1,
    )
    await host.begin(RECEIVER, tmp_path)
    await until(lambda: "is skipped for 5 min" in caplog.text)
    await until(lambda: row(host, task="slow")["state"] == "waits")
    await host.end()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("api.task('t', print)", "must be an async def"),
        ("api.task('', _run)", "is not the name of a task"),
        ("api.task('t', _run); api.task('t', _run)", "runs already"),
        ("api.once('x')", "there are no processes yet"),
    ],
)
def test_mistakes_of_setup(make_host: MakeHost, call: str, sentence: str) -> None:
    with pytest.raises(Exception, match=f"plugin p1, .*p1.py:3: setup raised .*{sentence}"):
        make_host(f"async def _run(): pass\ndef setup(api):\n    {call}\n")


def test_a_plugin_has_so_many_tasks() -> None:
    async def run() -> None: ...

    api = PluginApi("p1")
    for number in range(50):
        api.task(f"t{number}", run)
    with pytest.raises(ValueError, match="may have 50 tasks"):
        api.task("one more", run)


# -- one process

HOLDER = """
import sys, time
from pathlib import Path
from zonemta_py.plugin.locks import OneProcess
lock = OneProcess(Path(sys.argv[1]), "p1", "poll")
while not lock.take():
    time.sleep(0.02)
print("has it", flush=True)
time.sleep(600)
"""


def test_another_process_has_it_when_its_holder_is_killed(tmp_path: Path) -> None:
    """The kernel lets it go, whatever the holder died of; one that only stands still keeps it."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "has it\n"
            mine = OneProcess(tmp_path, "p1", "poll")
            assert not mine.take()
            os.kill(holder.pid, signal.SIGSTOP)
            assert not mine.take()
            os.kill(holder.pid, signal.SIGKILL)
            while not mine.take():
                time.sleep(0.01)
            assert not OneProcess(tmp_path, "p1", "poll").take()
            assert OneProcess(tmp_path, "p2", "poll").take(), "each plugin has names of its own"
            mine.leave()
            assert mine.take()
            mine.leave()
        finally:
            holder.kill()


def test_a_fork_does_not_keep_it(tmp_path: Path) -> None:
    """The queue's process forks others that outlive a plugin's task."""
    lock = OneProcess(tmp_path, "p1", "poll")
    assert lock.take()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.read(reading, 1)
        os._exit(0)
    lock.leave()
    try:
        ran = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert ran.stdout is not None
        assert ran.stdout.readline() == "has it\n"
        ran.kill()
        ran.communicate()
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)


async def test_tasks_of_which_one_process_has_one(make_host: MakeHost, tmp_path: Path) -> None:
    """At a reload the next one of the queue's own process waits for the one before, too."""
    code = TICKS.replace('api.task("tick", _tick)', 'api.task("tick", _tick, once=True)')
    first, second = make_host(code), make_host(code)
    await first.begin(RECEIVER, tmp_path)
    await until(lambda: counted(first, "ticks"))
    await second.begin(RECEIVER, tmp_path)
    await asyncio.sleep(0.1)
    assert (counted(second, "ticks"), row(second, task="tick")["state"]) == (0, "waits")
    await first.end()
    await until(lambda: counted(second, "ticks"))
    await second.end()


async def test_a_lock_that_cannot_be_made(
    make_host: MakeHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a disk without room: the task waits, and says why."""
    (tmp_path / locks.FOLDER).write_text("")
    host = make_host(TICKS.replace('api.task("tick", _tick)', 'api.task("tick", _tick, once=True)'))
    await host.begin(RECEIVER, tmp_path)
    await until(lambda: "plugin p1, task tick: its lock cannot be taken" in caplog.text)
    (tmp_path / locks.FOLDER).unlink()
    await until(lambda: counted(host, "ticks"))
    await host.end()
