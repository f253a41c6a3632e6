"""What an order is: words before it, its doing, and words after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from zonemta_py.web.dashboard.desk import Desk, Done

Given = dict[str, str]


class FormField(NamedTuple):
    """A field to fill in before. options: of a choice."""

    name: str
    label: str
    hint: str = ""
    options: tuple[str, ...] = ()
    needed: bool = False


class OrderWords(NamedTuple):
    """said: what it will do. undo: how that is taken back. fields: what can be said with it."""

    title: str
    said: str
    undo: str
    button: str
    fields: tuple[FormField, ...] = ()


class DeskOrder(NamedTuple):
    """grave: cannot be taken back, so its button is red. do: with the form and the key's name. Raises Wrong,
    QueueAway."""

    name: str
    words: Callable[[Desk, Given], Awaitable[OrderWords]]
    do: Callable[[Desk, Given, str], Awaitable[Done]]
    grave: bool = False
