"""Where reports on campaigns lie, and what is known of each campaign's: a small file of JSON in FOLDER/reporting/.

Promise: each file is replaced as a whole or not at all, and readable by its owner alone; the names of pages are made of
letters, digits, dots, hyphens and a hash, whatever campaigns are called. A file that cannot be read counts as none, and
that is said. Failures: OSError of the disk.

Erasure removes a page that names the person, since its figures, plots and files belong together; it can be made again
from what is left. Pages that wait to be put into their folder are removed, too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from zonemta_py.config import Config
from zonemta_py.disk.files import replace_file

log = logging.getLogger(__name__)

FOLDER = "reporting"
"""In the queue's folder."""
PRIVATE = 0o600
_SINCE = "since"
_PAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.html")


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """What is known of a campaign's report. Times are UNIX ms, 0: not yet.

    tenant, seq: as "campaign-ends" says. accepted: recipients, when it ended. made: 1, the report after its end is
    there; 2, so is the one that is made again, or there was no need. made_ms: of the page. returned: what had come back
    when the page was made; asked: when the last try began. tries: since the last success; next_ms: none before then;
    trouble: why the last one failed. file: the page's name, "" for none; place: the folder it was put into.
    """

    name: str
    created_ms: int
    tenant: str = ""
    seq: int = 0
    accepted: int = 0
    ended_ms: int = 0
    made: int = 0
    made_ms: int = 0
    returned: int = 0
    asked: int = 0
    tries: int = 0
    next_ms: int = 0
    trouble: str = ""
    file: str = ""
    place: str = ""

    @property
    def key(self) -> str:
        """Of this campaign, though others had its name before."""
        return f"{_hash(self.name)}-{self.created_ms}"

    @property
    def page_name(self) -> str:
        """The name of its page."""
        day = datetime.fromtimestamp(self.created_ms / 1000, UTC).date()
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip("-.")[:63] or "campaign"
        return f"{plain}-{day}-{_hash(self.key)[:8]}.html"

    @property
    def waiting_name(self) -> str:
        """The name under which the next page waits, whole, to be put into its folder."""
        return f"{self.key}-{self.ended_ms}-{self.made + 1}.html"


class ReportShelf:
    """config: of the node."""

    def __init__(self, config: Config) -> None:
        self.folder = config.folder / FOLDER
        self._pages = config.reports_folder

    def begin(self, now_ms: int) -> int:
        """Since when campaigns get reports by themselves: from the first call on."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = self.folder / _SINCE
        try:
            return int(place.read_text())
        except (FileNotFoundError, ValueError):
            replace_file(place, f"{now_ms}\n".encode(), PRIVATE)
            return now_ms

    def rows(self) -> Iterator[CampaignReport]:
        """All that is known."""
        for path in sorted(self.folder.glob("*.json")):
            if (row := _read(path)) is not None:
                yield row

    def write(self, row: CampaignReport) -> None:
        """Returns once it is stable."""
        replace_file(self.folder / f"{row.key}.json", json.dumps(asdict(row)).encode() + b"\n", PRIVATE)

    def drop(self, row: CampaignReport) -> None:
        """Forgets it."""
        (self.folder / f"{row.key}.json").unlink(missing_ok=True)

    def newest(self, name: str) -> CampaignReport | None:
        """Of that name: the newest one with a page, else the newest."""
        found = [row for path in self.folder.glob(f"{_hash(name)}-*.json") if (row := _read(path)) is not None]
        return max(found, key=lambda row: (bool(self.page(row)), row.created_ms), default=None)

    def page(self, row: CampaignReport) -> Path | None:
        """Its page, if it is there: in the folder for reports, or where it was put."""
        if not _PAGE.fullmatch(row.file):
            return None
        places = [self._pages, Path(row.place) if row.place else None]
        return next((path for place in places if place and (path := place / row.file).is_file()), None)

    def put(self, row: CampaignReport, content: bytes) -> Path:
        """Puts its page there; returns once that is stable."""
        assert self._pages is not None
        self._pages.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._pages / row.page_name
        replace_file(path, content, PRIVATE)
        return path

    def remove(self, row: CampaignReport) -> None:
        """Removes its page, if it is there."""
        if (path := self.page(row)) is not None:
            path.unlink(missing_ok=True)


def _read(path: Path) -> CampaignReport | None:
    known = {field.name: type(field.default) for field in fields(CampaignReport)} | {"name": str, "created_ms": int}
    try:
        given = json.loads(path.read_bytes())
        values = {name: given[name] for name in known if name in given}
        if any(type(value) is not known[name] for name, value in values.items()):
            raise ValueError("a value of another kind")
        row = CampaignReport(**values)
        if f"{row.key}.json" != path.name:
            raise ValueError("another campaign's")
        return row
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        log.warning("%s is damaged: what it says of a campaign's report is ignored; remove it", path)
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


Named = Callable[[bytes], bool]
"""Whether a text names the person."""
_FILE = re.compile(rb"base64,([A-Za-z0-9+/]{8,}={0,2})")


def in_pages(shelf: ReportShelf, named: Named) -> list[str]:
    """The names of campaigns whose pages have been removed."""
    gone = list[str]()
    for row in shelf.rows():
        if (page := shelf.page(row)) is not None and _names(page, named):
            shelf.remove(row)
            shelf.write(replace(row, file="", made_ms=0))
            gone.append(row.name)
    for page in shelf.folder.glob("*.html"):
        if _names(page, named):
            page.unlink(missing_ok=True)
    return gone


def _names(page: Path, named: Named) -> bool:
    """In its text, in the JSON of its plots, or in the files that it carries."""
    content = page.read_bytes()
    if named(content) or named(html.unescape(content.decode("utf-8", "replace")).encode()):
        return True
    return any(named(_decoded(found)) for found in _FILE.findall(content))


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
