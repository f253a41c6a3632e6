"""The page in a real browser without scripts: its button, and the way to the settings and back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reception.dashboard.conftest import CHROMIUM, FLAGS, PATIENCE_MS
from tests.reception.http.links.conftest import path


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
        browser.close()
