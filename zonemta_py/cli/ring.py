"""`zonemta ring`: what is in a ring file, and whether its pages are whole. It may be in use meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, readable
from zonemta_py.cli.terminal.output import bar, print_json, print_table
from zonemta_py.disk.ring.ring import Ring, RingError

app = typer.Typer(help="Inspect ring files, which hold records that overflow from memory.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="A ring file, or a block device with a ring.")]


class Content(NamedTuple):
    """Of all pages. damaged: positions; of the pages that are to be read, unless nothing was ever written there."""

    pages: int
    records: int
    bytes: int
    partial: int
    damaged: list[int]


@app.command()
@readable
def show(file: File, json: AsJson = False) -> None:
    """Show a ring's size, its newest page, and how much the next start would read from it."""
    with _opened(file) as ring:
        metadata, content = ring.metadata, _content(ring)
        rows = {
            "pages": metadata.page_count,
            "page size, bytes": metadata.page_size,
            "pages written": content.pages,
            "records in them": content.records,
            "bytes of those": content.bytes,
            "partly filled pages": content.partial,
            "damaged pages": len(content.damaged),
            "newest page": ring.head if ring.head >= 0 else None,
            "direction": "falling" if ring.falling else "rising",
            "looped": metadata.looped,
            "clean end": metadata.clean,
            "pages to be read": ring.unread(),
            "metadata writes": metadata.writes,
        }
    if json:
        print_json(rows)
    else:
        print_table(f"Ring {file}", ("what", "value "), [(what, _said(value)) for what, value in rows.items()])


@app.command()
@readable
def check(file: File, json: AsJson = False) -> None:
    """Check every page of a ring. Exit status 1: pages are damaged; the MTA skips them, and they cannot be repaired."""
    with _opened(file) as ring:
        content = _content(ring)
    if json:
        print_json({"pages": content.pages, "records": content.records, "damaged": content.damaged})
    else:
        print(f"{content.pages:,} pages with {content.records:,} records are whole, {len(content.damaged):,} damaged")
    for position in content.damaged:
        print(f"zonemta: {file}: page {position} is damaged; its records are lost", file=sys.stderr)
    if content.damaged:
        raise CommandError(Exit.PROBLEMS)


def _content(ring: Ring) -> Content:
    records = size = partial = pages = 0
    damaged: list[int] = []
    with bar("reading pages") as move:
        for position, page, blank in ring.every_page():
            move(position + 1, ring.metadata.page_count)
            if page is not None:
                pages += 1
                records += len(page.records)
                size += sum(map(len, page.records))
                partial += page.partial
            elif not blank or ring.metadata.looped or position < ring.head:
                damaged.append(position)
    return Content(pages, records, size, partial, damaged)


def _said(value: object) -> object:
    return {True: "yes", False: "no", None: "none"}[value] if isinstance(value, bool) or value is None else value


@contextmanager
def _opened(file: Path) -> Iterator[Ring]:
    try:
        ring = Ring.open(file, readonly=True)
    except RingError as error:
        raise CommandError(Exit.DATA, str(error)) from None
    except OSError as error:
        raise CommandError(Exit.NO_INPUT, f"{file}: cannot be read ({error.strerror}); name a ring file") from None
    try:
        yield ring
    finally:
        ring.abandon()
