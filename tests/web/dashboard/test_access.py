"""Who may come in, what a page may load, and which forms are believed."""

import html
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.web.conftest import HttpDoor
from zonemta_py.plugin.host import Host
from zonemta_py.web.keys import hashed

READER = "zmta_reader"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    keys = [{"name": "watch", "hash": hashed(READER), "role": "read"}, {"name": "shop", "hash": hashed("zmta_x")},
            {"name": "acme", "hash": hashed("zmta_acme"), "role": "admin", "tenants": ["acme"]}]  # fmt: skip
    made = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {"http": {"dashboard": True, "keys": keys}})
    yield made
    made.stop()


def login(door: HttpDoor, key: str, **headers: str) -> tuple[httpx.Client, httpx.Response]:
    client = httpx.Client(base_url=f"http://127.0.0.1:{door.port}", timeout=60)
    return client, client.post("/dashboard/login", data={"key": key}, headers=headers)


def csrf(client: httpx.Client) -> str:
    return client.get("/dashboard").text.partition('name="csrf" value="')[2].partition('"')[0]


def test_it_is_off_unless_it_is_wanted(open_door: Callable[..., HttpDoor]) -> None:
    """Then its paths are like any others: nothing without a key."""
    door = open_door()
    assert httpx.get(f"http://127.0.0.1:{door.port}/dashboard").status_code == 401
    assert door.client.get("/dashboard").status_code == 404


@pytest.fixture
def open_door(tmp_path: Any) -> Iterator[Callable[..., HttpDoor]]:
    opened: list[HttpDoor] = []

    def start(**sections: Any) -> HttpDoor:
        opened.append(HttpDoor(tmp_path, Host.empty(), sections))
        return opened[-1]

    yield start
    for door in opened:
        door.stop()


def test_nothing_is_shown_without_a_login(door: HttpDoor) -> None:
    """Each page leads to the form, and the form back to the page; what loads parts is sent there too."""
    with httpx.Client(base_url=f"http://127.0.0.1:{door.port}") as nobody:
        for path in ("", "/queue?state=held", "/live", "/order/suspend", "/message/0123456789abcdef", "/nothing"):
            answer = nobody.get(f"/dashboard{path}")
            assert (answer.status_code, answer.headers["location"].startswith("/dashboard/login?next=")) == (303, True)
        part = nobody.get("/dashboard/queue", headers={"hx-request": "true"})
        assert (part.status_code, part.text) == (200, "")
        assert part.headers["hx-redirect"].startswith("/dashboard/login")
        assert nobody.post("/dashboard/order/suspend", data={"kind": "zone", "name": "default"}).status_code == 303
    assert door.client.get("/v1/campaigns").status_code == 200


def test_the_policy_is_on_every_answer(door: HttpDoor) -> None:
    """Pages, files, redirects, mistakes."""
    client, answer = login(door, door.token)
    paths = ("", "/queue", "/nothing", "/static/frame.css", "/static/nothing.js", "/order/nothing", "/login")
    for one in (answer, *(client.get(f"/dashboard{path}") for path in paths)):
        policy = one.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert one.headers["x-frame-options"] == "DENY"
        assert one.headers["referrer-policy"] == "no-referrer"
        assert one.headers["x-content-type-options"] == "nosniff"
    assert client.get("/dashboard/static/frame.css").headers["etag"]


def test_a_cookie_is_of_one_key_and_can_be_given_back(door: HttpDoor) -> None:
    """HttpOnly, of the same site only; a changed one is worth nothing, nor is one after the logout."""
    client, answer = login(door, READER)
    said = answer.headers["set-cookie"].lower()
    for attribute in ("httponly", "samesite=strict", "path=/dashboard", "max-age="):
        assert attribute in said
    assert "secure" not in said
    _, proxied = login(door, READER, **{"x-forwarded-proto": "https"})
    assert "secure" in proxied.headers["set-cookie"].lower()
    cookie = client.cookies["zonemta"]
    assert READER not in cookie
    shown = client.get("/dashboard")
    for _ in range(3):  # on a busy machine the queue may need longer than a page waits
        shown = shown if shown.status_code != 503 else client.get("/dashboard")
    assert shown.status_code == 200, shown.text
    for wrong in (
        cookie[:-1] + ("0" if cookie[-1] != "0" else "1"),
        "9" + cookie,
        cookie[:-1],
        "../http.token",
        "é",
        "x" * 300,
    ):
        headers = {"cookie": f"zonemta={wrong}".encode()}
        assert httpx.get(f"http://127.0.0.1:{door.port}/dashboard", headers=headers).status_code == 303
    assert client.post("/dashboard/logout", data={"csrf": csrf(client)}).status_code == 303
    headers = {"cookie": f"zonemta={cookie}".encode()}
    assert httpx.get(f"http://127.0.0.1:{door.port}/dashboard", headers=headers).status_code == 303


