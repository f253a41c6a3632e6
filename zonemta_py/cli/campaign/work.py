"""The long part of `campaign send`: Spark, the plan, the nodes, with progress bars and tables; errors become
sentences."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import configuration
from zonemta_py.cli.terminal.output import bar, print_table

if TYPE_CHECKING:
    from zonemta_py.cli.campaign.planning import NodeTerms
    from zonemta_py.pipeline.nodes.client import NodeAccess
    from zonemta_py.pipeline.nodes.nodes import Announcement
    from zonemta_py.pipeline.prepare.plan import Plan
    from zonemta_py.pipeline.prepare.settings import Settings
    from zonemta_py.pipeline.send.writer import Injected

SAMPLE_CHUNKS = 2
"""Chunks whose recipients are all rendered before the first is sent."""
_SHOWN = 20
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\][^\n]*")
_BOUND_FACTOR = 3
_BOUND_LEAST = {"deferred": 0.1, "bounced": 0.02, "blocked": 0.005}


class Work:
    """to: nodes, None to send nothing. One Spark session for all of it, made when it is needed."""

    def __init__(
        self, to: NodeAccess | None, master: str, memory_gb: float, config: Path | None, long: bool = False
    ) -> None:
        """long: the list is one of millions."""
        self._to, self._master, self._memory_gb, self._config = to, master, memory_gb, config
        self._long = long

    @cached_property
    def spark(self) -> Any:
        """Raises CommandError."""
        from zonemta_py.pipeline.spark.session import Unavailable, session

        logging.getLogger("SQLQueryContextLogger").disabled = True  # the sentence has it
        try:
            with bar("start Spark"):
                return session(self._master, self._memory_gb, "zonemta campaign", long=self._long)
        except Unavailable as missing:
            raise CommandError(Exit.UNAVAILABLE, str(missing)) from None

    @cached_property
    def terms(self) -> NodeTerms | None:
        """What the nodes say of themselves; None: they do not, or none is to be asked. Raises CommandError."""
        from zonemta_py.cli.campaign.planning import ask

        return ask(self._to) if self._to is not None else None

    def providers(self) -> dict[str, str]:
        """Recipient domain → provider, as the nodes know them, or else this machine's MTA. Raises ConfigError."""
        if self.terms is not None:
            return self.terms.providers
        from zonemta_py.config.section import shipped
        from zonemta_py.zones.site import Providers

        file = configuration(self._config).dns.providers or shipped("providers.toml")
        return Providers.load(file).domains

    def bounds(self, given: dict[str, float], lake: Path | None) -> dict[str, float]:
        """What is usual in the lake, three times over, where that is less than what was given. Raises CommandError."""
        if lake is None or not given:
            return given
        from zonemta_py.pipeline.findings.baseline import shares

        with sentences():
            usual = shares(self.spark, lake)
        made = {name: max(_BOUND_LEAST[name], _BOUND_FACTOR * share) for name, share in usual.items()}
        return {name: min(bound, made.get(name, bound)) for name, bound in given.items()}

    def plan(
        self, settings: Settings, list_: str, folder: Path, suppressions: str, engagement: str,
        lake: Path | None = None, name_of: Callable[[str], str] = lambda text: text,
        tenant: str = "", list_ids: Collection[str] = (), mta: Path | None = None,
    ) -> Plan:  # fmt: skip
        """lake: it may know engagement, too. name_of: a path in the list as shown to users. tenant: whose mail it is;
        list_ids: of its templates. mta: the folder of the one whose campaigns are excepted, or followed. Raises
        CommandError."""
        kept_out = partial(self._suppressed, file=suppressions, folder=folder, tenant=tenant, list_ids=list_ids)
        if mta is not None and settings.without:
            kept_out = partial(self._and_reached, kept_out, mta, settings.without, folder)
        those = partial(self._followed, mta, settings, folder)
        from zonemta_py.pipeline.prepare.plan import plan

        with sentences(), _steps("plan") as (say, _):
            return plan(
                self.spark, settings, list_, folder, kept_out, lambda spark: _events(spark, engagement, lake), say,
                name_of, those,
            )  # fmt: skip

    def found(self, folder: Path) -> Plan:
        """The plan that is there. Raises CommandError."""
        from zonemta_py.pipeline.prepare.plan import Plan, existing

        report = existing(folder)
        if report is None:
            raise CommandError(
                Exit.NO_INPUT,
                f"{folder}: there is no plan to continue; send the list first, or name the folder with --plans",
            )
        return Plan(folder, report, made=False)

    def send(self, plan: Plan, announcement: Announcement, day: int, canary_patience_s: float) -> Injected:
        """Raises CommandError."""
        from zonemta_py.pipeline.nodes.nodes import bind
        from zonemta_py.pipeline.prepare.plan import rows
        from zonemta_py.pipeline.send.campaign import send

        assert self._to is not None
        with sentences(), _steps("send") as (say, move):
            bind(plan.folder, self._to, announcement.name)
            frame = rows(self.spark, plan.folder)
            return send(frame, announcement, self._to, day, canary_patience_s, say, move)

    def counts(self, list_: str, column: str, multiline: bool) -> dict[str, int]:
        """Values of a column, and how many rows have each. Raises CommandError."""
        from zonemta_py.pipeline.prepare.source.read import values

        with sentences(), bar(f"count {column}"):
            return values(self.spark, list_, column, multiline)

    def _suppressed(self, spark: Any, file: str, folder: Path, tenant: str, list_ids: Collection[str]) -> Any:
        from zonemta_py.pipeline.prepare.suppressed import from_nodes, read, scopes_of

        if file:
            return read(spark, file)
        if self._to is None:
            return None
        return from_nodes(spark, self._to, folder.with_name(folder.name + ".new"), scopes_of(tenant, list_ids))

    @staticmethod
    def _and_reached(
        kept_out: Callable[[Any], Any], mta: Path, without: Collection[str], folder: Path, spark: Any
    ) -> Any:
        from zonemta_py.pipeline.prepare.reached import as_suppressed, reached

        frame, people = kept_out(spark), reached(mta, without)
        if not people:
            return frame
        had_it = as_suppressed(spark, people, folder.with_name(folder.name + ".new"))
        return had_it if frame is None else frame.unionByName(had_it)

    @staticmethod
    def _followed(mta: Path | None, settings: Settings, folder: Path, spark: Any) -> Any:
        if mta is None or not settings.follows:
            return None
        from zonemta_py.pipeline.prepare.reached import as_suppressed, silent

        people = silent(mta, settings.follows, settings.unless)
        return as_suppressed(spark, people, folder.with_name(folder.name + ".new"), "silent")


