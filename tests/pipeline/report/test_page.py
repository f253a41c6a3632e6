"""A page is one file that needs nothing else, says what the facts say, and does nothing that mail asks for."""

import base64
import csv
import gzip
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.pipeline.report.headline import cards
from zonemta_py.pipeline.report.page import page, tables
from zonemta_py.pipeline.report.rows import AttemptCounts, Bin, Cause, Cell, Facts, Moment, Pair, Said, Totals, Tried
from zonemta_py.pipeline.report.scope import DAY_S, Kind, ReportScope
from zonemta_py.pipeline.report.sections import sections
from zonemta_py.pipeline.report.tables import Table

TINY = Facts(
    now=Totals(1, 1, attempts=AttemptCounts(1), median_s=0.02, p95_s=0.02, p99_s=0.02),
    moments=[Moment(0, AttemptCounts(1))],
    cells=[Cell("p", 0, AttemptCounts(1))], pairs=[Pair("i", "p", AttemptCounts(1), 0)], latency=[Bin(0.02, 0.021, 1)],
    tried=[Tried(1, "delivered", 1)],
)  # fmt: skip
FAILED = Facts(
    now=Totals(1, bounced=1, attempts=AttemptCounts(bounced=1)), moments=[Moment(0, AttemptCounts(bounced=1))],
    cells=[Cell("p", 0, AttemptCounts(bounced=1))], pairs=[Pair("i", "p", AttemptCounts(bounced=1), 0)],
    causes=[Cause("c", "bounced", 1)], said=[Said("c", "bounced", "#", 1, "550 no")], tried=[Tried(1, "bounced", 1)],
)  # fmt: skip


class Reader(HTMLParser):
    """Tags with their attributes, and the text of scripts and cells, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._open = dict(attributes) if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.scripts.append((self._open, data))
        else:
            self.text += data

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)


@pytest.fixture
def made(facts: Facts, day: ReportScope) -> Reader:
    return Reader(page(facts, day))


def test_every_part_is_there(made: Reader) -> None:
    """In its order, each with a heading that names it."""
    ids = [attributes["id"] for attributes in made.of("section")]
    assert ids == [
        "headline", "over-time", "provider-hour", "source-provider", "domains", "classes", "replies", "came-back",
        "came-back-when", "bounced-later", "came-back-rates", "came-back-provider", "came-back-campaign", "latency",
        "retries", "tls", "warm-up",
    ]  # fmt: skip
    assert [attributes["aria-labelledby"] for attributes in made.of("section")] == [f"{one}-title" for one in ids]


def test_nothing_is_fetched(made: Reader) -> None:
    """No address but data: in the whole page, and the browser is told to ask for none."""
    for _, attributes in made.tags:
        for name in ("src", "href", "action", "poster", "srcset"):
            assert (attributes.get(name) or "data:").startswith("data:")
    policy = next(one["content"] for one in made.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy
    assert "default-src 'none'" in policy


def test_only_the_scripts_of_the_page_may_run(made: Reader) -> None:
    """The policy names each by its hash; all else is data."""
    policy = next(one["content"] for one in made.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    packed = "".join(text for attributes, text in made.scripts if attributes.get("id") == "plotly")
    running = [gzip.decompress(base64.b64decode(packed)).decode()]
    running += [text for attributes, text in made.scripts if not attributes.get("type")]
    assert len(running) == 2
    hashes = ["'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in running]
    assert re.findall(r"'sha256-[^']+'", policy or "") == hashes
    assert "'unsafe-inline'" not in (policy or "").split("script-src")[1].split(";")[0]


def test_hostile_text_is_text(made: Reader, facts: Facts, campaign: ReportScope) -> None:
    """A reply with a script's end, a provider that is a tag, a campaign that is both: shown as they are."""
    assert "</script><script>document.title='owned'</script>" in made.text
    assert not list(made.of("img"))
    assert Reader(page(facts, campaign)).text.count("spring </script><b>sale") >= 2


def test_a_name_does_not_turn_the_text_behind_it(day: ReportScope) -> None:
    """Characters that reverse what follows, and control characters, are shown as such; accents and emoji stay."""
    name = "Größe \u202eevil \x1b[31m \u2066 👩\u200d🚀"
    text = Reader(page(replace(FAILED, pairs=[Pair(name, "p", AttemptCounts(bounced=1), 0)]), day)).text
    assert "Größe \ufffdevil \ufffd[31m \ufffd 👩\u200d🚀" in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", text)


