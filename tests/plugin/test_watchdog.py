"""A plugin that blocks its process: named while it does so, and left out after a limit."""

from __future__ import annotations

import asyncio
import logging
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.plugin import watchdog
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import Routing
from zonemta_py.plugin.verdicts import PluginFailed

BLOCKS = """
import asyncio, pathlib, time
calls = []
async def queue_route(routing):
    calls.append(routing.recipient)
    {before}
    if routing.recipient == "slow@x.test":
        {block}
async def queue_release(zone):
    time.sleep({seconds})
"""


@pytest.fixture
def blocker(tmp_path: Path) -> Callable[..., Host]:
    """A host with a plugin that blocks for so long, or until that file is there."""

    def load(seconds: float | Path, before: str = "pass", timeout_s: float = 0.1) -> Host:
        file, block = tmp_path / "blocker.py", f"time.sleep({seconds})"
        if isinstance(seconds, Path):
            there = f"pathlib.Path({str(seconds)!r}).exists()"
            block = f"[time.sleep(0.01) for _ in range(6000) if not {there}]"
            seconds = 0
        file.write_text(BLOCKS.format(seconds=seconds, block=block, before=before))
        return Host.load(Plugins(enabled=[str(file)], timeout_s=timeout_s))

    return load


def _there(file: Path) -> bool:
    return file.exists()


def _calls(host: Host) -> list[str]:
    """Of the plugin's function."""
    [call] = host._calls["queue_route"]
    return list(call.function.__globals__["calls"])


async def route(host: Host, name: str = "slow") -> None:
    await host.call("queue_route", envelope=Envelope("a@b.test", [], 0), routing=Routing(f"{name}@x.test", "default"))


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Path]:
    """A file that is there once the log has named who blocks."""
    file = tmp_path / "told"

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has blocked its whole process" in record.getMessage():
                file.touch()

    ear = Ear()
    logging.getLogger("zonemta.plugin").addHandler(ear)
    yield file
    logging.getLogger("zonemta.plugin").removeHandler(ear)


@pytest.mark.parametrize("before", ["pass", "await asyncio.sleep(0)"], ids=["at once", "after it has waited"])
async def test_named_while_it_lasts(before: str, blocker: Any, told: Path, caplog: Any) -> None:
    """Plugin, hook, file and line, before the call is over: it ends when it has been named, or after a minute."""
    await route(blocker(told, before))
    assert _there(told)
    [line] = [r.getMessage() for r in caplog.records if "has blocked its whole process" in r.getMessage()][:1]
    assert "plugin blocker, hook queue_route, " in line
    assert "blocker.py:8: " in line


async def test_the_line_is_found_in_any_thread(blocker: Any, told: Path, caplog: Any) -> None:
    """A loop of another thread than the first that called a plugin is watched as well."""
    await route(blocker(0))
    await asyncio.to_thread(asyncio.run, route(blocker(told)))
    [line] = [r.getMessage() for r in caplog.records if "has blocked its whole process" in r.getMessage()][:1]
    assert "blocker.py:8: " in line


async def test_left_out_after_a_limit(blocker: Any, caplog: Any, monkeypatch: Any) -> None:
    """It is not called any more; what it decides about waits, what it only hears of goes on; then it is tried again."""
    host = blocker(0.5)
    await route(host)
    calls = _calls(host)
    for _ in range(20):
        with pytest.raises(PluginFailed, match="is skipped"):
            await route(host)
    assert _calls(host) == calls
    await host.call("queue_release", zone="default", delivery=None)
    await host.call("queue_release", zone="default", delivery=None)
    assert len([r for r in caplog.records if "is skipped for 5 min" in r.getMessage()]) == 2
    now = time.monotonic()
    monkeypatch.setattr("zonemta_py.plugin.watchdog.monotonic", lambda: now + watchdog.OUT_S + 1)
    await route(host, "quick")


async def test_a_slip_is_forgiven(blocker: Any) -> None:
    """One call a little over its limit leaves nobody out, and waiting is not blocking."""
    host = blocker(0.9, "await asyncio.sleep(0.8)", timeout_s=1.5)
    await route(host)
    await route(host, "quick")


async def test_one_thread(blocker: Any) -> None:
    """However many calls."""
    host = blocker(0)
    for _ in range(50):
        await route(host, "quick")
    assert [thread.name for thread in threading.enumerate()].count("plugin-watchdog") == 1


async def test_threads_are_named_and_counted(tmp_path: Path, caplog: Any, monkeypatch: Any) -> None:
    """Of the plugin that begins them where there are many already, and again when there are twice as many."""
    file = tmp_path / "threads.py"
    file.write_text(
        "import threading\nover = threading.Event()\nasync def queue_route(routing):\n"
        "    for _ in range(10): threading.Thread(target=over.wait, daemon=True).start()\n"
        "async def queue_release(zone): pass\n"
    )
    host = Host.load(Plugins(enabled=[str(file)]))
    monkeypatch.setattr(watchdog.WATCH, "_threads_max", threading.active_count() + 5)
    try:
        for _ in range(3):
            await route(host)
            await host.call("queue_release", zone="default", delivery=None)
    finally:
        [call] = host._calls["queue_route"]
        call.function.__globals__["over"].set()
    lines = [one.getMessage() for one in caplog.records if "begins threads" in one.getMessage()]
    assert 1 <= len(lines) < 3
    assert all("plugin threads, hook queue_route, " in one for one in lines)
    counted = {one["hook"]: one["overruns"] for one in host.statistics()}
    assert counted == {"queue_route": len(lines), "queue_release": 0}


@pytest.mark.parametrize("at", ["importing it", "setup"])
def test_who_takes_long_to_load_is_named(make_host: Any, caplog: Any, monkeypatch: Any, at: str) -> None:
    """Plugin, file and line, while it lasts: it goes on when it has been named twice."""
    monkeypatch.setattr(watchdog, "LOADING_S", 0.01)
    waits = """
        import logging, threading
        named = threading.Semaphore(0)
        class Ear(logging.Handler):
            def emit(self, record):
                if " so far, " in record.getMessage():
                    named.release()
        ear = Ear()
        logging.getLogger("zonemta.plugin").addHandler(ear)
        named.acquire(timeout=60)
        assert named.acquire(timeout=60)
        logging.getLogger("zonemta.plugin").removeHandler(ear)
    """
    if at == "setup":
        lines = textwrap.dedent(waits).strip().splitlines()
        waits = "\n".join([lines[0], "def setup(api):", *(f"    {line}" for line in lines[1:])])
    with caplog.at_level(logging.WARNING):
        make_host(waits)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) >= 2
    assert all(line.startswith("plugin p1, /") for line in told)
    assert all(f": {at} has taken " in line for line in told)
    assert any("p1.py:10: " in line or "p1.py:11: " in line for line in told)
