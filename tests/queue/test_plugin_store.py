"""What plugins keep in a queue: exact, on stable storage before it is answered, and with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from zonemta_py.disk import keys
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import QueueRefusal
from zonemta_py.queue.core import plugin_store, plugin_values
from zonemta_py.wire.client import RemoteQueue
from zonemta_py.wire.server import serve

Make = Callable[..., Any]
HOUR_S = 3600


class Asking:
    """One plugin's questions, each with a token of its own."""

    def __init__(self, home: Any, plugin: str = "quota") -> None:
        self.home, self.plugin, self.count = home, plugin, 0

    async def __call__(self, what: str, name: str, *arguments: Any, token: str = "") -> Any:
        self.count += 1
        token = token or f"{self.plugin}-{self.count}"
        return await self.home.queue.plugin_store.do(what, self.plugin, name, token, [*arguments])


async def test_values_of_plugins(house: Make) -> None:
    """Each has names of its own; a value is there until it is deleted, or its time is over."""
    home = await house()
    one, other = Asking(home), Asking(home, "my other plugin")
    await one("set", "seen anna@x.test", b'{"n":1}', None)
    await other("set", "seen anna@x.test", b"2", 10)
    assert (await one("get", "seen anna@x.test"), await other("get", "seen anna@x.test")) == (b'{"n":1}', b"2")
    await home.move(10)
    assert (await one("get", "seen anna@x.test"), await other("get", "seen anna@x.test")) == (b'{"n":1}', None)
    assert await one("delete", "seen anna@x.test")
    assert not await one("delete", "seen anna@x.test")
    assert await one("get", "seen anna@x.test") is None
    await home.sound()


async def test_a_limit_is_exact(house: Make) -> None:
    """However many ask at once; what was given back can be taken again; then its time is over."""
    home = await house()
    ask = Asking(home)
    found = await asyncio.gather(*(ask("take", "anna", 1, 7, HOUR_S) for _ in range(50)))
    windows = [one for one in found if one is not None]
    assert (len(windows), len(set(windows))) == (7, 1)
    assert await ask("taken", "anna") == 7
    assert await ask("give", "anna", 2, windows[0])
    found = await asyncio.gather(*(ask("take", "anna", 1, 7, HOUR_S) for _ in range(5)))
    assert sum(one is not None for one in found) == 2
    assert await ask("take", "anna", 3, 10, HOUR_S) is not None, "the limit is what each says"
    await home.move(HOUR_S)
    assert await ask("taken", "anna") == 0
    again = await ask("take", "anna", 1, 7, HOUR_S)
    assert again not in (None, windows[0])
    assert not await ask("give", "anna", 7, windows[0]), "what was taken in another time"
    assert await ask("taken", "anna") == 1