def test_everything_has_a_name_for_who_cannot_see_it(made: Reader) -> None:
    """Each plot has a text, each table a caption, each link says what it gives; one first heading."""
    drawn = [one for one in made.of("div") if "data-plot" in one]
    assert len(drawn) == 17
    assert all(one["role"] == "img" and len(one["aria-label"] or "") > 20 for one in drawn)
    assert len(list(made.of("caption"))) == len(list(made.of("table")))
    assert all(one.get("aria-label") for one in made.of("a"))
    assert len(list(made.of("h1"))) == 1
    assert next(made.of("html"))["lang"] == "en"


def test_links_hold_the_tables(made: Reader, facts: Facts, day: ReportScope) -> None:
    """Each as a file of its own, byte for byte what --csv writes."""
    links = {one["download"]: base64.b64decode((one["href"] or "").partition(",")[2]) for one in made.of("a")}
    assert links == {f"{table.name}.csv": table.csv for table in tables(facts, day)}
    rows = list(csv.DictReader(io.StringIO(links["over-time.csv"].decode())))
    assert [int(row["delivered"]) for row in rows] == [row.attempts.delivered for row in facts.moments]


def test_a_spreadsheet_finds_no_formula() -> None:
    """Cells that begin like one are marked as text; numbers stay numbers."""
    table = Table("t", "c", ["a", "b"], [("=1+1", -5), ("@x", 0.12345), ("\tx", None), ("-2", 1)])
    rows = list(csv.reader(io.StringIO(table.csv.decode())))
    assert rows == [["a", "b"], ["'=1+1", "-5"], ["'@x", "0.1235"], ["'\tx", ""], ["'-2", "1"]]


def test_the_same_facts_make_the_same_bytes(facts: Facts, day: ReportScope) -> None:
    """No time, no random name; when it was made is said only if it is given."""
    assert page(facts, day) == page(facts, day)
    assert "Made 2026-05-05" in page(facts, day, made="2026-05-05 08:00")


@pytest.mark.parametrize("few", [TINY, FAILED])
def test_one_recipient_is_enough_for_a_page(few: Facts, day: ReportScope) -> None:
    """Tiny data have fewer parts, and no error."""
    text = page(few, day)
    assert "<figure>" in text
    assert len(text) < 2_500_000, "plotly is packed"


def test_nothing_is_said_in_words(day: ReportScope) -> None:
    """A page that says so, without plots and without plotly."""
    text = page(Facts(), day)
    assert "nothing to show" in text
    assert len(text) < 20_000


def test_cards_compare_with_the_period_before(facts: Facts, day: ReportScope) -> None:
    """Better and worse are said in words; of recipients more is neither."""
    found = {card.label: (card.value, card.change, card.mood) for card in cards(facts, day)}
    assert found["Recipients"] == ("2,000", "+100%, was 1,000", "")
    assert found["Delivered"] == ("95.0%", "was 99.0%", "worse")
    assert found["p95 time"] == ("5.7 min", "was 6.7 min", "better")
    alone = cards(replace(facts, before=Totals()), day)
    assert all(card.change == "" for card in alone)
    first = ReportScope(Kind.CAMPAIGN, "first", 0, DAY_S)
    assert all(card.change == "" for card in cards(facts, first))


def test_too_many_providers_become_others(facts: Facts, day: ReportScope) -> None:
    """A plot has 13 rows at most, its table has all."""
    cells = [Cell(f"p{n:02}", day.start, AttemptCounts(100 - n)) for n in range(40)]
    part = next(one for one in sections(replace(facts, cells=cells), day) if one.id == "provider-hour")
    drawn = json.loads(part.plots[0].figure.to_json())["data"][1]
    assert (len(drawn["y"]), drawn["y"][-1]) == (13, "others")
    assert drawn["z"][-1][0] == sum(100 - n for n in range(12, 40))
    assert len(part.table.rows) == 40


def test_a_campaign_begins_with_its_burn_down(facts: Facts, campaign: ReportScope) -> None:
    """It says how many wait, and until when."""
    part = sections(facts, campaign)[0]
    assert part.id == "burn-down"
    assert "are still waiting; at the present rate, none will be by 2026-05-04 11:00" in part.says


@settings(max_examples=20)
@given(st.text(), st.text(min_size=1))
def test_no_text_leaves_its_place(reply: str, name: str) -> None:
    """Whatever mail says, the page has the same tags as with a harmless text."""
    assert _tags(reply, name) == _tags("r", "n")


@cache
def _tags(reply: str, name: str) -> list[str]:
    scope = ReportScope(Kind.CAMPAIGN, name, 0, 3600, "")
    pairs, said = [Pair("i", name, AttemptCounts(bounced=1), 0)], [Said("c", "bounced", "#", 1, reply)]
    text = page(replace(FAILED, pairs=pairs, said=said), scope)
    return [tag for tag, _ in Reader(text[: text.rindex("<footer>")]).tags]
