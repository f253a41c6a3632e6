"""Medians, the targets, and the tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmark.counted import FIGURES, Counts
from benchmark.processes import ROLES
from benchmark.scenarios import MEANING
from benchmark.variants import PREFIX

Figures = dict[str, Any]
OURS, PEER = "zonemta-py", "Postfix"
PEERS = (PEER, "Exim", "OpenSMTPD")
RELAYED = {
    "messages_per_s": "messages/s end to end",
    "recipients_per_s": "recipients/s end to end",
    "accepted_per_s": "messages/s accepted",
    "cpu_ms_per_message": "CPU ms a message",
    "peak_pss_mb": "peak PSS MB, all processes",
    "growth_mb": "growth MB, largest process",
    "kb_written_per_message": "KB written a message",
    "syncs_per_message": "sync calls a message",
}
BESIDE = {
    "servers_cpu_ms_per_message": "CPU ms a message, NATS servers",
    "servers_kb_written_per_message": "KB written a message, NATS servers",
}
"""Of a contender that has helpers."""
PHASES = {"put": "enqueued", "take": "dequeued", "through": "both at once"}
"""Of a queue that several servers have (`quorum.py`)."""
KEPT = {
    "messages_per_s": "messages/s",
    "cpu_ms_per_message": "CPU ms a message, servers",
    "client_cpu_ms_per_message": "CPU ms a message, clients and sink",
    "kb_written_per_message": "KB written a message",
    "pss_mb": "PSS MB, servers",
}
RATIOS = {
    "cpu_ms_per_message": "CPU ms a message",
    **{f"cpu_ms_{role}": f"  {role}" for role in ROLES},
    "messages_per_s": "messages/s",
    "peak_pss_mb": "peak PSS MB",
    "kb_written_per_message": "KB written a message",
}
TITLES = {
    "A": RELAYED,
    "B": RELAYED,
    "C": RELAYED,
    "D": RELAYED,
    "H": RELAYED,
    "L": RELAYED,
    "dead": {
        "seconds": "s until the 100 are delivered",
        "queue_process_mb": "peak RSS MB, queue process",
        "all_processes_pss_mb": "PSS MB, all processes",
    },
    "restart": {
        "accepted_s": "s until a message is accepted",
        "first_delivery_s": "s until the first delivery",
        "all_delivered_s": "s until all are delivered",
        "missing": "recipients missing",
        "surplus": "recipients twice",
    },
}


@dataclass(frozen=True)
class Target:
    """`figure` of ours is to be `sense` `factor` × Postfix's, or, where `fixed`, `sense` `factor` itself."""

    scenario: str
    figure: str
    sense: str
    factor: float
    fixed: bool = False

    def describe(self) -> str:
        return f"{self.sense} {self.factor:g}" + ("" if self.fixed else " ×")


TARGETS = (
    Target("A", "messages_per_s", "≥", 5),
    Target("A", "cpu_ms_per_message", "≤", 0.25),
    Target("A", "peak_pss_mb", "≤", 1),
    Target("A", "kb_written_per_message", "≤", 1),
    Target("B", "messages_per_s", "≥", 2.5),
    Target("C", "recipients_per_s", "≥", 3),
    Target("D", "messages_per_s", "≥", 1),
    Target("D", "growth_mb", "≤", 64, fixed=True),
    Target("H", "messages_per_s", "≥", 2),
    Target("L", "messages_per_s", "≥", 1),
    Target("L", "kb_written_per_message", "≤", 1.05),
    Target("L", "growth_mb", "≤", 64, fixed=True),
    Target("dead", "seconds", "≤", 3, fixed=True),
    Target("dead", "queue_process_mb", "≤", 150, fixed=True),
    Target("restart", "accepted_s", "≤", 1, fixed=True),
    Target("restart", "first_delivery_s", "≤", 3, fixed=True),
)


