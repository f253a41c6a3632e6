"""A new user's first five minutes: the commands of docs/DASHBOARD.md, then the browser."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_readme import free_ports
from tests.web.dashboard.conftest import CHROMIUM, FLAGS

PAPER = Path(__file__).parents[3] / "docs" / "DASHBOARD.md"
PATIENCE_S = 60
PATIENCE_MS = 1000 * PATIENCE_S


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address and the key, by the commands that the page gives, on free ports, and without the installation."""
    smtp, sink, http = free_ports(3)
    [block] = [text for text in re.findall(r"```sh\n(.*?)```", PAPER.read_text(), re.S) if "zonemta init first" in text]
    first, *lines = block.splitlines()
    assert first.startswith("scripts/prepare")
    script = "\n".join(lines).replace("127.0.0.1:2526", f"127.0.0.1:{sink}")
    ports = f"sed -i 's/^port = 2525/port = {smtp}/; s/^dashboard = true/&\\nport = {http}/' first/zonemta.toml"
    script = script.replace("zonemta sink", f"{ports}\nzonemta sink", 1)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    output = (tmp_path / "said").open("w")
    shell = subprocess.Popen(
        ["bash", "-euc", f"{script}\necho\nwait"], cwd=tmp_path, env={**os.environ, "PATH": path},
        stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{http}/dashboard", _key(tmp_path / "said", shell)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)  # its own group
        shell.wait(PATIENCE_S)
        output.close()


def _key(said: Path, shell: subprocess.Popen[bytes]) -> str:
    """What `cat` prints at the end. The servers of the shell go on writing, so that there is no end of file."""
    until = time.monotonic() + 2 * PATIENCE_S
    while time.monotonic() < until and shell.poll() is None:
        if found := re.search(r"^(zmta_\S+)$", said.read_text(), re.M):
            return found[1]
        time.sleep(0.1)
    pytest.fail(said.read_text())


def test_from_nothing_to_a_message_in_the_browser(dashboard: tuple[str, str]) -> None:
    """Log in, type the address, read the story, open the message."""
    if CHROMIUM is None:
        pytest.skip("NOT TESTED: there is no Chromium to look at the dashboard with")
    from playwright.sync_api import sync_playwright

    address, key = dashboard
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = browser.new_page()
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto(address)
        tab.fill("#key", key)
        tab.click("form.stack button")
        tab.wait_for_selector("h1:text-is('Now')")
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            tab.fill("#find", "you@example.com")
            tab.press("#find", "Enter")
            tab.wait_for_selector("h1:text-is('Why it waits')")
            if "delivered" in tab.inner_text("main"):
                break
        story = tab.inner_text(".story.all")
        assert "accepted" in story
        assert "delivered" in story
        assert "Nothing waits for this address." in tab.inner_text("main")
        tab.click(".story.all a")
        tab.wait_for_selector("h1:has-text('Message')")
        assert "delivered" in tab.inner_text(".story.all")
        browser.close()
