"""`zonemta lake suppress|blocks|rates|unknown|propose|engagement`: findings in the lake's tables that call for action.

Each rebuilds its table from the lake as it is (`zonemta lake ingest` and `update` bring it up to date), shows it, and
changes nothing else; `suppress` puts people on the node's list. `register` adds the commands to `zonemta lake`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from zonemta_py.cli.campaign.nodes import Ca, KeyFile, Nodes, Patience, target
from zonemta_py.cli.lake.spark import Master, Memory, spark, told
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration, tabled
from zonemta_py.cli.terminal.output import Telling, print_json, print_table
from zonemta_py.config import ConfigError, load
from zonemta_py.config.section import shipped

Lake = Annotated[Path, typer.Option(metavar="DIR", help="The lake: a folder for its tables.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Show who would be added; change nothing.")]
SHOWN_MAX = 1_000
_Rows = list[dict[str, Any]]


def register(app: typer.Typer) -> None:
    for command in (suppress, blocks, rates, unknown, propose, engagement):
        app.command()(command)


def suppress(
    lake: Lake,
    nodes: Nodes = "",
    key_file: KeyFile = None,
    config: ConfigFile = None,
    folder: Folder = None,
    dry_run: Dry = False,
    patience: Patience = 600,
    ca: Ca = None,
    as_json: AsJson = False,
    master: Master = None,
    memory: Memory = 2,
) -> None:
    """Add hard bounces, complaints and unsubscribes to the nodes' suppression lists, with their evidence."""
    _check_lake(lake)
    to = None if dry_run else target(nodes, key_file, config, folder, patience, ca)
    with _session(master, memory) as session:
        from zonemta_py.pipeline.findings.tables import make

        found = make(session, lake, "suppressions")
        if to is None:
            _show_suppressions([row.asDict(recursive=True) for row in found.limit(SHOWN_MAX).collect()], as_json)
            return
        _push(session, lake, to, [row.asDict(recursive=True) for row in found.toLocalIterator()], as_json)


@tabled
def blocks(lake: Lake, as_json: AsJson = False, master: Master = None, memory: Memory = 2) -> None:
    """Find sudden changes for a source address at a provider, and blocklists named in replies."""
    rows = _made(lake, "blocks", master, memory)
    rows.sort(key=lambda row: row["since"], reverse=True)
    if as_json:
        return print_json(rows)
    columns = ("source", "provider", "kind", "since", "until", "what", "latest reply")
    print_table(f"Changes and listings: {len(rows)}", columns, [
        (row["source"], row["provider"], row["list"] or row["kind"], row["since"], row["until"] or "goes on",
         row["explanation"], row["evidence"][0]["reply"] if row["evidence"] else "")
        for row in rows
    ])  # fmt: skip
    return None


@tabled
def rates(lake: Lake, as_json: AsJson = False, master: Master = None, memory: Memory = 2) -> None:
    """Show the highest rate of each source address at each provider without deferrals, and how certain it is."""
    rows = _made(lake, "rates", master, memory)
    rows.sort(key=lambda row: (row["provider"], row["source"]))
    if as_json:
        return print_json(rows)
    columns = ("source", "provider", "attempts ", "per second ", "confidence", "why", "next day ")
    print_table(f"Rates: {len(rows)}", columns, [
        (row["source"], row["provider"], row["attempts"], _number(row["proposed"]), row["confidence"],
         row["reason"], "no cap" if row["next_day"] is None else f"{row['next_day']:,}")
        for row in rows
    ])  # fmt: skip
    return None


def unknown(
    lake: Lake, config: ConfigFile = None, as_json: AsJson = False, master: Master = None, memory: Memory = 2
) -> None:
    """Print replies that matched no rule, as draft rules to review, correct and add to the file of [rules] extra."""
    from zonemta_py.cli.config.rules import in_force
    from zonemta_py.mail.rules.rules import Rules, RulesError

    try:
        existing = Rules.load(in_force(configuration(config)))
    except RulesError as error:
        raise ConfigError(str(error)) from None
    rows = _made(lake, "unknown", master, memory)
    rows.sort(key=lambda row: row["cluster"])
    if as_json:
        return print_json(rows)
    from zonemta_py.pipeline.findings.rule_proposal import rule_file

    print(rule_file(rows, existing), end="")
    return None