def _events(spark: Any, file: str, lake: Path | None) -> Any:
    """Opens and clicks of a file, and those that came back to the MTA itself, if the lake has them; None: neither."""
    from zonemta_py.pipeline.findings.engagement import events, told
    from zonemta_py.pipeline.lake import table

    found = events(spark, Path(file)) if file else None
    if lake is None:
        return found
    try:
        came = told(table.read(spark, lake, "feedback"))
    except table.Missing:
        return found
    return came if found is None else found.unionByName(came)


def look(list_: str, multiline: bool, master: str, encoding: str = "") -> None:
    """Reports what is wrong with a list as far as that is visible without Spark, before that is started. encoding:
    of CSV that is not UTF-8. Raises CommandError, OSError."""
    from zonemta_py.pipeline.spark.session import Unavailable, installed

    try:
        installed()
    except Unavailable as missing:
        raise CommandError(Exit.UNAVAILABLE, str(missing)) from None
    from zonemta_py.pipeline.prepare.settings import PlanRefused
    from zonemta_py.pipeline.prepare.source import read, sound
    from zonemta_py.pipeline.prepare.source.dialect import dialect_of, files, kind_of, named

    try:
        kind = kind_of(list_)
        if named(encoding) and kind != "csv":
            raise PlanRefused(f"--encoding: {list_} is not CSV; leave it out")
        read.look(list_, multiline, local=master.startswith("local"), encoding=named(encoding))
        found = files(list_)
        if kind != "csv" or all(
            dialect_of(file, named(encoding)).plain() for file in found
        ):  # of others a copy is looked at
            sound.check(found, kind, multiline)
    except PlanRefused as refused:
        raise CommandError(Exit.DATA, str(refused)) from None


@contextmanager
def readable(list_: str, plan: Path, encoding: str = "") -> Iterator[tuple[str, Callable[[str], str]]]:
    """The list as Spark can read it, for as long as it is planned, and its paths' names. Raises CommandError."""
    from zonemta_py.pipeline.prepare.source import copies
    from zonemta_py.pipeline.prepare.source.dialect import named

    folder = plan.with_name(plan.name + ".copy")

    def name_of(text: str) -> str:
        return copies.of_list(text, list_, folder)

    try:
        with sentences(), copies.plain(list_, folder, named(encoding)) as copy:
            yield copy, name_of
    except CommandError as stop:
        raise CommandError(stop.code, name_of(stop.sentence)) from None


def describe(list_: str, names: list[str], email: str, encoding: str = "") -> str:
    """How the list is read, in one line."""
    from zonemta_py.cli.campaign.list import understood
    from zonemta_py.pipeline.prepare.source.dialect import Dialect, dialect_of, files, kind_of, named

    kind, found = kind_of(list_), files(list_)
    form = dialect_of(found[0], named(encoding)) if found and kind == "csv" else Dialect()
    return understood(list_, kind, form, names, email)


def read_columns(work: Work, list_: str, multiline: bool) -> list[str]:
    """The list's columns, whatever kind it is. Raises CommandError."""
    from zonemta_py.pipeline.prepare.source.read import columns
    from zonemta_py.pipeline.send.campaign import warm

    warm(work.spark)
    with sentences():
        return columns(work.spark, list_, multiline)


