"""A real MTA with mail of all kinds, and a real browser that may reach nothing else."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from dashboard.scene import Scene

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_MS = 120_000
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("scene"))
    yield made
    made.stop()


class Seen:
    """A browser's context that is logged in, and what it asked for and complained about."""

    def __init__(self, context: "BrowserContext", scene: Scene) -> None:
        self.context, self.scene = context, scene
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        context.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(f"http://127.0.0.1:{self.scene.http}/"):
            self.hosts.add(request.url)

    def tab(self) -> "Page":
        tab = self.context.new_page()
        tab.set_default_timeout(PATIENCE_MS)
        tab.on("console", lambda said: said.type == "error" and self._complained(said.text))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        return tab

    def _complained(self, text: str) -> None:
        if not text.startswith("htmx:"):  # of a page that was left while a part of it was being loaded
            self.complaints.append(text)

    def login(self) -> "Page":
        tab = self.tab()
        tab.goto(f"{self.scene.address}/login")
        tab.fill("#key", self.scene.key)
        tab.click("form.stack button")
        tab.wait_for_selector("h1:text-is('Now')")
        return tab


@pytest.fixture(scope="module")
def seen(scene: Scene) -> Iterator[Seen]:
    if CHROMIUM is None:
        pytest.skip("NOT TESTED: there is no Chromium to look at the dashboard with")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Seen(browser.new_context(viewport={"width": 1280, "height": 800}), scene)
        browser.close()


def check(tab: "Page", seen: Seen, pages: tuple[str, ...]) -> None:
    """Each is there, without a complaint, a foreign request or a part that is too wide."""
    for path in pages:
        answer = tab.goto(seen.scene.address + path)
        assert answer is not None
        assert answer.status == 200, path
        tab.wait_for_selector(".pulse.up")
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert tab.evaluate("window.hacked") is None, path
    assert seen.complaints == []
    assert seen.hosts == set()


def order(page: "Page", start: str, **fields: str) -> None:
    """Presses what leads to an order, reads what it does, fills in, does it."""
    page.click(start)
    page.wait_for_selector("dl.facts dt:text-is('Taking it back')")
    for name, value in fields.items():
        page.fill(f"#f-{name}", value)
    page.click("form.stack .row button")
    page.wait_for_selector(".banner.good")
