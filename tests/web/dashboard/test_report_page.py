"""A campaign's report in the dashboard and by HTTP: for whoever may see the campaign, harmless whatever is in it."""

from collections.abc import Iterator

import httpx
import pytest

from tests.web.conftest import HttpDoor
from tests.web.dashboard.test_access import READER, login
from zonemta_py.plugin.host import Host
from zonemta_py.reports.folder import CampaignReport, ReportShelf
from zonemta_py.web.keys import hashed

HASHES = f"'sha256-{'a' * 43}=' 'sha256-{'b+/' * 14}c='"
PAGE = f'<meta http-equiv="Content-Security-Policy" content="script-src {HASHES}"><h1>spring</h1>'
KEYS = {"watch": {}, "other": {"tenants": ["other"]}, "own": {"tenants": ["shop"]}, "named": {"campaigns": ["spring"]}}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    """A campaign of the tenant shop, whose report is there; and what is known of one whose report could not be made."""
    tmp_path = tmp_path_factory.mktemp("reports")
    keys = [{"name": name, "hash": hashed(READER + name), "role": "read", **scope} for name, scope in KEYS.items()]
    sections = {"http": {"dashboard": True, "keys": keys}, "reports": {"folder": "pages"}}
    made = HttpDoor(tmp_path, Host.empty(), sections)
    template = {"from": "news@example.com", "subject": "Hi", "text": "Hi"}
    for name in ("spring", "sad"):
        content = {"sender": "news@example.com", "tenant": "shop", "template": template}
        assert made.client.put(f"/v1/campaigns/{name}", json=content).status_code == 200
    shelf, ms = ReportShelf(made.config), made.client.get("/v1/campaigns/spring").json()["created_ms"]
    row = CampaignReport("spring", ms, "shop", made=1, made_ms=ms + 9, place=str(tmp_path / "pages"))
    shelf.begin(0)
    shelf.put(row, PAGE.encode())
    shelf.write(CampaignReport("spring", ms, "shop", made=1, made_ms=ms + 9, file=row.page_name))
    ms = made.client.get("/v1/campaigns/sad").json()["created_ms"]
    shelf.write(CampaignReport("sad", ms, "shop", trouble="Spark needs <b>Java</b>"))
    yield made
    made.stop()


def test_the_policy_is_for_this_page_alone(door: HttpDoor) -> None:
    """Its own scripts run, by their hashes; it asks for nothing, and is of no site."""
    client, _ = login(door, READER + "watch")
    for answer in (client.get("/dashboard/campaigns/spring/report"), door.client.get("/v1/campaigns/spring/report")):
        assert (answer.status_code, answer.text) == (200, PAGE)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"] == (
            f"default-src 'none'; script-src {HASHES}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none';"
            " form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts allow-downloads"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_the_campaigns_page_leads_to_it(door: HttpDoor) -> None:
    """Or says why there is none."""
    client, _ = login(door, READER + "watch")
    assert 'href="/dashboard/campaigns/spring/report">made ' in client.get("/dashboard/campaigns/spring").text
    assert "not made yet: Spark needs &lt;b&gt;Java&lt;/b&gt;" in client.get("/dashboard/campaigns/sad").text
    row = door.client.get("/v1/campaigns/spring").json()
    assert row["report_ms"] == row["created_ms"] + 9
    assert door.client.get("/v1/campaigns/sad").json()["report_ms"] == 0


@pytest.mark.parametrize(("key", "status"), [("watch", 200), ("own", 200), ("named", 200), ("other", 404)])
def test_scopes_hold_also_when_the_queue_has_forgotten_it(door: HttpDoor, key: str, status: int) -> None:
    headers = {"authorization": f"Bearer {READER}{key}"}
    with httpx.Client(base_url=str(door.client.base_url), headers=headers) as client:
        assert client.get("/v1/campaigns/spring/report").status_code == status
        none = client.get("/v1/campaigns/nothing/report")
        assert none.status_code == 404
    if status == 404:
        hidden = client_text(door, key, "spring").replace("spring", "nothing")
        assert hidden == client_text(door, key, "nothing"), "it is as if there were none"


def client_text(door: HttpDoor, key: str, name: str) -> str:
    headers = {"authorization": f"Bearer {READER}{key}"}
    with httpx.Client(base_url=str(door.client.base_url), headers=headers) as client:
        return str(client.get(f"/v1/campaigns/{name}/report").json()["detail"])


def test_none_is_a_sentence(door: HttpDoor) -> None:
    client, _ = login(door, READER + "watch")
    answer = client.get("/dashboard/campaigns/sad/report")
    assert answer.status_code == 404
    assert "here is no report on the campaign &#39;sad&#39; (Spark needs &lt;b&gt;Java" in answer.text
    assert client.get("/dashboard/campaigns/..%2F..%2Fetc/report").status_code == 404
    detail = door.client.get("/v1/campaigns/nothing/report").json()["detail"]
    assert "one is made when it has ended, or by `zonemta campaign report`" in detail
