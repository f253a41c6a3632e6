"""The page in a real browser without scripts: its button, and the way to the settings and back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.dashboard.conftest import CHROMIUM, FLAGS, PATIENCE_MS
from tests.web.dashboard.test_pages import usable
from tests.web.links.conftest import path, today

LONG = {"recipient": f"{'very-long-' * 6}name@{'sub.' * 30}example.com", "campaign": "x" * 63}
HOSTILE = {"recipient": '"<script>window.hacked=1</script>"@example.com', "tenant": "<img src=x onerror=hacked=1>"}


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser; install chromium")
def test_a_person_leaves_and_comes_back(open_links: Any) -> None:
    """Looking changes nothing. By keyboard: the button is what a person gets to first."""
    from playwright.sync_api import sync_playwright

    door = open_links()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        context = browser.new_context(java_script_enabled=False, locale="fr-FR")
        asked: list[str] = []
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        tab.set_default_timeout(PATIENCE_MS)
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(f"http://127.0.0.1:{door.port}{path()}")
        assert tab.get_attribute("html", "lang") == "fr"
        assert door.listed() == {}
        tab.keyboard.press("Tab")
        with tab.expect_navigation():
            tab.keyboard.press("Enter")
        assert tab.get_by_role("status").count() == 1
        assert door.lists({"campaigns:acme": "unsubscribe"})
        tab.get_by_role("link").click()
        tab.get_by_role("button").click()
        assert tab.get_by_role("status").count() == 1
        assert door.listed() == {}
        assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{door.port}"}
        everybody_can_use_it(browser, f"http://127.0.0.1:{door.port}")
        browser.close()


def everybody_can_use_it(browser: Any, door: str) -> None:
    """axe finds nothing wrong with any page, none is wider than a phone, and no text becomes a part of it."""
    tab = browser.new_page(viewport={"width": 320, "height": 640})
    tab.set_default_timeout(PATIENCE_MS)
    pages = [path(), path(purpose="preferences"), path(day=today() - 400), "/u/cut", "/nothing"]
    pages += [path(**LONG), path(purpose="preferences", **LONG), path(**HOSTILE)]
    for place in pages:
        tab.goto(door + place)
        looked_at(tab, place)
    for place, button in ((path(), "page"), (path(purpose="preferences"), "leave")):
        tab.goto(door + place)
        with tab.expect_navigation():
            tab.get_by_role("button").first.click()
        looked_at(tab, button)


def looked_at(tab: Any, place: str) -> None:
    assert usable(tab) == [], place
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320, place
    assert tab.evaluate("window.hacked") is None, place