def test_a_session_outlives_a_restart_but_not_its_logout(open_door: Callable[..., HttpDoor]) -> None:
    """The copy of a cookie that was given back stays worthless; one that was not goes on, with the same token file."""
    keys = [{"name": "watch", "hash": hashed(READER), "role": "read"}]
    door = open_door(http={"dashboard": True, "keys": keys})
    ours, gone, other = (login(door, key)[0] for key in (door.token, door.token, READER))
    cookies = [one.cookies["zonemta"] for one in (ours, gone, other)]
    assert gone.post("/dashboard/logout", data={"csrf": csrf(gone)}).status_code == 303
    assert len([*(door.folder / "dashboard").iterdir()]) == 2
    door.stop()
    again = open_door(http={"dashboard": True, "keys": []})
    assert again.token == door.token
    seen = [
        httpx.get(f"http://127.0.0.1:{again.port}/dashboard", headers={"cookie": f"zonemta={cookie}"}).status_code
        for cookie in cookies
    ]
    assert seen == [200, 303, 303], "the third one's key is not in the configuration any more"


def test_only_forms_of_our_pages_are_believed(door: HttpDoor) -> None:
    """Another site's, one without the token, one with another session's token."""
    client, _ = login(door, door.token)
    other, _ = login(door, door.token)
    form = {"kind": "zone", "name": "default", "csrf": csrf(client)}
    refused: list[tuple[dict[str, str], dict[str, str]]] = [
        ({**form, "csrf": ""}, {}), ({**form, "csrf": csrf(other)}, {}), (form, {"origin": "https://evil.test"}),
        (form, {"origin": "null"}), (form, {"sec-fetch-site": "cross-site"}), (form, {"sec-fetch-site": "same-site"}),
    ]  # fmt: skip
    for data, headers in refused:
        assert client.post("/dashboard/order/suspend", data=data, headers=headers).status_code == 403
    assert door.do(lambda queue: queue.ask("standing")) == []
    assert login(door, door.token, **{"sec-fetch-site": "cross-site"})[1].status_code == 403
    done = client.post("/dashboard/order/suspend", data=form, headers={"origin": f"http://127.0.0.1:{door.port}"})
    assert done.status_code == 303
    assert [row["name"] for row in door.do(lambda queue: queue.ask("standing"))] == ["default"]


def test_where_one_comes_from_is_a_page_of_ours(door: HttpDoor) -> None:
    """No order and no login leads anywhere else."""
    client, _ = login(door, door.token)
    for there in ("https://evil.test/", "//evil.test/dashboard", "/\\evil.test", "/dashboard/../x\r\nset-cookie: a=b",
                  "/v1", "javascript:alert(1)", "/dashboard@evil.test", "/dashboard/logout"):  # fmt: skip
        form = {"kind": "zone", "name": "default", "csrf": csrf(client), "back": there}
        client.post("/dashboard/order/suspend", data=form)
        done = client.post("/dashboard/order/resume", data=form)
        assert done.headers["location"].startswith("/dashboard?done="), there
        into = client.post("/dashboard/login", data={"key": door.token, "next": there})
        assert into.headers["location"] == "/dashboard", there


def test_a_key_that_may_read_sees_all_and_orders_nothing(door: HttpDoor) -> None:
    """One that may only hand in mail is told which right it lacks."""
    client, answer = login(door, READER)
    assert answer.status_code == 303
    shown = client.get("/dashboard/suspensions")
    assert shown.status_code == 200
    assert "/order/" not in shown.text
    form = {"kind": "zone", "name": "default", "csrf": csrf(client)}
    assert client.post("/dashboard/order/suspend", data=form).status_code == 403
    assert client.get("/dashboard/order/suspend").status_code == 403
    assert "has a scope" in login(door, "zmta_acme")[1].text
    _, refused = login(door, "zmta_x")
    assert refused.status_code == 403
    assert "the role read" in refused.text


