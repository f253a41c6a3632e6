"""The process that makes reports: each once, whole, in its place, whatever ends it. What it runs is a small program."""

import contextlib
import logging
import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Config
from zonemta_py.pipeline.erasure.person import DataSubject
from zonemta_py.queue.api import Admin
from zonemta_py.reports.folder import CampaignReport, ReportShelf, in_pages
from zonemta_py.reports.maker import ReportMaker

HOUR = 3_600_000
END = 500_000 * HOUR
GOOD = "import pathlib, sys; pathlib.Path(sys.argv[2]).write_text(sys.argv[1]); open(sys.argv[3], 'a').write('x')"
LACKS = "import sys; print('zonemta: Spark needs Java; install it\\nmore', file=sys.stderr); sys.exit(69)"


class Told(Admin):
    """What a queue says of its campaigns."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)

    async def ask(self, question: str, **arguments: Any) -> Any:
        assert question == "campaign-ends"
        return self.rows


class House:
    """A maker with a clock of its own. runs: how many programs have ended well."""

    def __init__(self, folder: Path, *rows: dict[str, Any], reports: dict[str, Any] | None = None) -> None:
        self.config = Config.model_validate(
            {"server": {"folder": folder}, "reports": {"folder": "pages"} | (reports or {})}
        )
        self.queue, self.now_ms, self.program = Told(*rows), END, GOOD
        self.log, self.pages = folder / "runs", folder / "pages"
        self.shelf = ReportShelf(self.config)
        self.shelf.begin(END - HOUR)
        self.again()

    def again(self) -> None:
        """The process is started anew."""
        self.maker = ReportMaker(self.config, self.queue, lambda: self.now_ms, self._command)
        self.maker.begin()

    def _command(self, config: Config, row: CampaignReport, target: Path) -> list[str]:
        return [sys.executable, "-c", self.program, row.name, str(target), str(self.log)]

    async def rest(self) -> None:
        """Until nothing is due."""
        while await self.maker.look():
            pass

    @property
    def runs(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def there(self) -> list[str]:
        return sorted(path.read_text() for path in self.pages.glob("*"))


def said(name: str = "spring", **other: Any) -> dict[str, Any]:
    row = {"name": name, "created_ms": END - 9 * HOUR, "tenant": "", "seq": 1, "accepted": 5, "ended_ms": END}
    return row | {"returned": 0} | other


async def test_each_that_has_ended_gets_one_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Readable by its owner alone; not those that go on; and nothing is left lying about."""
    caplog.set_level(logging.INFO)
    house = House(tmp_path, said(), said("Spring"), said("going", ended_ms=0), said("old", ended_ms=END - 2 * HOUR))
    await house.rest()
    house.again()
    await house.rest()
    assert (house.there(), house.runs) == (["Spring", "spring"], 2)
    (page, _) = house.pages.glob("*")
    assert [stat.S_IMODE(one.stat().st_mode) for one in (page, house.pages)] == [0o600, 0o700]
    assert [path.name for path in house.shelf.folder.iterdir() if path.suffix != ".json"] == ["since"]
    assert f"campaign spring: its report is {house.pages}/spring-" in caplog.text


async def test_again_once_if_something_came_back(tmp_path: Path) -> None:
    house = House(tmp_path, said())
    await house.rest()
    house.queue.rows = [said(returned=2)]
    for hours, runs in ((71, 1), (72, 2), (73, 2), (900, 2)):
        house.now_ms = END + hours * HOUR
        house.again()
        await house.rest()
        assert house.runs == runs
    assert house.there() == ["spring"]


@pytest.mark.parametrize("moment", ["made", "put", "noted"])
async def test_killed_amid_it_none_is_lost_or_made_twice(tmp_path: Path, moment: str) -> None:
    """After the run; after the page is in its place; after that is noted."""
    house = House(tmp_path, said())
    patch = pytest.MonkeyPatch()
    place, name = {"made": (ReportShelf, "put"), "put": (ReportShelf, "write"), "noted": (Path, "unlink")}[moment]
    before = getattr(place, name)

    def killed(self: Any, *rest: Any, **more: Any) -> Any:
        if house.runs and not str(self).endswith(".new"):
            raise KeyboardInterrupt
        return before(self, *rest, **more)

    patch.setattr(place, name, killed)
    with pytest.raises(KeyboardInterrupt):
        await house.rest()
    patch.undo()
    house.now_ms += HOUR
    house.again()
    await house.rest()
    assert (house.there(), house.runs) == (["spring"], 1)
    assert not [*house.shelf.folder.glob("*.html")]


async def test_what_a_killed_run_left_is_ended(tmp_path: Path) -> None:
    """Not what others run."""
    house = House(tmp_path, said())
    house.program = (
        "import os, pathlib, subprocess, sys\n"
        "one = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "other = subprocess.Popen(['sleep', '600'], env=os.environ | {'TMPDIR': os.environ['TMPDIR'] + 'x'})\n"
        "pathlib.Path(sys.argv[2]).write_text(f'{one.pid} {other.pid}')"
    )
    await house.rest()
    one, other = map(int, house.there()[0].split())
    try:
        assert runs(one)
        house.again()
        end = time.monotonic() + 60
        while runs(one):
            assert time.monotonic() < end
            time.sleep(0.01)  # noqa: ASYNC251 (nothing else is to go on)
        assert runs(other)
    finally:
        os.kill(other, signal.SIGKILL)


def runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False


async def test_what_lacks_is_said_with_the_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Our own sentence, and when it is tried next; then it works, and the trouble is forgotten."""
    house = House(tmp_path, said())
    house.program = LACKS
    await house.rest()
    sentence = "campaign spring: its report cannot be made: Spark needs Java; install it; the next try is in 1 minutes"
    assert caplog.messages == [sentence]
    row = house.shelf.newest("spring")
    assert row is not None
    assert row.trouble == "Spark needs Java; install it"
    house.program, house.now_ms = GOOD, END + HOUR
    await house.rest()
    row = house.shelf.newest("spring")
    assert row is not None
    assert (row.trouble, row.tries, house.there()) == ("", 0, ["spring"])


async def test_what_fails_does_not_hinder_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path, said(), said("summer", ended_ms=END + 1))
    house.program = f"import sys\nif sys.argv[1] == 'spring': sys.exit('what went wrong')\n{GOOD}"
    await house.rest()
    assert house.there() == ["summer"]
    for _ in range(20):
        house.now_ms += 7 * HOUR
        await house.rest()
    assert "what went wrong; no further try; `zonemta campaign report spring` makes it" in caplog.messages[-1]


async def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was made is kept until it can be: Spark does not run a second time."""
    house = House(tmp_path, said())
    house.pages.write_text("a file")
    await house.rest()
    assert f"{house.pages}: " in caplog.messages[-1]
    house.pages.unlink()
    house.now_ms += HOUR
    await house.rest()
    assert (house.there(), house.runs) == (["spring"], 1)


async def test_old_pages_go_and_come_not_again(tmp_path: Path) -> None:
    """Also while the queue still tells of the campaign; what else is in the folder stays."""
    house = House(tmp_path, said(), reports={"keep_days": 1, "again_after_h": 0})
    await house.rest()
    (house.pages / "mine.html").write_text("mine")
    for hours in (20, 26, 28):
        house.now_ms = END + hours * HOUR
        await house.rest()
    assert (house.there(), house.runs) == (["mine"], 1)
    house.queue.rows, house.now_ms = [], END + 30 * HOUR
    await house.rest()
    assert [*house.shelf.rows()] == []


async def test_a_name_that_is_used_again(tmp_path: Path) -> None:
    """Each campaign has a page of its own; asked for is the newest that has one."""
    house = House(tmp_path, said())
    await house.rest()
    house.queue.rows = [said(created_ms=END + HOUR, ended_ms=0, tenant="shop")]
    await house.rest()
    row = house.shelf.newest("spring")
    assert row is not None
    assert row.tenant == ""
    house.queue.rows = [said(created_ms=END + HOUR, ended_ms=END + 2 * HOUR, tenant="shop")]
    await house.rest()
    row = house.shelf.newest("spring")
    assert row is not None
    assert (row.tenant, len(house.there())) == ("shop", 2)


def test_what_is_noted_may_be_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It counts as none; a page's name from it never leads out of the folder."""
    house = House(tmp_path, said())
    row = CampaignReport("spring", 1, file="../../etc/passwd.html")
    house.shelf.write(row)
    assert house.shelf.page(row) is None
    (place,) = house.shelf.folder.glob("*.json")
    for text in ("", "[]", '{"name": 3}', '{"name": "summer", "created_ms": 1}', "\x00" * 100):
        place.write_text(text)
        assert [*house.shelf.rows()] == []
    assert len(caplog.messages) == 5


def test_names_of_pages_are_harmless(tmp_path: Path) -> None:
    for name in ("..", "a/b", "-x", "<b>", "CON", "\u202egpj", "n" * 900, ""):
        page = CampaignReport(name, END).page_name
        assert "/" not in page
        assert page.isascii()
        assert page[0] not in ".-"
        assert len(page) < 100
    assert CampaignReport("a", END).page_name.lower() != CampaignReport("A", END).page_name.lower()


async def test_a_person_is_erased_from_pages(tmp_path: Path) -> None:
    """A page that names the person is removed, wherever in it; and not made again by itself."""
    names = ("text", "encoded", "file", "other")
    house = House(tmp_path, *(said(name) for name in names))
    house.program = (
        "import base64, pathlib, sys\n"
        "said = {'text': '<td>550 Ann@x.test?', 'encoded': '550 ann&#64;x.test', 'other': '550 joann@x.test',"
        " 'file': 'data:text/csv;charset=utf-8;base64,' + base64.b64encode(b'reply,550 <ann@x.test>').decode()}\n"
        "pathlib.Path(sys.argv[2]).write_text(said[sys.argv[1]])"
    )
    await house.rest()
    person = DataSubject("ann@x.test", "stand@in.test")
    assert sorted(in_pages(house.shelf, lambda text: person.erased(text)[1] > 0)) == ["encoded", "file", "text"]
    house.again()
    await house.rest()
    assert house.there() == ["550 joann@x.test"]