async def test_a_counter_that_is_given_back_whole_is_no_name(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients come and go, there is room for the next one."""
    monkeypatch.setattr(plugin_store, "NAMES_MAX", 3)
    home = await house()
    ask = Asking(home)
    for number in range(10):
        window = await ask("take", f"client {number}", 2, 7, HOUR_S)
        assert await ask("give", f"client {number}", 1, window)
        assert await ask("give", f"client {number}", 1, window)
        assert not await ask("give", f"client {number}", 1, window)
        assert await ask("taken", f"client {number}") == 0
    await home.crash()
    for number in range(3):
        assert await ask("take", f"client {number}", 7, 7, HOUR_S)


@pytest.mark.parametrize("power", [False, True])
async def test_what_was_answered_outlives_the_process(house: Make, power: bool) -> None:
    """Also a loss of power: it was on stable storage before."""
    home = await house()
    ask = Asking(home)
    window = await ask("take", "anna", 3, 7, HOUR_S)
    await ask("set", "seen", b"true", HOUR_S)
    await home.crash(power)
    assert (await ask("taken", "anna"), await ask("get", "seen")) == (3, b"true")
    assert await ask("take", "anna", 5, 7, HOUR_S) is None
    assert await ask("give", "anna", 3, window)
    await home.sound()


async def test_who_asks_again_has_the_first_answer(house: Make) -> None:
    """The answer was lost, with the connection or the process: nothing counts twice."""
    home = await house()
    ask = Asking(home)
    first = await ask("take", "anna", 1, 2, HOUR_S, token="t1")
    assert await ask("take", "anna", 1, 2, HOUR_S, token="t1") == first
    both = await asyncio.gather(*(ask("take", "anna", 1, 2, HOUR_S, token="t2") for _ in range(2)))
    assert both == [first, first]
    assert await ask("take", "anna", 1, 2, HOUR_S, token="t3") is None
    assert await ask("give", "anna", 1, first, token="t4")
    await home.crash()
    assert await ask("take", "anna", 1, 2, HOUR_S, token="t2") == first
    assert await ask("take", "anna", 1, 2, HOUR_S, token="t3") is None
    assert await ask("give", "anna", 1, first, token="t4")
    assert await ask("taken", "anna") == 1


@pytest.mark.parametrize("order", ["after", "before"])
async def test_what_nobody_waits_for_is_not_taken(house: Make, order: str) -> None:
    """A hook was cut off: its question may have been heard, or may be heard yet."""
    home = await house()
    ask = Asking(home)
    if order == "after":
        assert await ask("take", "anna", 1, 2, HOUR_S, token="t1") is not None
    await ask("undo", "anna", "t1", 1)
    assert await ask("taken", "anna") == 0
    assert await ask("take", "anna", 1, 2, HOUR_S, token="t1") is None
    assert await ask("taken", "anna") == 0


@pytest.mark.parametrize("set_s", [-86_400, 86_400])
async def test_a_clock_that_is_set_ends_nothing(house: Make, set_s: float) -> None:
    home = await house()
    ask = Asking(home)
    await ask("take", "anna", 2, 2, HOUR_S)
    home.clock.set_s = set_s
    await home.crash()
    assert await ask("take", "anna", 1, 2, HOUR_S) is None
    await home.move(HOUR_S)
    assert await ask("take", "anna", 1, 2, HOUR_S) is not None


async def test_what_is_over_goes_from_the_disk(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_store, "AT_ONCE", 3)
    home = await house()
    ask = Asking(home)
    for number in range(8):
        await ask("set", f"n{number}", b"1", 60)
    await ask("set", "stays", b"1", None)
    await home.crash()
    await home.move(plugin_values.TOKEN_MS / 1000)
    await home.queue.sweep()
    await home.rest()
    store = home.queue.core.disk.store
    assert [keys.plugin_of(key)[2] for key in store.keys(keys.PLUGINS, keys.end(keys.PLUGINS))] == ["stays"]
    assert list(store.keys(keys.PLUGINS_DONE, keys.end(keys.PLUGINS_DONE))) == []
    await home.sound()


async def test_there_is_a_bound_for_each_plugin(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a restart; what is over makes room, and another plugin has its own."""
    monkeypatch.setattr(plugin_store, "NAMES_MAX", 3)
    home = await house()
    ask = Asking(home)
    for number in range(3):
        await ask("set", f"n{number}", b"1", 60)
    await ask("set", "n0", b"2", 60)
    await home.crash()
    with pytest.raises(ValueError, match="a plugin may keep 3 names in a queue"):
        await ask("take", "n4", 1, 1, 60)
    await Asking(home, "other")("set", "n4", b"1", 60)
    await home.move(60)
    await ask("set", "n4", b"1", 60)


@pytest.mark.parametrize(
    ("what", "name", "arguments", "sentence"),
    [
        ("set", "n", [b"x" * 16_385, None], "16,384 bytes"),
        ("set", "n", ["text", None], "16,384 bytes"),
        ("set", "n", [b"1", 0], "a time is a number of seconds above 0"),
        ("set", "n", [b"1", float("nan")], "a time is"),
        ("set", "n" * 201, [b"1", None], "is not a name"),
        ("set", "a\nb", [b"1", None], "is not a name"),
        ("set", "", [b"1", None], "is not a name"),
        ("take", "n", [-1, 5, 60], "a whole number from 0 up"),
        ("take", "n", [1, 1.5, 60], "a whole number from 0 up"),
        ("take", "n", [1, 5, "60"], "a time is"),
        ("rob", "n", [], "is nothing that"),
    ],
)
async def test_what_cannot_be_kept(house: Make, what: str, name: str, arguments: list[Any], sentence: str) -> None:
    home = await house()
    with pytest.raises(ValueError, match=sentence):
        await Asking(home)(what, name, *arguments)
    await home.sound()


async def test_over_the_socket(house: Make) -> None:
    """As the other processes ask; a mistake is a ValueError there, too, and a trouble a refusal."""
    home = await house()
    await serve(home.queue, home.folder)
    queue = await RemoteQueue.connect(home.folder, "plugins")
    assert await queue.plugin_store("take", "quota", "anna", "t1", [1, 1, 60]) is not None
    assert await queue.plugin_store("take", "quota", "anna", "t2", [1, 1, 60]) is None
    with pytest.raises(ValueError, match="is not a name"):
        await queue.plugin_store("take", "quota", "", "t3", [1, 1, 60])
    home.queue.core.disk.lines.trouble = Reply(452, "4.3.1", "the disk is full")
    with pytest.raises(QueueRefusal, match="the disk is full"):
        await queue.plugin_store("take", "quota", "anna", "t4", [0, 1, 60])
    home.queue.core.disk.lines.trouble = None
    home.queue.plugin_store.mine = lambda plugin, name: name != "elsewhere"
    with pytest.raises(QueueRefusal, match="another queue has"):
        await queue.plugin_store("taken", "quota", "elsewhere", "t5", [])