def test_keys_cannot_be_tried_out(open_door: Callable[..., HttpDoor]) -> None:
    """After ten wrong ones of a client each further one is told to wait; a right one is let in, since others may have
    the same address."""
    door = open_door(http={"dashboard": True})
    for _ in range(10):
        assert login(door, "zmta_wrong")[1].status_code == 403
    answer = login(door, "zmta_wrong")[1]
    assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)
    assert "set-cookie" not in answer.headers
    assert "set-cookie" in login(door, door.token)[1].headers


def test_a_mistake_is_a_sentence(door: HttpDoor) -> None:
    client, _ = login(door, door.token)
    token = csrf(client)
    for path, data, status, said in (
        ("order/suspend", {"kind": "zone", "name": "<b>none</b>", "csrf": token}, 422, "there is no zone"),
        ("order/suspend", {"kind": "zone", "name": "default", "for": "soon", "csrf": token}, 422, "length of time"),
        ("order/nothing", {"csrf": token}, 404, "there is no order"),
        ("order/suspend", {"csrf": token, "kind": "x" * 70_000}, 413, "longer than"),
    ):  # fmt: skip
        answer = client.post(f"/dashboard/{path}", data=data)
        assert (answer.status_code, said.lower() in answer.text.lower()) == (status, True), answer.text[-600:]
        assert "<b>none" not in answer.text
    assert "no length of time" in client.get("/dashboard/queue?older=soon").text
    assert client.get("/dashboard/message/nonsense").status_code == 404


def pages(client: httpx.Client, path: str, row: str) -> list[list[str]]:
    """What the rows of each page have that fits, from page to page."""
    found, following = list[list[str]](), f"/dashboard/{path}"
    while following:
        text = client.get(following).text
        assert text.count("Next page") <= 1, text
        found.append(re.findall(row, text))
        link = re.search(r'href="([^"]+)">Next page', text)
        following = html.unescape(link[1]) if link and len(found) < 9 else ""
    return found


def test_lists_that_are_long_come_in_pages(door: HttpDoor) -> None:
    """Each row is on one page: of suspensions, of tasks, of destinations."""
    client, _ = login(door, door.token)
    mail = {"from": "a@b.test", "subject": "s", "text": "x", "headers": {"x-deliver-after": "86400"}}
    for number in range(60):
        own = {"to": [f"ann@d{number:02}.test"], "tenant": f"t{number:02}"}
        assert door.client.post("/v1/inject", json=mail | own).status_code == 200
        answer = door.client.put(f"/v1/suspensions/tenant/t{number:02}", json={})
        assert answer.status_code == 200, answer.text
        task = {"verb": "flush", "where": {"domain": f"e{number:02}.test"}, "preview": number >= 57}
        assert door.client.post("/v1/tasks", json=task).status_code == 200
    for path, row in (("suspensions", r"what=(t\d\d)\b"), ("destinations", r"what=(d\d\d)\.test"),
                      ("tasks", r">[^<]*\b(e\d\d)\.test")):  # fmt: skip
        found = pages(client, path, row)
        assert [len(one) for one in found] == [50, 10], path
        assert len({one for page in found for one in page}) == 60, path
    rows = door.client.get("/v1/tasks?limit=2").json()
    more = door.client.get("/v1/tasks", params={"limit": 2, "after": rows[-1]["id"]}).json()
    assert [row["where"]["domain"] for row in rows + more] == [[f"e{number}.test"] for number in (59, 58, 57, 56)]


def test_what_is_vendored_is_what_its_list_says() -> None:
    """Names and SHA-256 of static/vendor/VENDORED.md, of all files there."""
    import hashlib

    from zonemta_py.web.dashboard.app import FOLDER

    listed = {
        row.split("|")[1].strip(" `"): row.split("|")[4].strip(" `")
        for row in (FOLDER / "vendor" / "VENDORED.md").read_text().splitlines() if row.startswith("| `")
    }  # fmt: skip
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / "vendor").iterdir()}
    del files["VENDORED.md"]
    assert files == listed


def test_a_slow_disk_holds_up_nobody_but_who_logs_in(door: HttpDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is on stable storage, and so is its end; other requests are answered meanwhile."""
    synced = set[str]()

    def sync(file: int, real: Callable[[int], None] = os.fsync) -> None:
        synced.add(threading.current_thread().name)
        real(file)

    monkeypatch.setattr(os, "fsync", sync)
    client, _ = login(door, READER)
    assert client.post("/dashboard/logout", data={"csrf": csrf(client)}).status_code == 303
    assert synced
    assert door.thread.name not in synced
