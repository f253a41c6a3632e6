"""`zonemta campaign report`: a campaign's page from what the MTA of this machine has recorded up to now.

Without a lake it makes one in a temporary folder, of what was recorded since the campaign began, and removes it again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zonemta_py.cli.campaign.orders import Name
from zonemta_py.cli.lake import report as pages
from zonemta_py.cli.lake.spark import Master
from zonemta_py.cli.run.ask_queue import NotRunning, ask_queue
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, configuration
from zonemta_py.journal import folders
from zonemta_py.queue import questions

if TYPE_CHECKING:
    from zonemta_py.config import Config
    from zonemta_py.pipeline.report.scope import ReportScope
    from zonemta_py.pipeline.spark.session import SparkSession

Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "--out", metavar="FILE",
        help="Output; default: report-campaign-NAME.html here.",
    ),
]  # fmt: skip
InLake = Annotated[
    Path | None,
    typer.Option(
        "--lake", metavar="DIR",
        help="Update this lake and read it, also for the previous campaign; default: reports.lake, else none.",
    ),
]  # fmt: skip
Memory = Annotated[
    float | None, typer.Option(metavar="GB", min=0.5, help="Memory for Spark; default: reports.memory_gb.")
]


def report(
    name: Name, output: Output = None, lake: InLake = None, csv: pages.Csv = None, open_: pages.Open = False,
    json: AsJson = False, config: ConfigFile = None, folder: Folder = None, master: Master = None,
    memory: Memory = None,
) -> None:  # fmt: skip
    """Write an HTML report with plots of a campaign up to now, from this machine's journal."""
    settings = configuration(config, folder)
    archive = settings.folder / "archive"
    if lake is None and settings.reports.lake is not None:
        lake = settings.folder / settings.reports.lake
    how = pages.How(
        lake or Path(), archive, output, csv, open_, json, master, memory or settings.reports.memory_gb
    )  # fmt: skip
    if lake is not None:
        return pages.report(_of(name, how), how)
    with tempfile.TemporaryDirectory(prefix="zonemta-report-") as place:
        since, since_ms = _begun(settings, name)
        how = how._replace(lake=Path(place), lent=True, since=since, since_ms=since_ms)
        return pages.report(_of(name, how), how)


def _of(name: str, how: pages.How) -> pages.Resolve:
    """The scope of the whole campaign."""

    def resolve(session: SparkSession) -> ReportScope:
        from zonemta_py.pipeline.report import facts

        scope = facts.of_campaign(facts.spans(session, how.lake), name)
        if scope is None:
            sentence = f"{how.archive} has no mail of a campaign {name!a}; `zonemta campaign list` lists all campaigns"
            raise CommandError(Exit.DATA, sentence)
        return scope

    return resolve


def _begun(settings: Config, name: str) -> tuple[int, int]:
    """The number of the record from which on something of it can be found, 0: any; in several journals, which number
    their records each for itself, the time."""
    try:
        rows = ask_queue(settings.folder, questions.campaign_ends, name=name)
    except NotRunning:  # it does not run; that is said where the archive is brought up to date
        return 0, 0
    if len(folders.every(settings.folder)) > 1:
        return 0, int(rows[0]["created_ms"]) if rows else 0
    return int(rows[0]["seq"]) if rows else 0, 0