def medians(rows: list[Figures]) -> Figures:
    """The median of every number over the runs that have it; missing and surplus recipients add up."""
    result: Figures = {}
    for name in {name: None for row in rows for name in row}:
        values = [row[name] for row in rows if row.get(name) is not None]
        if name == "complete":
            result[name] = all(values)
        elif name in ("missing", "surplus"):
            result[name] = sum(values)
        elif values and all(isinstance(value, int | float) for value in values):
            result[name] = statistics.median(values)
        else:
            result[name] = values[0] if values else None
    return result


def judge(results: dict[str, dict[str, Figures]]) -> list[Figures]:
    """Every target whose figures are there. results: scenario → contender → medians. met: None where no peer was."""
    verdicts = []
    for target in TARGETS:
        ours = results.get(target.scenario, {}).get(OURS)
        if ours is None:
            continue
        peer = 1.0 if target.fixed else results[target.scenario].get(PEER, {}).get(target.figure)
        got, met = ours.get(target.figure), None
        if got is None:
            met = False
        elif peer is not None:
            bound = peer * target.factor
            met = got >= bound if target.sense == "≥" else got <= bound
        ratio = got / peer if got is not None and peer else None
        verdicts.append(
            {"scenario": target.scenario, "figure": target.figure, "target": target.describe()}
            | {"got": got, "ratio": None if target.fixed else ratio, "met": met}
        )
    return verdicts


def show(console: Console, results: dict[str, dict[str, Figures]]) -> None:
    """One table: a section for each scenario, a line for each figure, with its target where it has one."""
    names = list(dict.fromkeys(name for by in results.values() for name in by))
    verdicts = {(row["scenario"], row["figure"]): row for row in judge(results)}
    table = Table(title="Medians", title_justify="left", caption=_caption(results), caption_justify="left")
    for title in ("", ""):
        table.add_column(title)
    for title in (*names, "ratio", "target"):
        table.add_column(title, justify="right")
    table.add_column("")
    for scenario, by in results.items():
        for figure, title in (TITLES[scenario] | BESIDE).items():
            cells = [by.get(name, {}).get(figure) for name in names]
            if any(figure in figures for figures in by.values()):
                table.add_row(
                    scenario, title, *map(number, cells), *_judged(by, figure, verdicts.get((scenario, figure)))
                )
        table.add_section()
    if table.row_count:
        console.print(table)


def show_kept(console: Console, results: dict[str, dict[str, Figures]]) -> None:
    """What a queue costs that several servers have. results: contender → phase → medians."""
    table = Table(title="Kept by several servers, medians", title_justify="left")
    for title in ("", "", *results):
        table.add_column(title, justify="right" if title else "left")
    for phase, meaning in PHASES.items():
        for figure, title in KEPT.items():
            cells = [by[phase].get(figure) for by in results.values()]
            table.add_row(meaning, title, *map(number, cells))
        table.add_section()
    console.print(table)


def show_variants(console: Console, results: dict[str, dict[str, Figures]]) -> None:
    """What each variant of this MTA costs: its speed and CPU as parts of plain's, in the same run."""
    table = Table(title="Beside plain", title_justify="left")
    for title in ("", "variant", "messages/s", "of plain's", "CPU ms a message", "more than plain's"):
        table.add_column(title, justify="left" if title in ("", "variant") else "right")
    for scenario, by in results.items():
        plain = by.get(OURS)
        for name, figures in by.items():
            if plain is None or name in (OURS, *PEERS) or not figures.get("messages_per_s"):
                continue
            speed, cpu = figures["messages_per_s"], figures["cpu_ms_per_message"]
            part, more = speed / plain["messages_per_s"], cpu - plain["cpu_ms_per_message"]
            table.add_row(scenario, name, number(speed), f"{part:.0%}", number(cpu), number(more))
    if table.row_count:
        console.print(table)


