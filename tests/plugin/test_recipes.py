"""The recipes of docs/PLUGINS.md do what they say, and so do the helpers for tests of plugins."""

from __future__ import annotations

import base64
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Delivery, Reject, Routing
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import load, received

PAGE = (Path(__file__).parents[2] / "docs" / "PLUGINS.md").read_text()
Recipe = Callable[..., Host]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """recipe(words) loads the block of the page that has these words."""

    def make(words: str, options: dict[str, Any] | None = None, zones: tuple[str, ...] = ("default",)) -> Host:
        (text,) = [one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if words in one]
        (tmp_path / "recipe.py").write_text(text)
        return load(tmp_path / "recipe.py", options, zones)

    return make


async def test_a_field_for_each_recipient(recipe: Recipe) -> None:
    headers = Headers.parse(b"Subject: x\r\nX-Recipient: nobody\r\n")
    delivery = Delivery(1, "0", "default", "b.test", "ann@a.test", [Recipient("bob@b.test")], 100, 1)
    await recipe("X-Recipient").call("sender_headers", delivery=delivery, headers=headers)
    assert headers.all("x-recipient") == ["bob@b.test"]


@pytest.mark.parametrize("encoding", ["7bit", "base64"])
async def test_links_in_html(recipe: Recipe, encoding: str) -> None:
    """However large the part is, and whatever it is encoded in."""
    html = b"<p>" + b"a" * 70_000 + b'<a href="http://a.test">a</a></p>\r\n'
    wire = base64.encodebytes(html).replace(b"\n", b"\r\n") if encoding == "base64" else html
    head = f"Content-Type: text/html\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode()
    stored = (await received(recipe("message_rewrite"), head + wire)).partition(b"\r\n\r\n")[2]
    assert (base64.b64decode(stored) if encoding == "base64" else stored) == html.replace(b"http://", b"https://")
    text = b"Subject: x\r\n\r\n" + html
    assert await received(recipe("message_rewrite"), text) == text


async def test_zones_from_sqlite(recipe: Recipe, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "routes.sqlite") as routes:
        routes.execute("CREATE TABLE routes (domain TEXT PRIMARY KEY, zone TEXT)")
        routes.execute("INSERT INTO routes VALUES ('b.test', 'bulk')")
    host = recipe("sqlite3", {"file": str(tmp_path / "routes.sqlite")}, ("default", "bulk"))
    for address, zone in (("bob@b.test", "bulk"), ("eve@c.test", "default")):
        routing = Routing(address, "default")
        await host.call("queue_route", envelope=Envelope("ann@a.test", []), routing=routing)
        assert routing.zone == zone


async def test_what_a_plugin_says_reaches_its_test(tmp_path: Path) -> None:
    """A verdict of a hook that sees the message, and a wrong option."""
    (tmp_path / "no.py").write_text(
        "from zonemta_py.plugin import Reject\n"
        "async def message_headers(envelope, headers):\n"
        "    if headers.get('subject') == 'spam':\n"
        "        raise Reject(550, '5.7.1 no spam')\n"
    )
    assert await received(load(tmp_path / "no.py"), b"Subject: ham\r\n\r\nx") == b"Subject: ham\r\n\r\nx"
    with pytest.raises(Reject, match="no spam"):
        await received(load(tmp_path / "no.py"), b"Subject: spam\r\n\r\nx")
    with pytest.raises(PluginError, match="takes no options"):
        load(tmp_path / "no.py", {"strict": True})
