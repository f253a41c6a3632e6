"""Opens and clicks at the listener: answered at once, told together, and no way to anywhere else."""

from __future__ import annotations

import time
from typing import Any

from tests.web.links.conftest import ID, path, today
from zonemta_py.queue.queue import LocalQueue

NOWHERE = (
    "javascript:alert(1)",
    "//evil.example",
    "https://x.example/\r\nSet-Cookie: a=1",
    "https://x.example/\u4e2d",
)
TARGET = "https://shop.example/spring?a=1&b=2"


def told(door: Any, count: int) -> list[tuple[str, str, str]]:
    """Kind, recipient and target of what came back about the message, once there is so much."""

    async def of(queue: LocalQueue) -> Any:
        return queue.feedback_register.of(ID)

    end = time.monotonic() + 60
    while len(rows := door.do(of)) < count:
        assert time.monotonic() < end, rows
        time.sleep(0.02)
    return sorted((row["kind"], row["recipient"], row["text"]) for row in rows)


def test_a_click_leads_on_and_is_told_once(open_links: Any) -> None:
    """With a redirect that nobody keeps; a look ahead, HEAD, and the same again count nothing."""
    door = open_links()
    click, picture = path(purpose="click", target=TARGET), path(purpose="open")
    for _ in range(3):
        answer = door.client.get(click)
        assert (answer.status_code, answer.headers["location"]) == (302, TARGET)
        assert answer.headers["cache-control"] == "no-store"
        answer = door.client.get(picture)
        assert (answer.headers["content-type"], answer.content[:3]) == ("image/gif", b"GIF")
    other = path(purpose="click", target="https://shop.example/other", recipient="bob@example.com")
    assert door.client.head(other).status_code == 302
    assert door.client.get(other, headers={"sec-purpose": "prefetch"}).status_code == 302
    assert told(door, 2) == [("click", "ann@example.com", TARGET), ("open", "ann@example.com", "")]


def test_no_open_redirect(open_links: Any) -> None:
    """Only to what is signed, for this purpose; an old link still leads on, but tells nothing."""
    door = open_links()
    token = path(purpose="click", target=TARGET).removeprefix("/c/")
    for wrong in ("/c/https://evil.example", "/c/?url=https://evil.example", f"/c/{token[:-4]}AAAA", f"/o/{token}",
                  path(purpose="click", target="https://evil.example", secret="not the secret"),
                  *(path(purpose="click", target=one) for one in NOWHERE)):  # fmt: skip
        answer = door.client.get(wrong)
        assert (answer.status_code, "location" in answer.headers) == (403, False)
    assert door.client.post(f"/c/{token}").status_code == 405
    old = path(purpose="click", target=TARGET, day=today() - 400)
    assert door.client.get(old).headers["location"] == TARGET
    assert door.client.get(path(purpose="open")).status_code == 200
    assert told(door, 1) == [("open", "ann@example.com", "")]
