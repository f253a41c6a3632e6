"""Screenshots of each page, with 100,000 recipients queued: `scripts/screenshots FOLDER`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.scene import Scene

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZES = {"wide": (1440, 900), "phone": (390, 844)}
SCHEMES = ("light", "dark")
RECIPIENTS = 100_000
PAGES = {
    "now": "", "queue": "/queue", "queue-filter": "/queue?state=deferred&domain=slow.example&older=0%20s",
    "destinations": "/destinations", "zones": "/zones?zone=bulk", "sources": "/sources", "campaigns": "/campaigns",
    "campaign": "/campaigns/spring-2026", "suspensions": "/suspensions", "doubt": "/doubt",
    "suppressions": "/suppressions", "why": "/why?what=slow.example",
    "why-address": "/why?what=mallory@hostile.example", "tasks": "/tasks", "configuration": "/configuration?check=1",
    "order": "/order/campaign-cancel?name=spring-2026", "suspend": "/order/suspend", "lost": "/nothing",
}  # fmt: skip

OF_LISTS = {
    "message": ("/queue?domain=hostile.example", "#rows td a"), "message-many": ("/queue?subject=Team", "#rows td a"),
    "message-campaign": ("/queue?campaign=spring-2026", "#rows td a"), "task": ("/tasks", "tbody th a"),
    "task-preview": ("/tasks", "tr:has(.previewed) th a"), "task-start": ("/tasks", "tr:has(.previewed) a.button"),
}  # fmt: skip
"""Pages of one thing: of the list at that address, where that leads."""


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def login(page: Page, scene: Scene, key: str = "") -> None:
    page.goto(f"{scene.address}/login")
    page.fill("#key", key or scene.key)
    page.click("form.stack button")
    page.wait_for_selector("h1:text('Now')")


def _first(tab: Page, scene: Scene, path: str, link: str) -> str:
    for _ in range(20):
        tab.goto(scene.address + path)
        if tab.locator(link).count():
            break
        time.sleep(1)  # a list that has to look through much ends early on a busy machine
    return (tab.get_attribute(link, "href") or "").removeprefix("/dashboard")


def tasks(scene: Scene) -> None:
    """One preview, one that is done, one that was undone."""
    chosen = {"campaign": "newsletter-47", "recipient": "p1*"}
    for verb, preview in (("hold", False), ("flush", False), ("delete", True)):
        body = {"verb": verb, "where": chosen, "preview": preview, "cause": "a template with the wrong date"}
        task = scene.ask("POST", "/v1/tasks", body)
        if verb == "hold":
            scene.ask("POST", f"/v1/tasks/{task['id']}/undo")


def shoot(scene: Scene, out: Path, only: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        for size, (width, height) in SIZES.items():
            for scheme in SCHEMES:
                tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                tab.goto(f"{scene.address}/login")
                tab.screenshot(path=out / f"login-{size}-{scheme}.png")
                login(tab, scene)
                pages = PAGES | {name: _first(tab, scene, *there) for name, there in OF_LISTS.items()}
                for name, path in pages.items():
                    if only and name not in only:
                        continue
                    tab.goto(scene.address + path)
                    tab.wait_for_selector(".pulse.up")
                    time.sleep(0.3)
                    tab.screenshot(path=out / f"{name}-{size}-{scheme}.png", full_page=True)
                tab.close()
        browser.close()


def main() -> None:
    """Raises SystemExit."""
    if len(sys.argv) < 2:
        raise SystemExit("scripts/screenshots FOLDER [PAGE …]: where shall they go?")
    if chromium() is None:
        raise SystemExit("there is no Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        try:
            scene.fill()
            scene.put("office@example.com", [f"team{number}@slow.example" for number in range(25)], "Team meeting")
            time.sleep(2)
            scene.command("suspend", "destination", "slow.example")
            tasks(scene)
            scene.crowd(RECIPIENTS)
            time.sleep(3)
            shoot(scene, Path(sys.argv[1]), sys.argv[2:])
        finally:
            scene.stop()
    print(f"{sys.argv[1]}: {len(list(Path(sys.argv[1]).glob('*.png')))} screenshots")


if __name__ == "__main__":
    main()
