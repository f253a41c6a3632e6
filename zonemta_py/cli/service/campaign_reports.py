"""Whether reports of campaigns can be made by themselves: what they need is there, and their folder can be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from zonemta_py.config import Config


def sentences(config: Config) -> Iterator[str]:
    """What hinders them, each with its remedy; nothing where none are wanted."""
    if config.reports_folder is None:
        return
    from zonemta_py.pipeline.spark import java
    from zonemta_py.pipeline.spark.session import Unavailable, installed

    for needed in (installed, java.home):
        try:
            needed()
        except Unavailable as error:
            yield f"warning: reports.folder is set, but no report can be made yet: {error}"
    for place in (config.reports_folder, config.reports.lake and config.folder / config.reports.lake):
        if place and (fault := _unwritable(place)):
            yield f"warning: reports: {fault}"


def _unwritable(folder: Path) -> str:
    """Why files cannot be put there, "" if they can; it need not be there yet."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        return f"{there} is not a folder; name another"
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return f"{there} cannot be written by this user; change its owner, or name another folder"
    return ""