def sound(template: Path, fields: dict[str, str] | None) -> tuple[bytes, set[str], str, str]:
    """A prepared template's bytes, the names it uses, its sender if that is no field, its List-Id likewise. fields:
    those that there are, None: any. Raises CommandError."""
    from zonemta_py.merge.compile import compile, prepare
    from zonemta_py.merge.compile import fields as names_of
    from zonemta_py.merge.load import load
    from zonemta_py.merge.problems import TemplateRefused, ToolMissing
    from zonemta_py.merge.schedule_fields import list_id

    try:
        source = prepare(load(template), None if fields is None else list(fields))
        compiled = compile(source)
        used = names_of(source)
    except TemplateRefused as refused:
        raise CommandError(Exit.DATA, "\n".join(map(str, refused.problems[:_SHOWN]))) from None
    except ToolMissing as missing:
        raise CommandError(Exit.UNAVAILABLE, str(missing)) from None
    return source.pack(), used, compiled.sender[1].constant or "", list_id(source)


def rendered(work: Work, plan: Plan, template: bytes) -> None:
    """Renders recipients of the plan's first chunks: what a value can break shows now. Raises CommandError."""
    from zonemta_py.merge.compile import compile
    from zonemta_py.merge.problems import RenderRefused
    from zonemta_py.merge.source import TemplateSource
    from zonemta_py.pipeline.prepare.plan import rows

    compiled = compile(TemplateSource.unpack(template))
    chunks = rows(work.spark, plan.folder).orderBy("position").select("body").limit(SAMPLE_CHUNKS)
    for chunk in chunks.collect():
        request = json.loads(chunk.body)
        for address, *values in request["recipients"]:
            try:
                fields = dict(zip(request["columns"], values, strict=True))
                compiled.render(compiled.complete(fields), address, request["campaign"], "")
            except RenderRefused as refused:
                raise CommandError(Exit.DATA, f"{address}: {refused}") from None


def show(plan: Plan, table: bool = True) -> None:
    """Prints the report: its steps as a table, if that is wanted, the rest as notes."""
    from zonemta_py.pipeline.prepare.plan import REJECTED

    report = plan.report
    title = f"{report['campaign']}: {'planned' if plan.made else 'was planned before'}"
    steps = [row for row in report["steps"] if row["removed"] or row["step"] == "read"]
    if table:
        rows = [(row["step"], f"{row['removed']:,}", f"{row['left']:,}") for row in steps]
        print_table(title, ["step", "removed ", "left "], rows)
    for row in report["examples"][:_SHOWN]:
        place = f"{row['file']}:{row['line']}: " if row["line"] else ""
        print(f"{place}{row['reason']}: {row['text']}", file=sys.stderr)
    if report.get("rejected"):
        file = plan.folder / REJECTED
        print(f"{report['rejected']:,} rows rejected; all are in {file} with their reasons", file=sys.stderr)
    if report.get("own_hours") is not None:
        print(f"{report['own_hours']:,} recipients go at an hour of their own", file=sys.stderr)
    for row in report["typos"][:_SHOWN]:
        print(f"{row['domain']}: {row['n']:,} recipients; is {row['meant']} meant? It was not changed", file=sys.stderr)
    for name, n in report["empty"].items():
        print(f"{name}: empty for {n:,} recipients", file=sys.stderr)


@contextmanager
def _steps(label: str) -> Iterator[tuple[Callable[[str], object], Callable[[int, int], object]]]:
    with bar(label) as move:
        yield (lambda step: None), move


@contextmanager
def sentences() -> Iterator[None]:
    """Refusals and failures of the pipeline, as CommandError."""
    from zonemta_py.pipeline.nodes.client import NodeGone, NodeRefused
    from zonemta_py.pipeline.nodes.nodes import AnnouncedOtherwise, OtherNodes
    from zonemta_py.pipeline.prepare.settings import PlanRefused
    from zonemta_py.pipeline.send.campaign import CampaignStopped
    from zonemta_py.pipeline.send.errors import InjectionFailed

    try:
        yield
    except PlanRefused as error:
        raise CommandError(Exit.DATA, str(error)) from None
    except (CampaignStopped, InjectionFailed, NodeGone) as error:
        raise CommandError(Exit.TEMPORARY, str(error)) from None
    except (NodeRefused, OtherNodes, AnnouncedOtherwise) as error:
        raise CommandError(Exit.USAGE, str(error)) from None
    except Exception as error:
        said = _of_spark(error)
        if not said:
            raise
        sentence = f"the list cannot be read as asked: {said}; correct the list, or the condition of --where"
        raise CommandError(Exit.DATA, sentence) from None


def _of_spark(error: Exception) -> str:
    """Spark's sentence about data (a damaged file, a value that is not a number), by its [CONDITION]; else ""."""
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        return ""
    java = getattr(error, "java_exception", None)
    found = _CONDITION.search(str(java.getMessage() if java is not None else error))
    return " ".join(found[0].split()) if found else ""
