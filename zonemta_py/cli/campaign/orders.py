"""`zonemta campaign suspend|resume|cancel|status|list`: controls a running campaign, and shows its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.campaign import options as option
from zonemta_py.cli.campaign.hours import show_hours
from zonemta_py.cli.campaign.nodes import Ca, KeyFile, Nodes, target
from zonemta_py.cli.run.ask_queue import ask_queue
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import confirm, counted, moment, print_aside, print_json, print_table
from zonemta_py.queue import questions
from zonemta_py.queue.questions.question import A, P, Question
from zonemta_py.zones.campaign_hours import words

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the campaign.")]
Cause = Annotated[str, typer.Option(metavar="TEXT", help="Reason, shown with the state.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
_ASK_S = 5.0


def suspend(
    name: Name, because: Cause = "suspended by an operator", nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Suspend a campaign: its mail waits, nothing is lost, and `resume` continues it."""
    _order(CampaignDoor(nodes, key_file, ca, config, folder), name, "pause", because, json)


def resume(
    name: Name, because: Cause = "resumed by an operator", nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Resume a campaign that was suspended by an operator or by its thresholds; their counts start again from zero."""
    _order(CampaignDoor(nodes, key_file, ca, config, folder), name, "resume", because, json)


def schedule(
    name: Name, at: option.At = "", window: option.Window = "", until: option.Until = "",
    time_zone: option.TimeZone = "", nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Change the sending hours of a campaign's waiting mail. Options not given stay as they are; none removes one."""
    said = {"at": at, "window": window, "until": until, "time_zone": time_zone}
    hours = {key: "" if value == "none" else value for key, value in said.items() if value}
    if not hours:
        raise CommandError(Exit.USAGE, "nothing is to change; name --at, --window, --until or --time-zone")
    asked = CampaignDoor(nodes, key_file, ca, config, folder)
    asked.schedule(name, hours)
    row = asked.status(name)
    if json:
        return print_json(row)
    return print(f"{name} goes {words(row['hours']) or 'at any time'}; {row['waiting']:,} recipients wait")


def text(
    name: Name, template: option.Template = None, because: Cause = "corrected by an operator",
    plans: option.Plans = Path(), nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None,
    config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Correct the template of a suspended campaign, for all its recipients that are waiting or not yet submitted."""
    from zonemta_py.cli.campaign.work import sentences, sound
    from zonemta_py.pipeline.nodes.nodes import Nodes as All
    from zonemta_py.pipeline.nodes.nodes import retext
    from zonemta_py.pipeline.prepare.plan import existing

    if template is None:
        raise CommandError(Exit.USAGE, f"a template is needed; write `zonemta campaign text {name} --template T`")
    plan = plans / f"{name}.plan"
    report = existing(plan)
    to = target(nodes, key_file, config, folder, _ASK_S, ca)
    packed, *_ = sound(template, dict.fromkeys(report["fields"], "")) if report else sound(template, None)
    with sentences(), All(to) as all_nodes:
        all_nodes.text(name, packed, because)
        row = all_nodes.status(name)
    retext(plan, packed)
    if json:
        return print_json(row)
    return print(
        f"{name} has the new text for {counted(row['waiting'], 'recipient')} that wait; "
        f"`zonemta campaign resume {name}` lets them go"
    )


def cancel(
    name: Name, because: Cause = "canceled by an operator", yes: Yes = False, nodes: Nodes = "",
    key_file: KeyFile = None, ca: Ca = None, config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Cancel a campaign: remove all its waiting mail from the queue. This cannot be undone."""
    asked = CampaignDoor(nodes, key_file, ca, config, folder)
    if not yes:
        waiting = asked.status(name)["waiting"]
        confirm(f"{counted(waiting, 'recipient')} of {name} will not get it", "Cancel it?")
    _order(asked, name, "cancel", because, json)


@tabled
def status(
    name: Name, json: AsJson = False, nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None,
    config: ConfigFile = None, folder: Folder = None,
) -> None:  # fmt: skip
    """Show a campaign's progress: counts, burn-down, rate, recipients waiting by hour, and estimated end."""
    asked = CampaignDoor(nodes, key_file, ca, config, folder)
    row = asked.status(name)
    if row.get("hours"):
        row["scheduled"] = {**asked.hours(name)}
    report = asked.report(name, row["created_ms"])
    if json:
        print_json({**row, **report})
        return
    print_table(f"campaign {name}", ["what", "value"], described(row, report.get("report")))
    show_hours(row)
    if len(row["history"]) > 1:
        waiting = [point[1] for point in row["history"]]
        first, last = row["history"][0][0], row["history"][-1][0]
        print_aside(f"waiting  {sparkline(waiting)}  {moment(first)} to {moment(last)}, {max(waiting):,} at most")


@tabled
def list_(
    json: AsJson = False, nodes: Nodes = "", key_file: KeyFile = None, ca: Ca = None, config: ConfigFile = None,
    folder: Folder = None,
) -> None:  # fmt: skip
    """List all campaigns known to the nodes, newest first."""
    rows = CampaignDoor(nodes, key_file, ca, config, folder).campaigns()
    if json:
        print_json(rows)
        return
    names = ("name", "state", "handed in ", "delivered ", "failed ", "waiting ", "rate/s ", "created", "cause")
    cells = [
        (row["name"], said(row), row["accepted"], row["delivered"], row["bounced"],
         row["waiting"], row["rate_per_s"], moment(row["created_ms"]), row["cause"])
        for row in rows
    ]  # fmt: skip
    print_table(
        "campaigns", names, cells, order=("name", "state", "waiting", "delivered", "failed", "handed in", "cause")
    )


class CampaignDoor:
    """The MTA of this machine through its socket, or nodes over HTTP, with the same interface."""

    def __init__(
        self, nodes: str, key_file: Path | None, ca: Path | None, config: Path | None, folder: Path | None
    ) -> None:
        self._target = target(nodes, key_file, config, folder, _ASK_S, ca) if nodes else None
        self._config = None if nodes else in_force(config, folder)
        self._folder = self._config.folder if self._config is not None else None

    def status(self, name: str) -> questions.CampaignRow:
        """Raises CommandError."""
        if self._folder is not None:
            return self._local(questions.campaign, name=name)
        return self._remote(lambda nodes: nodes.status(name))  # type: ignore[no-any-return]

    def hours(self, name: str) -> questions.WaitingHours:
        """Who waits for their hour. Raises CommandError."""
        if self._folder is not None:
            return self._local(questions.campaign_hours, name=name)
        return self._remote(lambda nodes: nodes.hours(name))  # type: ignore[no-any-return]

    def report(self, name: str, created_ms: int) -> dict[str, Any]:
        """Where this machine's report on it is, or why there is none; empty: none is due, or it was asked of nodes."""
        from zonemta_py.reports.folder import ReportShelf

        shelf = ReportShelf(self._config) if self._config is not None else None
        row = shelf.newest(name) if shelf is not None else None
        if shelf is None or row is None or row.created_ms != created_ms:
            return {}
        page = shelf.page(row)
        return {"report": {"file": str(page or ""), "made_ms": row.made_ms if page else 0, "trouble": row.trouble}}

    def campaigns(self) -> list[questions.CampaignRow]:
        """Raises CommandError."""
        if self._folder is not None:
            return self._local(questions.campaigns)
        return self._remote(lambda nodes: nodes.campaigns())  # type: ignore[no-any-return]

    def order(self, name: str, verb: str, cause: str) -> questions.CampaignRow | None:
        """The status afterwards, if it is returned. Raises CommandError."""
        if self._folder is not None:
            return self._local(questions.CAMPAIGN_ORDERS[verb], name=name, cause=cause)
        self._remote(lambda nodes: nodes.order(name, verb, cause))
        return None

    def schedule(self, name: str, hours: dict[str, str]) -> None:
        """Raises CommandError."""
        if self._folder is not None:
            self._local(questions.campaign_schedule, name=name, **hours)
        else:
            self._remote(lambda nodes: nodes.schedule(name, hours))

    def decide(self, name: str, winner: str, cause: str) -> None:
        """Raises CommandError."""
        if self._folder is not None:
            self._local(questions.campaign_decide, name=name, winner=winner, cause=cause)
        else:
            self._remote(lambda nodes: nodes.decide(name, winner, cause))

    def _local(self, question: Question[P, A], *_: P.args, **arguments: P.kwargs) -> A:
        assert self._folder is not None
        return ask_queue(self._folder, question, *_, **arguments)

    def _remote(self, question: Callable[[Any], Any]) -> Any:
        from zonemta_py.pipeline.nodes.client import NodeGone, NodeRefused
        from zonemta_py.pipeline.nodes.nodes import Nodes as All

        assert self._target is not None
        try:
            with All(self._target) as nodes:
                return question(nodes)
        except NodeGone as gone:
            raise CommandError(Exit.UNAVAILABLE, str(gone)) from None
        except NodeRefused as refused:
            raise CommandError(Exit.USAGE, str(refused)) from None


def _order(asked: CampaignDoor, name: str, verb: str, cause: str, json: bool) -> None:
    answered = asked.order(name, verb, cause)
    row = answered or asked.status(name)
    if json:
        return print_json(row)
    return print(f"{name} is {said(row)}; {row['waiting']:,} recipients wait")


def described(row: questions.CampaignRow, report: dict[str, Any] | None = None) -> list[tuple[str, object]]:
    """The fields of a status row to show, in order."""
    state = said(row)
    state = f"{state}: {row['cause']}" if row["cause"] else state
    to_come = row["planned"] - row["suppressed"]  # who was left out never comes
    handed_in = f"{row['accepted']:,}" + (f" of {to_come:,}" if to_come > row["accepted"] else "")
    lines: list[tuple[str, object]] = [("state", state), ("accepted", handed_in)]
    if not row.get("registered", True):
        lines.insert(0, ("known", "only from its mail (X-Campaign)"))
    figures: Mapping[str, Any] = row
    lines += [(name, figures[key]) for name, key in _COUNTS if key in figures]
    lines += [(name, figures[key]) for name, key in _CAME_BACK if figures.get(key)]
    all_of_it = max(to_come, row["accepted"])
    done = (row["accepted"] - row["waiting"] - row.get("deleted", 0)) / all_of_it if all_of_it else 0.0
    lines += _variants(row.get("variants"))
    lines += [("goes", sentence)] if (sentence := words(row.get("hours"))) else []
    if report and (report["file"] or report["trouble"]):
        lines.append(("report", report["file"] or f"not made yet: {report['trouble']}"))
    return [*lines, ("done", f"{done:.1%}"), ("rate", f"{row['rate_per_s']:,}/s"), ("estimated end", _end(row))]


def _variants(known: dict[str, Any] | None) -> list[tuple[str, object]]:
    """What its template is chosen from."""
    if not known:
        return []
    rows: list[tuple[str, object]] = [
        (one["name"], f"{one['hits']:,} of {one['of']:,}: {known['metric']}") for one in known["figures"]
    ]
    when = f"not chosen yet; {moment(known['decide_ms'])}" if known["decide_ms"] else "not chosen yet"
    return [*rows, ("winner", known["winner"] or when)]


_COUNTS = (
    ("waiting", "waiting"), ("delivered", "delivered"), ("bounced", "bounced"),
    ("complaints", "complaints"), ("deleted", "deleted"), ("removed", "removed"), ("suppressed", "suppressed"),
    ("attempts deferred", "deferred"), ("attempts blocked", "blocked"),
)  # fmt: skip


_CAME_BACK = (
    ("bounced later", "bounced_later"), ("unsubscribes", "unsubscribes"), ("automatic replies", "auto_replies"),
    ("opens", "opens"), ("clicks", "clicks"),
)  # fmt: skip


def said(row: questions.CampaignRow) -> str:
    """The state in words: all batches handed in does not mean all delivered."""
    if row["state"] == "complete":
        return "all submitted, some waiting"
    return "suspended" if row["state"] == "paused" else str(row["state"])


def _end(row: questions.CampaignRow) -> str:
    if row["state"] == "paused":
        return "not while it is suspended"
    last_ms = (row.get("scheduled") or {"last_ms": 0})["last_ms"]
    if last_ms > (row["eta_ms"] or 0):
        return f"not before {moment(last_ms)}, when the last may go"
    if row["eta_ms"]:
        return str(moment(row["eta_ms"]))
    if row["waiting"]:
        return "not known"
    return "nothing waits" if row["state"] in ("ended", "canceled") else "nothing waiting; more may be submitted"


def sparkline(values: list[int]) -> str:
    """The values as blocks of eight heights, at most _WIDTH of them: a longer course shows every n-th and the last."""
    step = -(-len(values) // _WIDTH)
    shown = values[::step] if step > 1 else values
    top = max(max(values), 1)
    return "".join(_BLOCKS[min(len(_BLOCKS) - 1, value * len(_BLOCKS) // top)] for value in shown)
