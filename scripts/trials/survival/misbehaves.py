"""A plugin that does one wrong thing at one hook, where the mail says so: an address, a user or a name in TLS such as
`bad-KIND-at-HOOK-TIMES-NUMBER`. TIMES: how often it does; 0: always.

Hooks that no mail has a name for look for a file `armed-HOOK` in the folder of the options: what is in it is a mark.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from zonemta_py.plugin import PluginApi, Reject
from zonemta_py.plugin.spec import HOOKS

MARK = re.compile(r"bad-([a-z_]+)-at-([a-z_]+)-(\d+)-(\d+)")
CLIENT = "127.7.7.7"
"""Whoever connects from there meets what is armed for `smtp_connect`."""
ARMED = ("start", "stop", "smtp_init", "smtp_connect")
GARBAGE = {
    "garbage_object": object(), "garbage_none": None, "garbage_lines": "a\r\nb", "garbage_list": [object()],
    "garbage_number": -1e300,
}  # fmt: skip
BIG_BYTES, TOO_BIG_BYTES = 2 << 30, 12 << 30
_OWN = "refused-"


class Options(BaseModel):
    """folder: for what it notes. limit_s: of the hooks; what is too long is measured by it."""

    folder: Path
    limit_s: float


_given: Options


def setup(api: PluginApi, options: Options) -> None:
    global _given
    _given = options
    api.http("GET", "/do/{mark}", _route, role="anyone")
    api.command("misbehave", _command)
    api.task("armed", _task)


async def _route(mark: str) -> Any:
    return await _misbehave("route", mark, {})


async def _command(mark: str) -> Any:
    """Misbehave in a command."""
    return await _misbehave("command", mark, {})


async def _task() -> Any:
    while True:
        file = _given.folder / "armed-task"
        if file.exists():
            mark = file.read_text()
            file.unlink(missing_ok=True)
            if (answer := await _misbehave("task", mark, {})) is not None:
                return answer
        await asyncio.sleep(0.1)


def _seen(hook: str, arguments: dict[str, Any]) -> str:
    """What may have a mark in it."""
    if hook in ARMED:
        file = _given.folder / f"armed-{hook}"
        if hook == "smtp_connect" and arguments["session"].client != CLIENT:
            return ""
        return file.read_text() if file.exists() else ""
    if hook in ("log_entry", "event"):
        return str([one.body for one in arguments["batch"]] if hook == "event" else arguments["entry"])
    if hook in ("smtp_sni", "smtp_auth", "smtp_mail_from", "smtp_rcpt_to", "smtp_end"):
        found = arguments.get("server_name"), arguments.get("auth"), arguments.get("address")
        name = next((one for one in found if one is not None), None)
        if name is None:
            return str(arguments["session"].helo)
        return str(getattr(name, "username", None) or getattr(name, "address", None) or name)
    if "routing" in arguments:
        return str(arguments["routing"].recipient)
    if hook in ("queue_release", "message_refused"):
        return str(arguments["delivery"].sender if hook == "queue_release" else arguments["refusal"].recipient)
    people = next((arguments[one] for one in ("delivery", "bounce", "envelope") if one in arguments), None)
    return " ".join(one.address for one in people.recipients) if people is not None else ""


async def _hook(hook: str, arguments: dict[str, Any]) -> Any:
    if hook == "smtp_rcpt_to" and _OWN in arguments["address"].address:
        raise Reject(550, "Not here")
    answer = await _misbehave(hook, _seen(hook, arguments), arguments)
    if hook == "smtp_auth":
        arguments["session"].user = "anybody"
    return answer


async def _misbehave(hook: str, seen: str, arguments: dict[str, Any]) -> Any:
    for found in MARK.finditer(seen):
        kind, where, times, _ = found.groups()
        if where == hook and not (_given.folder / "tame").exists() and _once_more(found[0], kind, hook, int(times)):
            return await _do(kind, arguments)
    return None


def _once_more(mark: str, kind: str, hook: str, times: int) -> bool:
    """Whether it is to be done (again); notes that it is. Processes share the count."""
    with (_given.folder / f"did-{kind}-{hook}").open("ab") as file:
        file.write(b".")
    if not times:
        return True
    for number in range(times):
        try:
            os.close(os.open(_given.folder / f"{mark}.{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


async def _do(kind: str, arguments: dict[str, Any]) -> Any:
    if kind in GARBAGE:
        return _spoil(arguments, GARBAGE[kind])
    return await DOES[kind]()


def _spoil(arguments: dict[str, Any], garbage: Any) -> None:
    for value in arguments.values():
        if isinstance(value, dict):
            for name in list(value):
                value[name] = garbage
        elif isinstance(value, list):
            value[:] = [garbage]
        else:
            for name in _names(value):
                try:
                    setattr(value, name, garbage)
                except (AttributeError, TypeError, dataclasses.FrozenInstanceError):
                    continue


def _names(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [one.name for one in dataclasses.fields(value)]
    return [
        name for name in (*getattr(type(value), "__slots__", ()), *getattr(value, "__dict__", ())) if name[:1] != "_"
    ]


async def _raise() -> None:
    raise RuntimeError("a fault")


async def _return() -> Any:
    return object()


async def _sleep() -> None:
    await asyncio.sleep(20 * _given.limit_s)


async def _block() -> None:
    time.sleep(1.3 * _given.limit_s)  # noqa: ASYNC251 - this is what it is for


async def _exit() -> None:
    os._exit(3)


async def _sys_exit() -> None:
    sys.exit(3)


async def _segfault() -> None:
    ctypes.string_at(0)


async def _threads() -> None:
    threading.stack_size(1 << 18)
    for _ in range(300):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    threading.Thread(target=time.sleep, args=(3600,)).start()  # nobody can wait for it


async def _memory() -> None:
    much = bytearray(BIG_BYTES)
    much[:: 1 << 16] = b"x" * (BIG_BYTES >> 16)


async def _bounded() -> None:
    bytearray(TOO_BIG_BYTES)


async def _loop() -> None:
    asyncio.get_running_loop().stop()


async def _swallow() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def _swallow_once() -> None:
    try:
        await asyncio.sleep(20 * _given.limit_s)
    except asyncio.CancelledError:
        return


async def _cancel() -> None:
    raise asyncio.CancelledError


async def _keyboard() -> None:
    raise KeyboardInterrupt


DOES: dict[str, Callable[[], Awaitable[Any]]] = {
    "raise": _raise, "return": _return, "sleep": _sleep, "block": _block, "exit": _exit, "sys_exit": _sys_exit,
    "segfault": _segfault, "threads": _threads, "memory": _memory, "memory_bounded": _bounded, "loop": _loop,
    "swallow": _swallow, "swallow_once": _swallow_once, "cancel": _cancel, "keyboard": _keyboard,
}  # fmt: skip
KINDS = (*DOES, *GARBAGE)


def _made(hook: str) -> Callable[..., Awaitable[Any]]:
    async def function(**arguments: Any) -> Any:
        return await _hook(hook, arguments)

    function.__name__ = hook
    return function


for _name in HOOKS:
    globals()[_name] = _made(_name)
