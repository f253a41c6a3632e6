"""`api.http`: what is no route, what a request is checked for, and routes of plugins in a real server."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.http import STATUSES, HttpAnswer, HttpError
from zonemta_py.plugin.loading import PluginError
from zonemta_py.plugin.routes import NoSuchRoute
from zonemta_py.plugin.testing import Mta, running
from zonemta_py.web.documents.problem import of_route
from zonemta_py.web.keys import hashed

GOOD = "async def _f(name: str = ''): ...\n"


@pytest.mark.parametrize(
    ("code", "call", "sentence"),
    [
        ("def _f(): ...", "'GET', '/x', _f, role='read'", "the function of GET /x must be an async def"),
        ("", "'GET', '/x', None, role='read'", "must be an async def"),
        (GOOD, "'FETCH', '/x', _f, role='read'", "'FETCH' is not a method of a route; there are GET, POST"),
        (GOOD, "'get', '/x', _f, role='read'", "'get' is not a method"),
        (GOOD, "'GET', '/x', _f, role='boss'", "'boss' is not who may call a route; there are inject, read"),
        (GOOD, "'GET', '/x', _f, role=None", "None is not who may call a route"),
        (GOOD, "'GET', '/x', _f", "missing 1 required keyword-only argument: 'role'"),
        *(
            (GOOD, f"'GET', {path!r}, _f, role='read'", "is not the path of a route")
            for path in ("", "x", "/x/", "//", "/../x", "/.", "/a b", "/x?y", "/{Name}", "/x{name}", "/" + "x" * 300, 5)
        ),
        (GOOD, "'GET', '/{name}/{name}', _f, role='read'", "has a name twice"),
        (GOOD, "'GET', '/{body}', _f, role='read'", "cannot have {body}"),
        (GOOD, "'GET', '/{other}', _f, role='read'", "does not take 'other', which is in its path"),
        (GOOD, "'GET', '/x', _f, role='read', summary='a\\nb'", "must be a line of up to 200 characters"),
        ("async def _f(body: dict): ...", "'GET', '/x', _f, role='read'", "GET /x has no body"),
        ("async def _f(body): ...", "'POST', '/x', _f, role='read'", "must be annotated as a pydantic"),
        ("async def _f(body: int): ...", "'POST', '/x', _f, role='read'", "must be annotated as"),
        ("async def _f(*names): ...", "'GET', '/x', _f, role='read'", "takes 'names' by position"),
        ("async def _f(a, /): ...", "'GET', '/x', _f, role='read'", "takes 'a' by position"),
        ("async def _f(a: 'Nothing'): ...", "'GET', '/x', _f, role='read'", "annotations of the function of GET /x"),
        ("async def _f(a: object()): ...", "'GET', '/x', _f, role='read'", "GET /x"),
        ("import socket\nasync def _f(a: socket.socket): ...", "'GET', '/x', _f, role='read'", "is of no use"),
        ("import socket\nasync def _f() -> socket.socket: ...", "'GET', '/x', _f, role='read'", "'return'"),
    ],
)  # fmt: skip
def test_what_is_no_route(make_host: Any, code: str, call: str, sentence: str) -> None:
    """A start refuses it, with plugin, file and line."""
    with pytest.raises(PluginError, match=r"^plugin p1, .*p1.py:\d+: setup raised") as raised:
        make_host(f"{code}\n\ndef setup(api):\n    api.http({call})\n")
    assert sentence in str(raised.value)


async def _nothing(name: str = "") -> None: ...


async def _other(other: str) -> None: ...


def test_a_route_is_registered_once_and_in_time(make_host: Any) -> None:
    api = PluginApi("p")
    api.http("GET", "/a/{name}", _nothing, role="read")
    api.http("DELETE", "/a/{name}", _nothing, role="admin")
    with pytest.raises(ValueError, match=r"the route GET /a/\{other\} is registered twice"):
        api.http("GET", "/a/{other}", _other, role="read")
    api.provide(is_set_up=True)
    with pytest.raises(RuntimeError, match="a route is registered in `setup`"):
        api.http("GET", "/b", _nothing, role="read")
    with pytest.raises(RuntimeError, match="a command is registered in `setup`"):
        api.command("b", print)
    with pytest.raises(ValueError, match="a plugin named 'a b' can have no routes"):
        PluginApi("a b").http("GET", "/b", _nothing, role="read")
    many = PluginApi("p")
    for number in range(100):
        many.http("GET", f"/{number}", _nothing, role="read")
    with pytest.raises(ValueError, match="a plugin may have 100 routes"):
        many.http("GET", "/one-more", _nothing, role="read")


@pytest.mark.parametrize("status", sorted(STATUSES))
def test_a_refusals_title_says_no_more_than_the_route(status: int) -> None:
    """It is the plugin that refuses: not a key that lacks something, or has too many requests."""
    problem = of_route(status, "not now", 3)
    document = json.loads(problem.document("/x"))
    assert (document["status"], document["detail"]) == (status, "not now")
    assert "key" not in document["title"].lower()
    assert "read" not in document["title"]
    assert problem.headers == {"retry-after": "3"}


def test_what_names_more_of_a_path_counts_first(make_host: Any) -> None:
    host = make_host(
        """
        async def _any(name): ...
        async def _new(): ...
        def setup(api):
            api.http("GET", "/lists/{name}", _any, role="read")
            api.http("GET", "/lists/new", _new, role="anyone")
            api.http("PUT", "/lists/{name}", _any, role="read")
            api.http("GET", "/", _new, role="read")
        """
    )
    found = host.routes.find
    assert str(found("GET", "/v1/plugins/p1/lists/new")[0].route) == "GET /lists/new"
    assert found("GET", "/v1/plugins/p1/lists/old")[1] == {"name": "old"}
    assert str(found("PUT", "/v1/plugins/p1/lists/new")[0].route) == "PUT /lists/{name}"
    assert str(found("GET", "/v1/plugins/p1")[0].route) == "GET /"
    assert [host.routes.for_anyone("GET", f"/v1/plugins/p1/lists/{one}") for one in ("new", "old")] == [True, False]
    with pytest.raises(NoSuchRoute) as raised:
        found("DELETE", "/v1/plugins/p1/lists/new")
    assert raised.value.others == ["GET", "PUT"]
    for path in (
        "/v1/plugins/p2/lists/new",
        "/v1/plugins/p1/lists/a/b",
        "/v1/plugins/p1/",
        "/v1/queue",
        "/v1/plugins/",
    ):
        with pytest.raises(NoSuchRoute) as raised:
            found("GET", path)
        assert not raised.value.others


@pytest.mark.parametrize(
    "made",
    [
        lambda: HttpError(500, "x"), lambda: HttpError(200, "x"), lambda: HttpError(404, ""),
        lambda: HttpError(404, None),  # type: ignore[arg-type]
        lambda: HttpAnswer(5), lambda: HttpAnswer(b"", status=500), lambda: HttpAnswer(b"", "a\r\nb"),  # type: ignore[arg-type]
        lambda: HttpAnswer(b"", headers={"X": "a\r\nY: b"}), lambda: HttpAnswer(b"", headers={"a b": "c"}),
        lambda: HttpAnswer(b"", headers={"Content-Length": "5"}),
    ],
)  # fmt: skip
def test_what_is_no_answer(made: Any) -> None:
    with pytest.raises(ValueError, match=r"HttpError|HttpAnswer"):
        made()


PLUGIN = '''
import asyncio, os, time
from typing import Annotated

from pydantic import BaseModel, Field

from zonemta_py.plugin import HttpAnswer, HttpError, HttpRequest, PluginApi


class Person(BaseModel):
    address: str
    score: Annotated[int, Field(ge=0)] = 0


class Members(BaseModel):
    name: str
    people: list[Person]


def setup(api: PluginApi) -> None:
    global _api
    _api = api
    api.http("GET", "/lists/{name}", _members, role="read", summary="Members of a list")
    api.http("POST", "/lists/{name}", _add, role="operate")
    api.http("DELETE", "/lists/{name}", _remove, role="admin", scoped=True)
    api.http("PUT", "/raw", _raw, role="inject")
    api.http("POST", "/free", _free, role="anyone")
    api.http("GET", "/does/{what}", _does, role="read")
    api.http("GET", "/wrong", _wrong, role="read")
    api.http("GET", "/pause/{zone}", _pause, role="operate")


async def _members(name: str, least: int = 0, tag: list[str] = []) -> Members:
    """All of them."""
    people = await _api.store.get(name)
    if people is None:
        raise HttpError(404, f"there is no list {name!r}; POST makes one")
    return Members(name=name + "".join(tag), people=[one for one in people if one["score"] >= least])


async def _add(name: str, body: Person, request: HttpRequest) -> Members:
    people = [*(await _api.store.get(name, [])), body.model_dump()]
    await _api.store.set(name, people)
    return Members(name=f"{name} by {request.key}, {request.role}", people=people)


async def _remove(name: str, request: HttpRequest) -> None:
    await _api.store.delete(name)


async def _raw(body: bytes, request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(body[::-1], request.headers.get("content-type", "text/plain"), 201, {"X-Kind": "raw"})


async def _free(body: dict, request: HttpRequest) -> dict:
    return body | {"key": request.key, "path": request.path, "secret": request.headers.get("authorization")}


async def _wrong() -> Members:
    return {"name": 5}


async def _pause(zone: str) -> dict:
    await _api.admin.ask("stop", kind="zone", name=zone, cause="asked for")
    return {"rows": await _api.admin.ask("standing")}


async def _does(what: str):
    if what == "raise":
        raise KeyError("secret")
    if what == "exit":
        raise SystemExit(1)
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "cancel":
        raise asyncio.CancelledError
    if what == "object":
        return object()
    if what == "bytes":
        return b"\\xff"
    if what == "sleep":
        await asyncio.sleep(600)
    if what == "block":
        time.sleep(1.2)
    if what == "error":
        raise HttpError(503, "not now; ask again", retry_s=7)
    if what == "bad error":
        raise HttpError(500, "x")
    if what == "die":
        os._exit(1)
    return what
'''


def config(**roles: str) -> str:
    keys = [f'[[http.keys]]\nname = "{name}"\nhash = "{hashed(name)}"\n{more}\n' for name, more in roles.items()]
    return "[plugins]\ntimeout_s = 1.0\n[http]\nrequests = 64\nbody_bytes = 65536\n" + "".join(keys)


KEYS = config(
    reads='role = "read"', works='role = "operate"', rules='role = "admin"', hands='rights = ["inject"]',
    part='role = "admin"\ntenants = ["acme"]',
)  # fmt: skip


def refused(answer: Any, status: int, *words: str) -> None:
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer
    assert answer.json["status"] == status
    for one in words:
        assert one in answer.json["detail"]


async def test_routes_in_a_real_server(tmp_path: Path) -> None:
    """Keys, roles and scopes; what is checked before and after the call; its description."""
    (tmp_path / "lists.py").write_text(PLUGIN)
    async with running(tmp_path / "lists.py", http=True, config=KEYS) as mta:

        async def ask(method: str, path: str, body: Any = None, key: str | None = "rules", **headers: str) -> Any:
            return await mta.http(method, f"/v1/plugins/lists{path}", body, key, headers)

        # who may call
        refused(await ask("GET", "/lists/a", key=""), 401, "no key was sent")
        refused(await ask("GET", "/lists/a", key="who"), 401, "the key is unknown")
        refused(await ask("GET", "/lists/a", key="hands"), 403, "lacks the role read")
        refused(await ask("POST", "/lists/a", {}, key="reads"), 403, "lacks the role operate")
        refused(await ask("GET", "/lists/a", key="part"), 403, "has a scope")
        assert (await ask("DELETE", "/lists/a", key="part")).status == 204
        refused(await ask("PUT", "/raw", b"abc", key="reads"), 403, "lacks the right inject")
        refused(await ask("POST", "/free", {}, key="who"), 401, "the key is unknown")

        # what it takes
        refused(await ask("GET", "/lists/a", key="reads"), 404, "there is no list 'a'; POST makes one")
        added = await ask("POST", "/lists/a", {"address": "x@y.test", "score": 3}, key="works")
        assert added.json == {"name": "a by works, operate", "people": [{"address": "x@y.test", "score": 3}]}
        assert (await ask("GET", "/lists/a?least=3&tag=b&tag=c")).json["name"] == "abc"
        assert (await ask("GET", "/lists/a?least=4")).json == {"name": "a", "people": []}
        refused(await ask("GET", "/lists/a?least=x"), 422, "query 'least'", "integer")
        refused(await ask("GET", "/lists/a?least=1&least=2"), 422, "query 'least': appears more than once")
        refused(await ask("GET", "/lists/a?leest=1"), 422, "query 'leest': is not a parameter", "least, tag")
        refused(await ask("POST", "/lists/a", {"address": 5}), 422, "address:")
        refused(await ask("POST", "/lists/a", {"address": "x", "score": -1}), 422, "score:")
        refused(await ask("POST", "/lists/a", [1]), 400, "not a JSON object")
        refused(await ask("POST", "/lists/a", b"{"), 415, "Content-Type")
        refused(await ask("POST", "/lists/a", b"{", **{"Content-Type": "application/json"}), 400, "not JSON")
        refused(await ask("POST", "/lists/a", {"address": "x" * 70_000}), 413, "larger than 65,536 bytes")
        refused(await ask("PUT", "/raw", bytes(70_000)), 413, "larger than 65,536 bytes")
        raw = await ask("PUT", "/raw", b"abc", "hands", **{"Content-Type": "text/x-thing"})
        assert (raw.status, raw.content, raw.headers["content-type"]) == (201, b"cba", "text/x-thing")
        assert (raw.headers["x-kind"], raw.headers["x-content-type-options"]) == ("raw", "nosniff")
        free = await ask("POST", "/free", {"a": 1}, key="")
        assert free.json == {"a": 1, "key": "", "path": "/free", "secret": None}
        assert (await ask("POST", "/free", {}, key="reads")).json["key"] == "reads"
        assert (await ask("POST", "/free", {}, key="reads")).json["secret"] is None

        # what is not there
        refused(await ask("GET", "/nothing"), 404, "no plugin has a route '/v1/plugins/lists/nothing'")
        refused(await mta.http("GET", "/v1/plugins/other/x"), 404, "no plugin has a route")
        not_so = await ask("PATCH", "/lists/a")
        refused(not_so, 405, "not supported")
        assert not_so.headers["allow"] == "DELETE, GET, POST"
        refused(await mta.http("GET", "/v1/plugins/other/x", key=""), 401)

        # an order is the plugin's, for whom it was made
        paused = await ask("GET", "/pause/default", key="works")
        (row,) = paused.json["rows"]
        assert row["cause"] == "asked for (plugin lists for key works)"
        line = await mta.logged("plugin lists for key works orders stop")
        assert "name='default'" in line

        # its description
        whole = (await mta.http("GET", "/v1/openapi.json", key="")).json
        one = whole["paths"]["/v1/plugins/lists/lists/{name}"]
        assert one["get"]["summary"] == "Members of a list"
        assert one["get"]["security"] == [{"key": ["read"]}]
        assert [(it["name"], it["in"], it["required"]) for it in one["get"]["parameters"]] == [
            ("name", "path", True), ("least", "query", False), ("tag", "query", False),
        ]  # fmt: skip
        content = one["post"]["requestBody"]["content"]["application/json"]
        assert content == {"schema": {"$ref": "#/components/schemas/lists.Person"}}
        assert whole["components"]["schemas"]["lists.Members"]["properties"]["people"]["items"] == {
            "$ref": "#/components/schemas/lists.Person"
        }
        assert whole["paths"]["/v1/plugins/lists/free"]["post"]["security"] == []
        assert "x-scope" not in one["delete"]
        operations = [it["operationId"] for row in whole["paths"].values() for it in row.values()]
        assert len(set(operations)) == len(operations)
        assert json.dumps(whole).count("#/components/schemas/lists.Nothing") == 0
        assert set(_references(whole)) <= {f"#/components/schemas/{it}" for it in whole["components"]["schemas"]}


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [one for inner in value for one in _references(inner)]
    if not isinstance(value, dict):
        return []
    found = [one for inner in value.values() for one in _references(inner)]
    return [*found, value["$ref"]] if isinstance(value.get("$ref"), str) else found


async def test_a_route_that_misbehaves(tmp_path: Path) -> None:
    """The client hears whose failure it is, and nothing of what it says; others are answered; all places name it."""
    (tmp_path / "lists.py").write_text(PLUGIN)
    async with running(tmp_path / "lists.py", http=True, config=KEYS) as mta:

        async def does(what: str) -> Any:
            return await mta.http("GET", f"/v1/plugins/lists/does/{what}", key="rules")

        assert (await does("nothing")).json == "nothing"
        failing = ("raise", "exit", "interrupt", "cancel", "object", "bytes", "bad%20error", "sleep")
        for what in failing:
            answer = await does(what)
            refused(answer, 500, "the plugin 'lists' failed on this request (GET /does/{what})")
            assert b"secret" not in answer.content
        refused(await mta.http("GET", "/v1/plugins/lists/wrong", key="rules"), 500, "the plugin 'lists' failed")
        busy = await does("error")
        refused(busy, 503, "not now; ask again")
        assert busy.headers["retry-after"] == "7"
        for words in ("raised KeyError: 'secret'", "raised SystemExit", "raised KeyboardInterrupt",
                      "returned object, which is no JSON", "returned dict, which is not what it declares",
                      "took longer than 1 s and was cut off", "HttpError needs one of"):  # fmt: skip
            assert "plugin lists, hook http GET /" in await mta.logged(words)
        await _until_failures(mta, len(failing))
        assert "within 5 minutes" in (await mta.zonemta("status")).partition("plugin lists ")[2]
        slow, quick = does("sleep"), mta.http("GET", "/v1/health", key="")
        begun = time.monotonic()
        task = asyncio.ensure_future(slow)
        assert (await quick).status == 200
        assert time.monotonic() - begun < 0.9 or not task.done()
        refused(await task, 500)
        for _ in range(3):
            assert (await does("block")).status == 200
        skipped = await does("nothing")
        refused(skipped, 503, "blocked its process")
        assert skipped.headers["retry-after"] == "60"
        assert (await mta.http("POST", "/v1/plugins/lists/free", {}, "")).status == 200
        assert (await mta.send("anna@example.com")).code == 250


async def _until_failures(mta: Mta, least: int) -> None:
    end, wanted = time.monotonic() + 30, 'zonemta_plugin_failures_total{hook="http GET /does/{what}",plugin="lists"} '
    while True:
        text = (await mta.http("GET", "/metrics", key="")).content.decode()
        found = [float(line.removeprefix(wanted)) for line in text.splitlines() if line.startswith(wanted)]
        if found and found[0] >= least:
            return
        assert time.monotonic() < end, found
        await asyncio.sleep(0.2)


async def test_a_route_that_ends_its_process(tmp_path: Path) -> None:
    """Twice at the same request; then that is answered without it, and others go on."""
    (tmp_path / "lists.py").write_text(PLUGIN)
    async with running(tmp_path / "lists.py", http=True, config=KEYS) as mta:
        end, answered = time.monotonic() + 60, None
        while answered is None:
            assert time.monotonic() < end
            try:
                answered = await mta.http("GET", "/v1/plugins/lists/does/die", key="rules")
            except OSError:
                await asyncio.sleep(0.2)
        refused(answered, 500, "the plugin 'lists' failed")
        assert (await mta.http("GET", "/v1/plugins/lists/does/x", key="rules")).json == "x"
        assert (await mta.send("anna@example.com")).code == 250
