"""The part of `zonemta forget` that is about reports on campaigns which the MTA has made by itself."""

from __future__ import annotations

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.config import Config
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym
from zonemta_py.reports.erasure import in_pages
from zonemta_py.reports.shelf import ReportShelf


def in_reports(config: Config, address: str, subaddresses: bool, tell: Telling) -> None:
    """Raises CommandError."""
    person = DataSubject(address, pseudonym(), subaddresses)
    try:
        gone = in_pages(ReportShelf(config), lambda text: person.erased(text)[1] > 0)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}; run this again as the MTA's user"
        raise CommandError(Exit.TEMPORARY, f"reports on campaigns are not searched: {why}") from None
    if gone:
        again = "`zonemta campaign report NAME` makes one again, without the person once the archive has none"
        tell(f"reports removed, as they named the person: {', '.join(gone)}; {again}")
    tell(reports_removed=gone)
