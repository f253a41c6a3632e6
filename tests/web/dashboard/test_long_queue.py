"""A real Chromium and 100,000 recipients that wait: each page comes; an order about all of them is done and undone."""

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from tests.web.dashboard.conftest import PATIENCE_MS, Seen, check, order

if TYPE_CHECKING:
    from playwright.sync_api import Page

RECIPIENTS, ALL = 100_000, "100\u202f000"
PAGES = (
    "", "/queue", "/queue?domain=d7.example", "/queue?sender=nobody@x.y", "/destinations", "/destinations?by=provider",
    "/zones?zone=bulk", "/sources", "/campaigns", "/campaigns/big", "/suspensions", "/doubt", "/suppressions", "/tasks",
    "/why?what=d7.example", "/why?what=u7@d7.example", "/configuration?check=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(seen: Seen) -> "Page":
    seen.scene.crowd(RECIPIENTS)
    return seen.login()


def size(seen: Seen, **about: str) -> dict[str, int]:
    found: dict[str, int] = seen.scene.ask("GET", "/v1/size?" + urlencode(about))
    return found


def test_each_page_comes(page: "Page", seen: Seen) -> None:
    check(page, seen, PAGES)
    page.goto(f"{seen.scene.address}/queue")
    assert page.inner_text("#rows .head p") == f"50 shown of {ALL} in the queue"
    first = page.inner_text("#rows tbody tr:first-child td.name")
    page.click("nav.pager a:text('Next')")
    page.wait_for_function(f"document.querySelector('#rows tbody td.name').innerText != '{first}'")
    assert page.locator("#rows tbody tr").count() == 50
    page.goto(f"{seen.scene.address}/campaigns/big")
    assert ALL in page.inner_text("main")


def test_many_of_them_are_deleted_and_given_back(page: "Page", seen: Seen) -> None:
    """Who is meant is counted among all; none is listed as waiting afterwards; the undo puts each back."""
    few = "11\u202f111"
    page.goto(f"{seen.scene.address}/queue?campaign=big&recipient=u1*")
    page.click("#rows a:text('Do something')")
    page.wait_for_selector("#f-verb")
    page.select_option("#f-verb", "delete")
    page.click("form.stack .row button")
    page.wait_for_selector(f"strong:text-is('{few} recipients')", timeout=PATIENCE_MS)
    order(page, "a:text-is('Start it …')")
    page.wait_for_selector("h1 .state.undoable", timeout=PATIENCE_MS)
    assert f"{few} of {few} recipients done" in page.inner_text(".lead")
    assert size(seen, campaign="big")["deleted"] == 11_111
    page.goto(f"{seen.scene.address}/queue?campaign=big&recipient=u1*&state=deleted")
    assert page.locator("#rows tbody tr").count() == 50
    page.goto(f"{seen.scene.address}/tasks")
    order(page, "tbody tr:first-child a:text-is('Undo')")
    page.wait_for_selector("h1 .state.undone", timeout=PATIENCE_MS)
    left = size(seen, campaign="big")
    assert (left["queued"] + left["deferred"], left["deleted"]) == (RECIPIENTS, 0)
    assert seen.complaints == []
