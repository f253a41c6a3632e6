"""Who may do what."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import HttpKey
from zonemta_py.web.documents.problem import RequestProblem
from zonemta_py.web.keys import ApiKeys, hashed, kept_token, new_key

GOOD = {"from": "a@b.test", "to": ["c@d.test"], "subject": "x", "text": "y"}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic YTpi", "Bearer " + "x" * 600, "zmta_shop"])
def test_without_a_key_nothing_is_done(shared_door: Any, header: str) -> None:
    """401, and how to show one; not even that a path is there is told."""
    with shared_door.client_with("") as client:
        for path in ("/v1/inject", "/v1/nothing", "/v1/campaigns"):
            answer = client.post(path, json=GOOD, headers={"authorization": header} if header else {})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="zonemta"')
            assert answer.headers["content-type"] == "application/problem+json"


def test_two_keys_at_once_are_none(shared_door: Any) -> None:
    """Who is meant would be a guess."""
    with shared_door.client_with("") as client:
        headers = [("authorization", f"Bearer {shared_door.token}"), ("authorization", "Bearer x")]
        assert client.get("/v1/campaigns", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/v1/campaigns", "campaigns or read"),
        ("GET", "/v1/campaigns/x", "campaigns or read"),
        ("PUT", "/v1/campaigns/x", "campaigns"),
        ("POST", "/v1/campaigns/x/pause", "campaigns"),
        ("GET", "/v1/suppressions", "suppressions or read"),
        ("GET", "/v1/suppressions/a@b.test", "suppressions or read"),
        ("DELETE", "/v1/suppressions/a@b.test", "suppressions"),
        ("POST", "/v1/suppressions", "suppressions"),
        ("POST", "/v1/forget", "suppressions"),
    ],
)
def test_a_key_may_do_what_it_has_a_right_to(shared_door: Any, method: str, path: str, right: str) -> None:
    """Each operation names the right that it takes."""
    with shared_door.client_with("zmta_shop") as client:
        answer = client.request(method, path, json={} if method != "GET" else None)
        assert (answer.status_code, f"right {right};" in answer.json()["detail"]) == (403, True), answer.text
        assert client.post("/v1/inject", json=GOOD).status_code == 200


def test_a_key_that_may_only_look_may_not_send(open_http: Any) -> None:
    """The right to inject is one of its own."""
    door = open_http(http={"keys": [{"name": "eyes", "hash": hashed("k"), "rights": ["read"]}]})
    with door.client_with("k") as client:
        assert client.get("/v1/campaigns").json() == []
        assert client.post("/v1/inject", json=GOOD).status_code == 403


def test_some_things_need_no_key(shared_door: Any) -> None:
    """Whether the queue answers, and what there is to ask."""
    with shared_door.client_with("") as client:
        assert client.get("/v1/health").json() == {"status": "ok"}
        assert client.get("/v1/openapi.json").json()["openapi"].startswith("3.1")


def test_the_token_file_is_this_users_alone_and_stays(tmp_path: Path) -> None:
    """The same at every start and reload; a new one if it was removed, changed, or others could read it."""
    (tmp_path / "http.token.new").write_text("left by a crash")
    path, known = tmp_path / "http.token", set[str]()

    def fresh() -> None:
        key = kept_token(tmp_path)
        assert key not in known
        assert kept_token(tmp_path) == key == path.read_text().strip()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        known.add(key)

    fresh()
    path.unlink()
    fresh()
    path.chmod(0o640)
    fresh()
    for wrong in ("", "zmta_short\n", f"{path.read_text().strip()}x\n", "\xff" * 48):
        path.write_text(wrong)
        fresh()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    fresh()
    (tmp_path / "elsewhere").unlink()
    assert [one.name for one in tmp_path.iterdir()] == ["http.token"]


def test_keys_are_kept_as_hashes() -> None:
    """256 bits of chance each; a holder is found by the hash, whatever case the scheme is written in."""
    key, other = new_key(), new_key()
    assert key != other
    assert len(key) >= 43
    keys = ApiKeys([HttpKey(name="shop", hash=hashed(key))], other)
    assert keys.holder(f"bearer {key}").name == "shop"
    assert keys.holder(f"Bearer {other}").rights >= {"inject", "campaigns", "suppressions", "read"}
    with pytest.raises(RequestProblem):
        keys.holder(f"Bearer {hashed(key)}")


def test_under_tls(open_http: Any, certificate: Path) -> None:
    """With a certificate the listener speaks HTTPS, and the Received field says so."""
    door = open_http(http={"certificate": certificate})
    assert door.client.post("/v1/inject", json=GOOD).status_code == 200
    (delivery,) = door.deliveries(1)
    assert b" with HTTPS id " in delivery.body
