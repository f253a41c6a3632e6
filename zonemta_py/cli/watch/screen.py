"""The screen of `zonemta top`: rates above, and one table: zones, destinations, or what is suspended or rests.

Questions are asked in a thread, at the pace of the screen; while the MTA is away it says so, and shows it again when it
is back. Where the terminal is narrow the least important columns are left out. An order is given only after y.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key, Resize
from textual.widgets import DataTable, Footer, Static

from zonemta_py.cli.terminal.errors import CommandError
from zonemta_py.cli.terminal.output import printable
from zonemta_py.cli.terminal.when import since
from zonemta_py.queue import questions
from zonemta_py.schedule.policy.standing import GROUPS

Ask = Callable[..., Any]
DESTINATIONS = 100
BUSIEST = 200
_CELL_PADDING, _SORTED = 2, "▾"
_SCROLLBAR = 2
_NO_RATES = (0.0, 0.0, 0.0)
_STATES = ("queued", "deferred", "held")
_SUSPENDED = frozenset(("zone", "domain", "destination", "source", "tenant", "campaign"))


class View(NamedTuple):
    """columns; order: the most important first; kind: of what a row is, "" if the row says so itself."""

    columns: tuple[str, ...]
    order: tuple[str, ...]
    kind: str


VIEWS = {
    "zones": View(
        ("zone", "out/s", *_STATES, "leased", "suspended"),
        ("zone", "queued", "out/s", "deferred", "suspended", "leased", "held"), "zone",
    ),
    "destinations": View(
        ("domain", "out/s", "deferred/s", "bounced/s", *_STATES, "suspended"),
        ("domain", "queued", "out/s", "deferred", "deferred/s", "suspended", "bounced/s", "held"), "domain",
    ),
    "standing": View(("kind", "name", "since", "why"), ("kind", "name", "why", "since"), ""),
}  # fmt: skip


class Order(NamedTuple):
    """An order that waits for its y. verb: stop or lift, as the queue calls them."""

    verb: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{'suspend' if self.verb == 'stop' else 'resume'} {self.kind} {self.name}"


class Top(App[None]):
    """ask: a question to the queue, CommandError if it is away or refuses."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#rates, #said { height: auto; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "view('zones')", "Zones"), Binding("d", "view('destinations')", "Domains"),
        Binding("p", "view('standing')", "Stops"), Binding("o", "sort", "Sort"),
        Binding("s", "order('stop')", "Suspend"), Binding("r", "order('lift')", "Resume"), Binding("q", "quit", "Quit"),
    ]  # fmt: skip

    def __init__(self, ask: Ask, every_s: float) -> None:
        super().__init__()
        self._ask, self._every_s = ask, every_s
        self.showing, self._sorted_by = "zones", 2
        self._shown, self._width = list[int](), 80
        self._rows: list[tuple[Any, ...]] = []
        self._order: Order | None = None
        self._delivered: tuple[float, dict[str, float]] = (0.0, {})
        self._looking = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield Static(id="rates")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="said")
        yield Footer(compact=True)

    async def on_mount(self) -> None:
        await self.action_view("zones")
        self.set_interval(self._every_s, self.look)

    # -- what is shown

    async def look(self) -> None:
        """Asks, and shows the answer."""
        if self._looking.locked():
            return
        async with self._looking:
            showing = ""
            while showing != self.showing:  # another view may be wanted meanwhile
                showing = self.showing
                try:
                    rates, rows = await asyncio.to_thread(self._found, showing)
                except CommandError as error:
                    self._say(f"{error.sentence}; trying again")
                    return
        self.query_one("#rates", Static).update(Text(rates))
        if self._order is None:
            self._say("")
        self._rows = rows
        self._fill()

    def _found(self, showing: str) -> tuple[str, list[tuple[Any, ...]]]:
        """In a thread: the line above, and the rows. Raises CommandError."""
        now = self._ask(questions.now, destinations=BUSIEST if showing == "destinations" else 0)
        standing, size = self._ask(questions.standing), self._ask(questions.size)
        total = size["total"]
        line = ", ".join(f"{now[name]:,.1f}/s {name}" for name in ("in", "out", "deferred", "bounced"))
        counts = ", ".join(f"{total[name]:,} {name}" for name in ("queued", "leased", "deferred", "held"))
        found = [(group, sum(row["group"] == group for row in standing)) for group in GROUPS[:3]]
        line = f"{line}\n{counts}; {', '.join(f'{n:,} {group}' for group, n in found)}"
        why = {(row["kind"], row["name"]): printable(row["cause"]) or "yes" for row in standing}
        if showing == "zones":
            speeds = self._speeds()
            return line, [
                (name, speeds.get(name, 0.0), *(row[state] for state in _STATES), row["leased"],
                 why.get(("zone", name), ""))
                for name, row in size["zones"].items()
            ]  # fmt: skip
        if showing == "destinations":
            rows, rates = self._ask(questions.sizes, by="domain", limit=DESTINATIONS)["rows"], now["destinations"]
            waiting = {row["name"]: tuple(row[state] for state in _STATES) for row in rows}
            return line, [
                (name, *rates.get(name, _NO_RATES), *waiting.get(name, (0,) * len(_STATES)),
                 why.get(("domain", name)) or why.get(("destination", name), ""))
                for name in [*waiting, *(name for name in rates if name not in waiting)]
            ]  # fmt: skip
        now_ms = int(time.time() * 1000)
        return line, [(row["kind"], row["name"], since(row["since_ms"], now_ms), row["cause"]) for row in standing]

    def _speeds(self) -> dict[str, float]:
        """Deliveries a second of each zone since it was looked last."""
        rows = self._ask(questions.metrics)["counters"].get("zonemta_answers_total", [])
        counts: dict[str, float] = {}
        for labels, count in rows:
            if labels[1] == "delivered":
                counts[labels[0]] = counts.get(labels[0], 0) + count
        (before_s, before), now_s = self._delivered, time.monotonic()
        self._delivered = (now_s, counts)
        passed = max(now_s - before_s, 0.001)
        return {zone: (count - before[zone]) / passed for zone, count in counts.items() if zone in before}

    def _fill(self) -> None:
        table = self.query_one(DataTable)
        chosen, view = self._chosen(), VIEWS[self.showing]
        number = self._sorted_by
        self._rows.sort(key=lambda row: row[0])
        self._rows.sort(key=lambda row: row[number], reverse=not isinstance((self._rows or [("",)])[0][number], str))
        self._shown = _room(view, self._rows, self._width - _SCROLLBAR)
        table.clear(columns=True)
        for place in self._shown:
            table.add_column(view.columns[place] + _SORTED * (place == number))
        for row in self._rows:
            table.add_row(*(_cell(row[place]) for place in self._shown))
        names = [self._about(row) for row in self._rows]
        if chosen in names:
            table.move_cursor(row=names.index(chosen))

    def on_resize(self, event: Resize) -> None:
        self._width = event.size.width  # `size` follows later
        if self._rows:
            self._fill()

    def _about(self, row: tuple[Any, ...]) -> tuple[str, str]:
        kind = VIEWS[self.showing].kind
        return (kind, row[0]) if kind else (row[0], row[1])

    def _chosen(self) -> tuple[str, str] | None:
        """Kind and name of the row under the cursor."""
        place = self.query_one(DataTable).cursor_row
        return self._about(self._rows[place]) if 0 <= place < len(self._rows) else None

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(Text(printable(text)))

    # -- keys

    async def action_view(self, name: str) -> None:
        self.showing, self._rows = name, []
        self._sorted_by = VIEWS[name].columns.index("queued") if name != "standing" else 0
        await self.look()

    def action_sort(self) -> None:
        self._sorted_by = next((place for place in self._shown if place > self._sorted_by), 0)
        self._fill()

    def action_order(self, verb: str) -> None:
        chosen = self._chosen()
        if chosen is None:
            return
        if verb == "stop" and chosen[0] not in _SUSPENDED:
            self._say(f"{chosen[0]} {chosen[1]} is no zone or destination to suspend")
            return
        self._order = Order(verb, *chosen)
        self._say(f"{self._order}? y does it, any other key does not")

    async def on_key(self, event: Key) -> None:
        order, self._order = self._order, None
        if order is None:
            return
        if event.key != "y":
            self._say(f"not done: {order}")
            return
        event.stop()
        more = {"cause": "in zonemta top"} if order.verb == "stop" else {}
        try:
            done = await asyncio.to_thread(self._ask, order.verb, kind=order.kind, name=order.name, **more)
        except CommandError as error:
            self._say(error.sentence)
            return
        await self.look()
        self._say(f"done: {order}" if done is not False else f"there was nothing to {order}")


def _room(view: View, rows: list[tuple[Any, ...]], width: int) -> list[int]:
    """Columns for which there is room, in their own order; the most important one always."""
    shown, left = list[int](), width
    for place in map(view.columns.index, view.order):
        cells = [cell_len(_cell(row[place]).plain) for row in rows]
        left -= max([cell_len(view.columns[place] + _SORTED), *cells]) + _CELL_PADDING
        if left < 0 and shown:
            break
        shown.append(place)
    return sorted(shown)


def _cell(value: Any) -> Text:
    """Numbers stand to the right; nothing in a text is markup."""
    if isinstance(value, float):
        return Text(f"{value:,.1f}", justify="right")
    return Text(f"{value:,}", justify="right") if isinstance(value, int) else Text(printable(value))
