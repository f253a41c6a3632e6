"""Screenshots of each page: `scripts/screenshots FOLDER`."""

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
PAGES = {
    "now": "", "queue": "/queue", "queue-filter": "/queue?state=deferred&domain=slow.example&older=0%20s",
    "destinations": "/destinations", "zones": "/zones?zone=bulk", "sources": "/sources", "campaigns": "/campaigns",
    "campaign": "/campaigns/spring-2026", "suspensions": "/suspensions", "doubt": "/doubt",
    "suppressions": "/suppressions", "why": "/why?what=slow.example",
    "why-address": "/why?what=mallory@hostile.example", "tasks": "/tasks", "configuration": "/configuration?check=1",
    "order": "/order/campaign-cancel?name=spring-2026", "suspend": "/order/suspend", "lost": "/nothing",
}  # fmt: skip


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def login(page: Page, scene: Scene, key: str = "") -> None:
    page.goto(f"{scene.address}/login")
    page.fill("#key", key or scene.key)
    page.click("form.stack button")
    page.wait_for_selector("h1:text('Now')")


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
                tab.goto(f"{scene.address}/queue?domain=slow.example")
                message = tab.get_attribute("#rows td a", "href")
                pages = {**PAGES, "message": (message or "").removeprefix("/dashboard")}
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
            scene.command("suspend", "destination", "slow.example")
            time.sleep(4)
            shoot(scene, Path(sys.argv[1]), sys.argv[2:])
        finally:
            scene.stop()
    print(f"{sys.argv[1]}: {len(list(Path(sys.argv[1]).glob('*.png')))} screenshots")


if __name__ == "__main__":
    main()
