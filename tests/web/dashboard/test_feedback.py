"""The pages about what came back: a list by filters, and one, with what nobody understood as harmless text."""

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from tests.mail.reports import makers as reports
from tests.web.conftest import HttpDoor
from tests.web.dashboard.test_access import READER, login
from zonemta_py.mail.reports.letters import read_report
from zonemta_py.plugin.host import Host
from zonemta_py.queue.api import Feedback
from zonemta_py.web.keys import hashed

HOSTILE = "'\"><img src=x onerror=alert(1)></script><script>alert(2)</script>{{ 7*7 }}"
TEXTS = ("message_id", "campaign", "tenant", "zone", "enhanced", "text", "reporter", "form", "scope")
RAW = b"Subject: hm\r\n\r\n<script>window.hacked=1</script> \x1b[31m\r\n"


@pytest.fixture
def door(tmp_path: object) -> Iterator[HttpDoor]:
    keys = [{"name": "watch", "hash": hashed(READER), "role": "read"}]
    made = HttpDoor(tmp_path, Host.empty(), {"http": {"dashboard": True, "keys": keys}})  # type: ignore[arg-type]
    rows = [
        Feedback("other", raw=RAW, text="<b>hm</b>", via="smtp"),
        Feedback("bounce", f"{HOSTILE}@x.test", code=550, **dict.fromkeys(TEXTS, HOSTILE)),
        Feedback("complaint", "ann@x.test", "18bcfe5680000001", campaign="spring", genuine="token", via="smtp"),
    ]
    asyncio.run_coroutine_threadsafe(made.queue.feedback(rows), made.loop).result(30)
    asyncio.run_coroutine_threadsafe(made.queue.core.disk.settled(30), made.loop).result(30)
    yield made
    made.stop()


def shown(client: httpx.Client, path: str) -> str:
    answer = client.get(f"/dashboard{path}")
    assert answer.status_code == 200, answer.text
    return answer.text


def test_it_is_listed_by_filters(door: HttpDoor) -> None:
    """Whoever may read sees it; nothing that it says is taken for a part of the page."""
    client, _ = login(door, READER)
    whole = shown(client, "/feedback")
    assert "ann@x.test" in whole
    assert "&lt;b&gt;hm" in whole
    assert "<b>hm" not in whole
    assert "ann@x.test" not in shown(client, "/feedback?unread=1")
    for query in ("kind=complaint", "recipient=ANN@x.test", "campaign=spring", "message=18bcfe5680000001"):
        found = shown(client, f"/feedback?{query}")
        assert "ann@x.test" in found
        assert "&lt;b&gt;hm" not in found
    assert "there is no kind of feedback" in shown(client, "/feedback?kind=slander")
    assert client.get("/dashboard/feedback/999").status_code == 404


def test_hostile_texts_stay_texts(door: HttpDoor) -> None:
    """Whatever strangers write down, and whatever a link to the page asks for."""
    client, _ = login(door, READER)
    (row,) = [one for one in door.client.get("/v1/feedback").json()["rows"] if one["kind"] == "bounce"]
    asked = "&".join(f"{name}={quote(HOSTILE)}" for name in ("kind", "recipient", "campaign", "message", "after"))
    for page in ("/feedback?kind=bounce", f"/feedback/{row['seq']}", f"/feedback?{asked}"):
        found = shown(client, page)
        assert "alert(1)" in found, page
        assert "<img src" not in found, page
        assert "<script>alert" not in found, page
        assert "7*7" in found, page
        assert not re.search(r"""value="[^"]*'"><""", found), page


def test_the_message_itself_is_shown_as_text_and_to_an_admin_alone(door: HttpDoor) -> None:
    """Others see what was recorded of it."""
    (row,) = door.client.get("/v1/feedback", params={"kind": "other"}).json()["rows"]
    client, _ = login(door, READER)
    assert "window.hacked" not in shown(client, f"/feedback/{row['seq']}")
    client, _ = login(door, door.token)
    found = shown(client, f"/feedback/{row['seq']}")
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in found
    assert "<script>window" not in found
    assert "Unproven" in found


def test_reports_on_our_mail(door: HttpDoor) -> None:
    """Summed up; what our own sources fail at stands first; nothing that they say is taken for a part of the page."""
    client, _ = login(door, READER)
    assert "No reports about these days" in shown(client, "/reports")
    begin = door.queue.core.clock.ms() // 86_400_000 * 86_400 - 86_400
    rows = reports.row("192.0.2.9", 90), reports.row("192.0.2.1", 7, "fail", "fail")
    text = reports.report("&lt;b&gt;Provider", "1", *rows, begin=begin)
    found = read_report(text.encode(), reports.is_ours)
    assert found is not None
    row = Feedback(found.kind, genuine="key", name=found.name, report=found.said)
    asyncio.run_coroutine_threadsafe(door.queue.feedback([row]), door.loop).result(30)
    page = shown(client, "/reports?days=3&domain=EXAMPLE.com")
    assert "192.0.2.1 for example.com: 7 of 7 messages" in page
    assert "92.7 %" in page
    assert "&lt;b&gt;Provider" in page
    assert "Provider" not in shown(client, "/reports?domain=other.test")
    assert "days is 0; give 1 to 400" in shown(client, "/reports?days=x")
