"""scripts/bench: this MTA against Postfix on this machine, from one load generator into one sink, all on loopback."""

from __future__ import annotations

import json
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from ports import free_port
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmark import plugged, replicated, roots
from benchmark.contenders import BenchError, Contender, Postfix, Zonemta
from benchmark.counted import SHAPES, count
from benchmark.load import smtp_source
from benchmark.peers import PEERS
from benchmark.quota import Queues, is_one
from benchmark.report import (
    KEPT,
    OURS,
    PEER,
    PHASES,
    TITLES,
    judge,
    medians,
    number,
    show,
    show_counts,
    show_kept,
    show_processes,
    show_ratios,
    show_variants,
)
from benchmark.scenarios import RELAY, Bench, Figures, ceiling, dead, relay, restart, syncs, unmeasurable_syncs
from benchmark.variants import PREFIX, SECTIONS, Checkout, Variant, checked_out
from zonemta_py.cli.service.machine import interpreter

console = Console(highlight=False)
FOREIGN_SHARE = 0.1
EVERYTHING = "A,B,C,D,H,L,dead,restart"


def main(
    scenarios: Annotated[str, typer.Option(help="Which, in this order.")] = EVERYTHING,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each relay scenario; medians count.")] = 3,
    contenders: Annotated[
        str,
        typer.Option(
            help="zonemta, postfix, exim, opensmtpd, limits, starttls, ed25519, rsa2048, events, events-down,"
            " zonemta-logged, zonemta-logged-json, zonemta@DIR (another checkout), replicated (on three NATS servers),"
            " three (nodes, on three NATS servers),"
            " queues=N,"
            " queues=N@SHARE (of a core for each process), plugins=N, plugins-rspamd, haraka=N, haraka-rspamd."
        ),
    ] = "zonemta,postfix",
    against: Annotated[
        str,
        typer.Option(metavar="REV", help="Also this revision of the MTA, in turns, and the ratio of CPU by process."),
    ] = "",
    counting: Annotated[
        bool, typer.Option("--count", help="Count calls, allocations, bytes and syncs a message, in place of time.")
    ] = False,
    only_ceiling: Annotated[bool, typer.Option("--ceiling", help="The load generator straight at the sink.")] = False,
    only_quorum: Annotated[
        bool,
        typer.Option("--quorum", help="A's messages in a queue that three servers have: RabbitMQ's, beside this MTA."),
    ] = False,
    generator: Annotated[str, typer.Option(help="smtp-source or own; empty: smtp-source if installed.")] = "",
    share: Annotated[float, typer.Option(min=0.001, help="Share of the usual messages, for a quick look.")] = 1.0,
    sessions: Annotated[int, typer.Option(min=0, help="Of the load generator at once; 0: the scenario's.")] = 0,
    queued: Annotated[int, typer.Option(min=100, help="Recipients queued in dead and restart.")] = 100_000,
    queued_per_message: Annotated[int, typer.Option(min=1, max=1000, help="How many of them a message has.")] = 100,
    count_syncs: Annotated[bool, typer.Option("--syncs/--no-syncs", help="Count sync calls under strace.")] = True,
    folder: Annotated[Path, typer.Option(help="Queues go below it; put it on the disk to be measured.")] = Path(
        "/var/tmp"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="All figures of all runs go here.")] = None,
) -> None:
    """Measures this MTA and Postfix, alternating, and says which targets are met."""
    names = _scenarios(scenarios)
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="zonemta-bench-", dir=folder))
    work.chmod(0o755)  # Postfix's own user must get through
    try:
        if counting:
            _count(names, work, against, json_file)
            raise typer.Exit(0)
        with _progress() as progress:
            task = progress.add_task("starting", total=None)

            def watch(phase: str, done: int, of: int) -> None:
                progress.update(task, description=phase, completed=done, total=of or None)

            bench = Bench(work, _generator(generator), watch, share, queued, queued_per_message, sessions)
            session = Session(bench, runs, progress.console)
            session.introduce()
            if only_quorum:
                session.measure_quorum()
            elif only_ceiling:
                session.measure_ceiling([name for name in names if name in RELAY])
            else:
                if against:
                    root = checked_out(against, work / "revisions")
                    contenders = f"{contenders},{PREFIX}{root}"
                session.measure(names, _contenders(contenders, work, progress.console), count_syncs)
    except BenchError as error:
        raise SystemExit(str(error)) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if only_quorum:
        show_kept(console, session.kept_medians())
    show(console, session.medians())
    show_variants(console, session.medians())
    show_processes(console, session.medians())
    if against:
        show_ratios(console, session.runs)
    if json_file is not None:
        json_file.write_text(json.dumps(session.document(), indent=1) + "\n")
    raise typer.Exit(1 if session.errors else 0)


