"""A real Chromium shows the page: from a file, without a request, without an error, and mail's texts do nothing."""

import csv
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from zonemta_py.pipeline.report.page import page
from zonemta_py.pipeline.report.rows import Facts
from zonemta_py.pipeline.report.scope import ReportScope

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PATIENCE_MS = 120_000
"""That long for a page beside other tests."""
CUT = """() => [...document.querySelectorAll("[data-plot]")].flatMap((plot) => {
  const all = plot.getBoundingClientRect();
  const texts = [...plot.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
  return texts.filter(([text, one]) => text && one.width && (one.left < all.left - 1 || one.right > all.right + 1 ||
    one.top < all.top - 1 || one.bottom > all.bottom + 1)).map(([text]) => [plot.dataset.plot, text]);
})"""
"""Plot and text of what is outside of its plot by more than a pixel."""
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="NOT TESTED: there is no Chromium to look at reports with")


class Shown(NamedTuple):
    page: "Page"
    requests: list[str]
    complaints: list[str]


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def shown(
    browser: "Browser", facts: Facts, campaign: ReportScope, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shown]:
    """The page of a campaign, with all parts there are and hostile names and replies."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(facts, campaign), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1200, "height": 800})
    tab.set_default_timeout(PATIENCE_MS)
    one = Shown(tab, [], [])
    tab.on("request", lambda request: one.requests.append(request.url))
    tab.on("console", lambda message: one.complaints.append(message.text))
    tab.on("pageerror", lambda error: one.complaints.append(str(error)))
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-drawn]")
    yield one
    tab.close()


def test_all_is_drawn_without_a_request_or_a_complaint(shown: Shown) -> None:
    """Each plot has its drawing; the only thing that was read is the file itself."""
    plots = shown.page.locator("[data-plot]")
    assert plots.count() == int(shown.page.locator("html").get_attribute("data-drawn") or 0) == 17
    for at in range(plots.count()):
        assert plots.nth(at).locator("svg.main-svg").first.bounding_box()
        assert plots.nth(at).locator(".trace, .heatmaplayer image").count() >= 1
    assert [url for url in shown.requests if not url.startswith(("data:", "blob:"))] == shown.requests[:1]
    assert shown.complaints == []


@pytest.mark.parametrize("width", [360, 1200])
def test_a_plot_with_one_bar_has_room_for_its_labels(
    browser: "Browser", facts: Facts, campaign: ReportScope, tmp_path: Path, width: int
) -> None:
    """Of one provider and one class: no text of a plot stands out of it, where it would be cut."""
    few = replace(
        facts, cells=[row for row in facts.cells if row.provider == "google"], pairs=facts.pairs[:1],
        causes=facts.causes[:1], tried=facts.tried[:2],
    )  # fmt: skip
    (tmp_path / "report.html").write_text(page(few, campaign), encoding="utf-8")
    with browser.new_page(viewport={"width": width, "height": 800}) as tab:
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto((tmp_path / "report.html").as_uri())
        tab.wait_for_selector("html[data-drawn]")
        assert tab.evaluate(CUT) == []


def test_hostile_texts_do_nothing(shown: Shown) -> None:
    """They are seen as text; no script of theirs has run, no picture of theirs was asked for."""
    assert "owned" not in shown.page.title()
    assert shown.page.locator("img").count() == 0
    assert "</script><script>document.title='owned'</script>" in shown.page.locator("#replies").inner_text()


def test_the_heat_map_switches(shown: Shown) -> None:
    """From the share that was not delivered to attempts, and back."""
    layers = (
        "() => document.querySelector('[data-plot=\"provider-hour-plot\"]').data.map(one => [one.name, one.visible])"
    )
    assert shown.page.evaluate(layers) == [["share", True], ["attempts", False]]
    shown.page.get_by_label("Attempts", exact=True).check()
    assert shown.page.evaluate(layers) == [["share", False], ["attempts", True]]
    shown.page.get_by_label("Share not delivered").check()
    assert shown.page.evaluate(layers) == [["share", True], ["attempts", False]]


def test_links_give_the_numbers_of_the_tables(shown: Shown, facts: Facts) -> None:
    """A click saves the file, with the rows that the page shows."""
    with shown.page.expect_download() as waiting:
        shown.page.get_by_text("source-provider.csv").click()
    saved = waiting.value
    assert saved.suggested_filename == "source-provider.csv"
    rows = list(csv.DictReader(io.StringIO(Path(saved.path()).read_text())))
    cells = shown.page.locator("#source-provider tbody tr").first.locator("td").all_inner_texts()
    assert cells[0] == rows[0]["source"]
    assert int(cells[3].replace(",", "")) == int(rows[0]["attempts"]) == facts.pairs[0].attempts.total


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_nothing_is_wider_than_the_screen(shown: Shown, width: int) -> None:
    """A phone needs no scrolling sideways, but inside of tables."""
    shown.page.set_viewport_size({"width": width, "height": 800})
    shown.page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_dark_and_light_have_texts_that_can_be_read(shown: Shown) -> None:
    """The text's colour changes with the scheme, in plots too."""
    ink = "() => getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    paper = "() => getComputedStyle(document.body).backgroundColor"
    seen = []
    for scheme in ("light", "dark"):
        shown.page.emulate_media(color_scheme=scheme)
        seen.append((shown.page.evaluate(ink), shown.page.evaluate(paper)))
    assert seen == [("rgb(91, 100, 112)", "rgb(245, 246, 248)"), ("rgb(163, 173, 185)", "rgb(18, 21, 25)")]


def test_the_policy_stops_what_were_not_escaped(shown: Shown) -> None:
    """A script that found a way into the page all the same does not run. (The last test: the page is spoilt.)"""
    code = "const s = document.createElement('script'); s.textContent = \"document.title='owned'\""
    shown.page.evaluate(f"() => {{ {code}; document.body.append(s); }}")
    assert "owned" not in shown.page.title()
    assert any("Content Security Policy" in text for text in shown.complaints)
