"""Each page in a real Chromium: empty, full, with hostile mail, on a phone, and while the queue's process is away."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.dashboard.conftest import PATIENCE_MS, Seen, check, order

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = (
    "", "/queue", "/queue?state=deferred&subject=order&older=0 s", "/destinations", "/destinations?by=provider",
    "/zones", "/zones?zone=default", "/sources", "/campaigns", "/suspensions", "/doubt", "/suppressions", "/tasks",
    "/feedback", "/feedback?kind=complaint&unread=1", "/reports", "/reports?days=x", "/configuration?check=1",
    "/why", "/order/suspend", "/order/suppress",
)  # fmt: skip
FULL = (
    "/campaigns/spring-2026", "/why?what=slow.example", "/why?what=mallory@hostile.example",
    "/order/campaign-cancel?name=spring-2026",
)  # fmt: skip
USED = (
    "", "/queue", "/suspensions", "/campaigns/spring-2026", "/order/suspend", "/why?what=slow.example", "/destinations",
    "/zones?zone=bulk", "/sources", "/suppressions", "/feedback", "/reports", "/configuration?check=1",
)  # fmt: skip
AXE = Path(__file__).with_name("axe.min.js").read_text("utf-8")
_RUN_AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
  (one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html + " " + node.failureSummary).join(" | ")}`)"""


@pytest.fixture(scope="module")
def page(seen: Seen) -> "Page":
    return seen.login()


def usable(tab: "Page") -> list[str]:
    """What axe finds wrong. Its script runs beside the page, whose policy would not let it in."""
    tab.evaluate(AXE)
    found: list[str] = tab.evaluate(_RUN_AXE)
    return found


def test_pages_of_an_empty_queue_say_what_to_do(page: "Page", seen: Seen) -> None:
    check(page, seen, PAGES)
    for path in (
        "/queue", "/destinations", "/campaigns", "/suspensions", "/doubt", "/suppressions", "/tasks", "/feedback",
    ):  # fmt: skip
        page.goto(seen.scene.address + path)
        assert page.locator(".empty").count() >= 1, path


def test_pages_of_a_full_queue(page: "Page", seen: Seen) -> None:
    """With mail whose subject and answers are made to break a page, wide, and 320 px narrow."""
    seen.scene.fill()
    check(page, seen, PAGES + FULL)
    page.goto(f"{seen.scene.address}/queue?domain=hostile.example")
    page.wait_for_selector("#rows td a")
    assert "<script>window.hacked=1</script>" in page.inner_text("#rows")
    page.click("#rows td a")
    page.wait_for_selector(".story.all")
    assert "<script>" in page.inner_text("dl.facts")
    assert page.evaluate("window.hacked") is None
    page.goto(f"{seen.scene.address}/queue?domain=slow.example&state=queued,deferred")
    assert page.inner_text("#rows .head p") == "50 shown"
    page.goto(f"{seen.scene.address}/queue?domain=slow.example")
    assert page.inner_text("#rows .head p") == "50 shown of 612 that match"
    page.click("#rows td a >> nth=-1")
    page.wait_for_selector("#fresh tbody th:text('@slow.example')")
    assert page.locator("#fresh article").count() == 0
    page.set_viewport_size({"width": 320, "height": 640})
    check(page, seen, ("", "/queue", "/destinations", "/zones?zone=bulk", "/sources", *FULL))
    page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(page: "Page", seen: Seen, scheme: Any) -> None:
    """Labels, names, contrast: axe finds nothing in either scheme."""
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for path in USED if scheme == "light" else USED[:6]:
        page.goto(seen.scene.address + path)
        page.wait_for_selector(".pulse.up")
        assert usable(page) == [], path
    seen.complaints.clear()


def test_the_keyboard_is_enough(page: "Page", seen: Seen) -> None:
    """The first stop skips to the content; a filter is sent by Enter, without a new page, and the address has it."""
    page.goto(f"{seen.scene.address}/queue")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.evaluate("window.same = true")
    page.focus("#q-domain")
    page.keyboard.type("hostile.example")
    page.keyboard.press("Enter")
    page.wait_for_url("**domain=hostile.example**")
    page.wait_for_function("document.querySelectorAll('#rows tbody tr').length == 1")
    assert page.evaluate("window.same") is True


def undo(page: "Page") -> None:
    with page.expect_navigation():
        page.click(".banner.good button")
    page.wait_for_selector(".banner.good")


def test_orders_are_done_and_undone(page: "Page", seen: Seen) -> None:
    """A zone, a campaign, an address: each order says what it did, and Undo takes it back."""
    at, ask = seen.scene.address, seen.scene.ask
    page.goto(f"{at}/zones")
    order(page, "tr:has(a:text-is('bulk')) a:text-is('Suspend')", cause="night", **{"for": "2 h"})
    page.goto(f"{at}/zones")
    assert "night" in page.inner_text("tr:has(a:text-is('bulk'))")
    order(page, "tr:has(a:text-is('bulk')) a:text-is('Resume')")
    undo(page)  # suspended again
    page.goto(f"{at}/suspensions")
    assert "bulk" in page.inner_text("#fresh")
    order(page, "tr:has(a:text-is('bulk')) a:text-is('Resume')")
    page.goto(f"{at}/campaigns")
    order(page, "tr:has(a:text-is('spring-2026')) a:text-is('Pause')", cause="look")
    assert ask("GET", "/v1/campaigns/spring-2026")["state"] == "paused"
    undo(page)
    assert ask("GET", "/v1/campaigns/spring-2026")["state"] != "paused"
    page.goto(f"{at}/suppressions")
    order(page, "a:text('Suppress an address')", address="new@well.example", reason="asked")
    undo(page)
    page.goto(f"{at}/suppressions?address=new@well.example")
    assert "not on the list" in page.inner_text("main")