def _count(names: list[str], work: Path, against: str, json_file: Path | None) -> None:
    shapes = [name for name in names if name in SHAPES]
    if not shapes:
        raise BenchError(f"nothing of {','.join(names)} is counted; take some of {','.join(SHAPES)}")
    root = checked_out(against, work / "revisions") if against else None
    with console.status("counting, one message at a time"):
        found = {"this": count(work / "counted", shapes)}
        if root is not None:
            found[against] = count(work / "counted-other", shapes, root)
    show_counts(console, found["this"], found.get(against))
    if json_file is not None:
        document = {"python": platform.python_version()} | found
        json_file.write_text(json.dumps(document, indent=1) + "\n")


def _scenarios(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in EVERYTHING.split(","):
            raise typer.BadParameter(f"there is no scenario {name!r}; take some of {EVERYTHING}")
    return names


def _generator(wanted: str) -> str:
    if wanted not in ("", "own", "smtp-source"):
        raise typer.BadParameter(f"there is no load generator {wanted!r}; take own or smtp-source")
    if wanted == "smtp-source" and smtp_source() is None:
        raise BenchError("smtp-source is not installed; apt-get install postfix, or take --generator own")
    return wanted or ("smtp-source" if smtp_source() else "own")


def _contenders(text: str, work: Path, to: Console) -> list[Contender]:
    made: list[Contender] = []
    for name in text.split(","):
        if name == "zonemta":
            made.append(Zonemta(work / "zonemta", free_port()))
        elif name == replicated.NAME:
            made.append(replicated.OneNode(work / name, free_port()))
        elif name == replicated.THREE:
            made.append(replicated.ThreeNodes(work / name, free_port()))
        elif is_one(name):
            made.append(Queues(name, work / name.replace("=", "-"), free_port()))
        elif plugged.is_one(name):
            if missing := plugged.missing(name):
                to.print(f"[bold yellow]{name} is NOT measured: {missing}.[/]")
            else:
                made.append(plugged.make(name, work / name.replace("=", "-"), free_port()))
        elif name in SECTIONS:
            made.append(Variant(name, work / name, free_port()))
        elif name.startswith(PREFIX):
            made.append(Checkout(Path(name.removeprefix(PREFIX)).resolve(), work / "checkout", free_port()))
        elif name in PEERS and (missing := roots.missing(name)):
            to.print(f"[bold yellow]{PEERS[name].name} is NOT measured: {missing}.[/]")
        elif name in PEERS:
            made.append(PEERS[name](work / name, free_port()))
        elif name != "postfix":
            known = ", ".join(("zonemta", "postfix", *PEERS, *SECTIONS))
            raise typer.BadParameter(f"there is no contender {name!r}; take some of {known}")
        elif missing := Postfix.missing():
            to.print(f"[bold yellow]Postfix is NOT measured: {missing}. Targets against it say n/a.[/]")
        else:
            made.append(Postfix(work / "postfix", free_port()))
    return made


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


class Session:
    """All runs of one call of the script. runs: scenario → contender → figures of each run."""

    def __init__(self, bench: Bench, runs: int, to: Console) -> None:
        self.bench, self._times, self._to = bench, runs, to
        self.runs: dict[str, dict[str, list[Figures]]] = {}
        self.kept: dict[str, list[dict[str, Figures]]] = {}
        """Of a queue that several servers have: contender → figures of each run, by phase."""
        self.versions: dict[str, str] = {}
        self.errors: list[str] = []

    def introduce(self) -> None:
        if self.bench.share != 1:
            self._to.print(f"[bold yellow]Only {self.bench.share:g} × the messages of each scenario are sent.[/]")
        if (python := interpreter()).remedy:
            self._to.print(f"[bold yellow]Python {python.words}; {python.remedy}.[/]", soft_wrap=True)
        kind = _file_system(self.bench.folder)
        self._to.print(f"load generator: {self.bench.generator}; queues on {kind} under {self.bench.folder}")
        if kind in ("tmpfs", "ramfs"):
            self._to.print("[bold yellow]That is memory, not a disk: sync calls cost nothing here. Take --folder.[/]")

    def measure(self, names: list[str], contenders: list[Contender], count: bool) -> None:
        self.versions = {contender.name: contender.version() for contender in contenders}
        for name in [name for name in names if name in RELAY]:
            for turn in range(self._times):
                for contender in contenders if turn % 2 == 0 else contenders[::-1]:
                    self._note(name, contender.name, partial(relay, self.bench, name, contender))
        if count:
            self._count_syncs([name for name in names if name in RELAY], contenders)
        if any(contender.name == OURS for contender in contenders):
            for name, scenario in (("dead", dead), ("restart", restart)):
                if name in names:
                    self._note(name, OURS, partial(scenario, self.bench, self.bench.folder / name))

    def measure_ceiling(self, names: list[str]) -> None:
        for name in names:
            for _ in range(self._times):
                self._note(name, "ceiling", partial(ceiling, self.bench, name))

    def measure_quorum(self) -> None:
        from benchmark import quorum

        found = quorum.contenders(lambda said: self._to.print(f"[bold yellow]{said}[/]", soft_wrap=True))
        for turn in range(self._times):
            for kind in found if turn % 2 == 0 else found[::-1]:
                try:
                    figures = quorum.measure(self.bench, kind, turn)
                except (BenchError, OSError, subprocess.SubprocessError) as error:
                    self._failed(f"{kind.name}: {error}")
                    continue
                self.kept.setdefault(kind.name, []).append(figures)
                for phase, row in figures.items():
                    shown = "; ".join(f"{number(row[key])} {title}" for key, title in KEPT.items())
                    self._to.print(f"{time.strftime('%H:%M:%S')} {kind.name}, {PHASES[phase]}: {shown}", soft_wrap=True)
                    self._warn(row)

    def kept_medians(self) -> dict[str, dict[str, Figures]]:
        return {
            name: {phase: medians([run[phase] for run in runs]) for phase in PHASES} for name, runs in self.kept.items()
        }

    def _warn(self, figures: Figures) -> None:
        if figures.get("foreign_share", 0) > FOREIGN_SHARE:
            share = f"{figures['foreign_share']:.0%}"
            self._to.print(f"[yellow]Other programs took {share} of the processors in that run: it may not count.[/]")

    def _failed(self, sentence: str) -> None:
        self.errors.append(sentence)
        self._to.print(f"[bold red]{sentence}[/]", soft_wrap=True)

    def _count_syncs(self, names: list[str], contenders: list[Contender]) -> None:
        if missing := unmeasurable_syncs():
            self._to.print(f"[bold yellow]Sync calls are NOT counted: {missing}.[/]")
            return
        for name in names:
            for contender in contenders:
                self._note(name, contender.name, partial(syncs, self.bench, name, contender))

    def _note(self, scenario: str, contender: str, run: Callable[[], Figures]) -> None:
        """One run; what fails is told and kept, and the others go on."""
        try:
            figures = run()
        except (BenchError, OSError, subprocess.CalledProcessError) as error:
            self._failed(f"{scenario} {contender}: {error}")
            return
        self.runs.setdefault(scenario, {}).setdefault(contender, []).append(figures)
        titles = TITLES[scenario] | {"sink_cpu_ms_per_message": "CPU ms a message in the sink"}
        shown = [f"{number(figures[key])} {title}" for key, title in titles.items() if figures.get(key) is not None]
        self._to.print(f"{time.strftime('%H:%M:%S')} {scenario} {contender}: {'; '.join(shown)}", soft_wrap=True)
        self._warn(figures)
        if figures.get("complete") is False:
            lost, extra = figures["missing"], figures["surplus"]
            self._failed(f"{scenario} {contender}: {lost} recipients missing, {extra} too many")

    def medians(self) -> dict[str, dict[str, Figures]]:
        return {name: {who: medians(rows) for who, rows in by.items()} for name, by in self.runs.items()}

    def document(self) -> dict[str, Any]:
        summary = self.medians()
        return {
            "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "machine": f"{platform.platform()}, {subprocess.getoutput('nproc')} processors",
            "generator": self.bench.generator,
            "share": self.bench.share,
            "versions": self.versions,
            "peer": PEER,
            "medians": summary,
            "targets": judge(summary),
            "runs": self.runs,
            "kept": self.kept,
            "errors": self.errors,
        }


def _file_system(folder: Path) -> str:
    return subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended, as at Ctrl-C
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="scripts/bench")