def show_processes(console: Console, results: dict[str, dict[str, Figures]]) -> None:
    """CPU of each kind of process, where the servers of a cluster are among them."""
    table = Table(title="CPU ms a message, by process", title_justify="left")
    for title in ("", "", *ROLES, "all", "of plain's", "NATS servers"):
        table.add_column(title, justify="left" if title == "" else "right", overflow="fold")
    for scenario, by in results.items():
        if not any("servers_cpu_ms_per_message" in figures for figures in by.values()):
            continue
        for name, figures in by.items():
            if figures.get("cpu_ms_queue") is None:
                continue
            of = figures["cpu_ms_per_message"] / by[OURS]["cpu_ms_per_message"] if OURS in by else None
            shown = [figures.get(f"cpu_ms_{role}") for role in ROLES]
            servers = figures.get("servers_cpu_ms_per_message")
            cells = [number(value) for value in (*shown, figures["cpu_ms_per_message"])]
            table.add_row(scenario, name, *cells, f"{of:.2f} ×" if of else "", number(servers))
        table.add_section()
    if table.row_count:
        console.print(table)


def show_ratios(console: Console, runs: dict[str, dict[str, list[Figures]]]) -> None:
    """This MTA beside its other revision: the median of each figure, and of the ratios of runs that followed another;
    below 1 is less. CPU is of each process."""
    table = Table(title="Beside the other revision", title_justify="left")
    for title in ("", "", "this", "that", "ratio", "of single runs"):
        table.add_column(title, justify="left" if title == "" else "right")
    for scenario, by in runs.items():
        that = next((name for name in by if name.startswith(PREFIX)), None)
        if that is None or OURS not in by:
            continue
        for figure, title in RATIOS.items():
            pairs = [
                (a[figure], b[figure])
                for a, b in zip(by[OURS], by[that], strict=False)
                if a.get(figure) and b.get(figure)
            ]
            if not pairs:
                continue
            single = sorted(a / b for a, b in pairs)
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            span = f"{single[0]:.3f} to {single[-1]:.3f}"
            table.add_row(scenario, title, number(ours), number(theirs), f"{statistics.median(single):.3f}", span)
        table.add_section()
    if table.row_count:
        console.print(table)


def show_counts(console: Console, counts: dict[str, Counts], others: dict[str, Counts] | None) -> None:
    """What a message costs in each process; others: in another revision, and the ratio, below 1 is less."""
    caption = "one message at a time: A text, B one connection each, C 50 recipients, H 100 KB"
    table = Table(
        title="Counted a message",
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for title in ("", "process", "", *FIGURES):
        justify: Literal["left", "right"] = "right" if title in FIGURES else "left"
        table.add_column(title.replace("_", " "), justify=justify)
    for scenario, by in counts.items():
        for role, figures in by.items():
            table.add_row(scenario, role, "this", *(f"{figures[name]:,}" for name in FIGURES))
            if that := (others or {}).get(scenario, {}).get(role):
                table.add_row("", "", "that", *(f"{that[name]:,}" for name in FIGURES))
                ratios = (f"{figures[name] / that[name]:.2f}" if that[name] else "" for name in FIGURES)
                table.add_row("", "", "ratio", *ratios)
        table.add_section()
    console.print(table)


def _judged(by: dict[str, Figures], figure: str, verdict: Figures | None) -> tuple[str, str, str]:
    ours, peer = (by.get(name, {}).get(figure) for name in (OURS, PEER))
    ratio = number(ours / peer) if ours is not None and peer else ""
    if verdict is None:
        return ratio, "", ""
    return ratio, verdict["target"], {True: "[green]✓[/]", False: "[red]✗[/]", None: "n/a"}[verdict["met"]]


def _caption(results: Iterable[str]) -> str:
    return "\n".join(f"{scenario}: {MEANING[scenario]}" for scenario in results)


def number(value: object) -> str:
    """Three digits that count; n/a for None."""
    if value is None:
        return "n/a"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