def test_a_held_message_is_released_and_held_again(page: "Page", seen: Seen) -> None:
    """By a task, which is in the list and whose undo holds what has not been tried."""
    at, ask = seen.scene.address, seen.scene.ask
    ask("POST", "/v1/tasks", {"verb": "hold", "where": {"zone": "receipts", "recipient": "cy0@*"}})

    def held() -> list[str]:
        return [row["id"] for row in ask("GET", "/v1/recipients?state=held&zone=receipts")["rows"]]

    seen.scene.until(lambda: len(held()) == 1)
    (ident,) = held()
    ask("PUT", "/v1/suspensions/zone/receipts", {})
    page.goto(f"{at}/message/{ident}")
    order(page, "a:text-is('Release what is held')")
    seen.scene.until(lambda: held() == [])
    undo(page)
    seen.scene.until(lambda: held() == [ident])
    page.goto(f"{at}/tasks")
    assert "release" in page.inner_text("tbody tr:first-child").lower()
    assert seen.complaints == []


def test_a_task_is_counted_started_and_undone(page: "Page", seen: Seen) -> None:
    """From a filter of the queue to its undo."""
    page.goto(f"{seen.scene.address}/queue?domain=slow.example&zone=default")
    page.click("#rows a:text('Do something')")
    page.wait_for_selector("#f-verb")
    page.select_option("#f-verb", "delete")
    page.click("form.stack .row button")
    page.wait_for_selector("strong:text-is('12 recipients')", timeout=PATIENCE_MS)
    order(page, "a:text-is('Start it …')")
    page.wait_for_selector("h1 .state.undoable", timeout=PATIENCE_MS)
    page.goto(f"{seen.scene.address}/queue?domain=slow.example&zone=default&state=deleted")
    assert page.locator("#rows tbody tr").count() == 12
    page.goto(f"{seen.scene.address}/tasks")
    order(page, "tbody tr:first-child a:text-is('Undo')")
    page.wait_for_selector("h1 .state.undone", timeout=PATIENCE_MS)
    assert seen.complaints == []


def test_what_has_bounced_is_queued_again(page: "Page", seen: Seen) -> None:
    """Found by its state, counted, with what is to be known before, and tried again."""
    bounced = f"{seen.scene.address}/queue?state=bounced"
    page.goto(bounced)
    assert page.locator("#rows tbody tr .state.bounced").count() == 2
    page.click("#rows a:text('Do something')")
    page.wait_for_selector("#f-verb")
    page.select_option("#f-verb", "requeue")
    page.click("form.stack .row button")
    page.wait_for_selector("strong:text-is('2 recipients')", timeout=PATIENCE_MS)
    assert "The sender may already have a bounce" in page.inner_text("#fresh")
    order(page, "a:text-is('Start it …')")
    page.wait_for_selector("h1 .state.undoable", timeout=PATIENCE_MS)
    assert "2 of 2 recipients done" in page.inner_text(".lead")
    assert seen.complaints == []


def test_it_goes_on_after_the_queue_was_away(page: "Page", seen: Seen) -> None:
    """The queue's process is stopped: a banner, then a page that says so, and on it goes; then it is killed."""
    page.goto(f"{seen.scene.address}/zones")
    page.wait_for_selector(".pulse.up")
    queue = seen.scene.pid("queue")
    os.kill(queue, signal.SIGSTOP)
    try:
        page.wait_for_selector("#away:not([hidden])", timeout=PATIENCE_MS)
    finally:
        os.kill(queue, signal.SIGCONT)
    page.wait_for_selector("#away[hidden]", state="attached", timeout=PATIENCE_MS)
    os.kill(queue, signal.SIGKILL)
    end = time.monotonic() + 60
    while seen.scene.pid("queue") in (0, queue) and time.monotonic() < end:
        time.sleep(0.1)
    page.goto(f"{seen.scene.address}/queue")
    page.wait_for_selector("#rows tbody tr", timeout=PATIENCE_MS)
    seen.complaints.clear()


def test_after_a_restart_the_page_goes_on(page: "Page", seen: Seen) -> None:
    """All of the MTA is killed: the page says so; when it runs again, it goes on, and nobody has to log in."""
    page.goto(f"{seen.scene.address}/tasks")
    page.wait_for_selector(".pulse.up")
    seen.scene.kill()
    page.wait_for_selector(".pulse.down", timeout=PATIENCE_MS)
    seen.scene.start()
    page.wait_for_selector(".pulse.up", timeout=PATIENCE_MS)
    page.reload()
    page.wait_for_selector("h1:text-is('Tasks')", timeout=PATIENCE_MS)
    seen.complaints.clear()