def propose(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration to change.")],
    lake: Lake,
    low: Annotated[bool, typer.Option("--low", help="Include rates that are uncertain.")] = False,
    master: Master = None,
    memory: Memory = 2,
) -> None:
    """Propose learned rates and warm-ups of new addresses as a diff to a configuration, to be applied with `patch`."""
    config = load(file)  # its own faults are reported before the long work
    from zonemta_py.zones.site import Providers

    providers = Providers.load(config.dns.providers or shipped("providers.toml")).names
    before = file.read_text("utf-8")
    rows = _made(lake, "rates", master, memory)
    from zonemta_py.pipeline.findings import rate_proposal, warmup_proposal

    try:
        least = (*rate_proposal.CONFIDENT, *(("low",) if low else ()))
        after = rate_proposal.proposed(before, rows, providers, least)
        after = warmup_proposal.proposed(after, rows)
    except ValueError as error:
        raise CommandError(Exit.CONFIG, f"{file}: {error}") from None
    _check(after)
    for row in sorted(rows, key=lambda row: (row["provider"], row["source"])):
        if row["good_days"] is not None:
            print(warmup_proposal.comment(row, before), end="")
    print(rate_proposal.difference(before, after, file.name), end="")
    if before == after:
        print("zonemta: nothing new is certain enough; `zonemta lake rates` says why", file=sys.stderr)


def engagement(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Events: .csv, .jsonl or .parquet.")],
    lake: Lake,
    as_json: AsJson = False,
    master: Master = None,
    memory: Memory = 2,
) -> None:
    """Import opens, clicks, unsubscribes and complaints: columns address, kind, at and campaign. Each counts once."""
    with _session(master, memory) as session:
        from zonemta_py.pipeline.findings.tables import feed

        try:
            events, unusable = feed(session, lake, file)
        except ValueError as error:
            raise CommandError(Exit.DATA, str(error)) from None
    with Telling(as_json) as tell:
        words = f"{events:,} events, {unusable:,} of them unusable (no address, no time, or an unknown kind)"
        tell(words, events=events, unusable=unusable)
    if unusable:
        raise CommandError(Exit.PROBLEMS)


@contextmanager
def _session(master: str | None, memory: float) -> Iterator[Any]:
    with spark(master, memory) as session, told():
        yield session


def _check_lake(lake: Path) -> None:
    """Before Spark is started, which takes seconds."""
    if not lake.is_dir():
        raise CommandError(Exit.NO_INPUT, f"{lake}: there is no such lake; create it with `zonemta lake ingest`")


def _made(lake: Path, name: str, master: str | None, memory: float) -> _Rows:
    _check_lake(lake)
    with _session(master, memory) as session:
        from zonemta_py.pipeline.findings.tables import make

        return [row.asDict(recursive=True) for row in make(session, lake, name).collect()]


def _show_suppressions(rows: _Rows, as_json: bool) -> None:
    if as_json:
        return print_json(rows)
    columns = ("address", "kind", "rule", "since", "until", "messages ", "reason")
    table = [tuple(row[name.strip()] for name in columns) for row in sorted(rows, key=lambda row: str(row["address"]))]
    footer = f"The first {SHOWN_MAX:,} only" if len(rows) == SHOWN_MAX else ""
    print_table(f"To be suppressed: {len(rows):,}", columns, table, footer)
    return None


def _push(session: Any, lake: Path, to: Any, rows: _Rows, as_json: bool) -> None:
    from zonemta_py.pipeline.findings.apply_suppressions import note, noted, push
    from zonemta_py.pipeline.nodes.client import NodeGone, NodeRefused
    from zonemta_py.pipeline.nodes.nodes import Nodes

    results = []
    try:
        with Nodes(to) as nodes:
            for node in nodes.nodes:
                done, sent = push(node, rows, noted(session, lake, node.group.key))
                note(session, lake, node.group.key, sent)
                results.append({"node": str(node.group), **done._asdict()})
    except (NodeRefused, NodeGone) as error:
        raise CommandError(Exit.UNAVAILABLE, str(error)) from None
    if as_json:
        print_json(results)
    else:
        for row in results:
            kept = f", {row['lifted']:,} taken off by an operator before" if row["lifted"] else ""
            print(f"{row['node']}: {row['added']:,} added, {row['known']:,} known{kept}")
    for address, why in ((a, w) for row in results for a, w in row["refused"].items()):
        print(f"zonemta: {address}: {why}", file=sys.stderr)
    if any(row["refused"] for row in results):
        raise CommandError(Exit.PROBLEMS)


def _check(text: str) -> None:
    """Raises ConfigError if the proposal could not be used."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proposed.toml"
        path.write_text(text, "utf-8")
        load(path)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
