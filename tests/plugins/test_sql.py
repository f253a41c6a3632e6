"""The bundled plugin sql with SQLite and with Debian's PostgreSQL: right, down, slow and wrong; and in the real MTA."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import smtplib
import sqlite3
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from argon2 import PasswordHasher
from ports import free_port
from programs import Server, answering, program

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope
from zonemta_py.plugin import Reject, Routing
from zonemta_py.plugin.arguments import Auth, Session
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.sink.server import self_made

HASHER = PasswordHasher(time_cost=1, memory_cost=1024)
LOGIN = "SELECT hash FROM users WHERE name = :user AND note <> ':none'"
ROUTE = "SELECT zone, host, port, delay_s, priority, reject FROM routes WHERE domain = :domain"
TABLES = (
    "CREATE TABLE users (name TEXT PRIMARY KEY, hash TEXT, note TEXT)",
    "CREATE TABLE routes (domain TEXT, zone TEXT, host TEXT, port TEXT, delay_s REAL, priority INTEGER, reject TEXT)",
    f"INSERT INTO users VALUES ('ann', '{HASHER.hash('correct horse')}', ''), ('old', 'd41d8cd98f', ''),"
    f" ('o''x', '{HASHER.hash('it')}', '')",
    "INSERT INTO routes VALUES ('b.test', 'bulk', 'mx.b.test', '2525', 60, 3, NULL),"
    " ('gone.test', NULL, '', NULL, NULL, NULL, '550 5.1.2 moved away'), ('odd.test', NULL, 'x', 'many', NULL, 0, '')",
)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "mail.sqlite") as database:
        for statement in TABLES:
            database.execute(statement)
    return f"sqlite:{tmp_path}/mail.sqlite"


@pytest.fixture(scope="module")
def postgres(serve: Callable[..., Server]) -> Iterator[Server]:
    """A cluster of its own, which trusts this machine; postgres does not run as root."""
    where, initdb, port = program("postgres", "postgresql"), program("initdb", "postgresql"), free_port()
    with tempfile.TemporaryDirectory(prefix="zonemta-postgres-") as name:
        folder, user = Path(name), None
        if os.geteuid() == 0:
            user = "postgres"
            shutil.chown(folder, user, user)
        command = [
            initdb,
            "-D",
            str(folder / "data"),
            "-A",
            "trust",
            "-U",
            "mta",
            "--no-sync",
            "--locale=C",
            "-E",
            "UTF8",
        ]
        subprocess.run(command, check=True, capture_output=True, user=user, cwd="/")
        options = ["-k", name, "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        server = serve([where, "-D", str(folder / "data"), *options], port, folder / "log", user or "")
        server.ends_by = signal.SIGINT  # does not wait for clients
        asyncio.run(_fill(_url(server)))
        yield server
        server.stop()


def _url(server: Server) -> str:
    return f"postgresql://mta@127.0.0.1:{server.where}/postgres"


async def _connected(url: str) -> asyncpg.Connection:
    """Waits until it has started: it is connected to before that."""
    while True:
        try:
            return await asyncpg.connect(url)
        except asyncpg.CannotConnectNowError:
            await asyncio.sleep(0.05)


async def _fill(url: str) -> None:
    connection = await _connected(url)
    for statement in TABLES:
        await connection.execute(statement)
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, str) else _url(found)


def load(url: str, zones: tuple[str, ...] = ("default", "bulk"), **more: Any) -> Host:
    given = {"url": url, "login": LOGIN, "route": ROUTE, "timeout_s": 29} | more
    return Host.load(Plugins(enabled=["sql"], options={"sql": given}, timeout_s=30), Configured(frozenset(zones)))


async def login(host: Host, name: str = "ann", password: str = "correct horse") -> str:
    session = Session(client="192.0.2.7", listener="submission")
    await host.call("smtp_auth", auth=Auth(name, password), session=session)
    return session.user


async def route(host: Host, recipient: str) -> Routing:
    routing = Routing(recipient, "default")
    await host.call("queue_route", envelope=Envelope("ann@a.test", []), routing=routing)
    return routing


async def test_logins(url: str) -> None:
    """What is written as a name or a password is never SQL."""
    host = load(url)
    assert [await login(host), await login(host), await login(host, "o'x", "it")] == ["ann", "ann", "o'x"]
    for name, password in (
        ("ann", "wrong"), ("eve", "correct horse"), ("ann", ""), ("' OR '1'='1", "x"), ("ann\0", "x"), ("ä\ud800", "x"),
        ("eve", "nobody has this password"),
    ):  # fmt: skip
        assert await login(host, name, password) == ""


async def test_routes(url: str) -> None:
    host = load(url)
    assert await route(host, "bob@B.test") == Routing("bob@B.test", "bulk", "mx.b.test", 2525, None, "", "", 3, 60.0)
    assert await route(host, "bob@c.test") == Routing("bob@c.test", "default")
    with pytest.raises(Reject) as caught:
        await route(host, "bob@gone.test")
    assert str(caught.value.reply) == "550 5.1.2 moved away"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"route": "SELECT 5 AS prot"}, "gives a column 'prot'; there are zone, host, port"),
        ({"route": "SELECT zone FROM nowhere"}, "nowhere"),
        ({"route": "SELECT host, port FROM routes WHERE domain = 'odd.test'"}, "'many', which is no number"),
    ],
)
async def test_routes_that_cannot_be_used(url: str, more: dict[str, Any], sentence: str) -> None:
    """Closed: the mail is deferred; open: it goes where it went."""
    with pytest.raises(PluginFailed) as caught:
        await route(load(url, **more), "bob@b.test")
    assert sentence in caught.value.problem
    host = load(url, failing="open", **more)
    assert await route(host, "bob@b.test") == Routing("bob@b.test", "default")
    assert {"plugin": "sql", "counter": "not_asked", "value": 1} in host.statistics()


async def test_logins_that_cannot_be_used(url: str) -> None:
    """A hash of another kind, or too much."""
    for name, query in (("old", LOGIN), ("ann", "SELECT name, hash FROM users WHERE name = :user")):
        with pytest.raises(PluginFailed, match="query for logins gives"):
            await login(load(url, login=query), name)
        assert await login(load(url, login=query, failing="open"), name) == ""


async def test_a_password_that_was_changed(sqlite: str) -> None:
    """The one before is wrong at once, though it was remembered."""
    host = load(sqlite)
    assert await login(host) == "ann"
    with sqlite3.connect(sqlite.removeprefix("sqlite:")) as database:
        database.execute("UPDATE users SET hash = ? WHERE name = 'ann'", (HASHER.hash("battery"),))
    assert await login(host) == ""
    assert await login(host, "ann", "battery") == "ann"


async def test_what_is_kept_of_routes(sqlite: str) -> None:
    """For a while, by what the query asks for."""
    fresh, kept = load(sqlite, cache_s=0), load(sqlite, cache_s=3600, cache_entries=1)
    for host in (fresh, kept):
        assert (await route(host, "bob@b.test")).zone == "bulk"
    with sqlite3.connect(sqlite.removeprefix("sqlite:")) as database:
        database.execute("DELETE FROM routes")
    assert (await route(fresh, "eve@b.test")).zone == "default"
    assert (await route(kept, "eve@b.test")).zone == "bulk"
    await route(kept, "bob@c.test")
    assert (await route(kept, "eve@b.test")).zone == "default"


async def test_many_at_once(url: str) -> None:
    host = load(url, connections=2, cache_s=0)
    found = await asyncio.gather(*(route(host, f"p{n}@b.test") for n in range(50)), login(host))
    assert {one.zone for one in found[:-1]} == {"bulk"}
    assert found[-1] == "ann"


async def test_postgres_is_down_and_there_again(postgres: Server) -> None:
    closed, opened = load(_url(postgres)), load(_url(postgres), failing="open")
    assert await login(closed) == "ann"
    postgres.stop()
    for call in (login(closed), route(closed, "bob@b.test")):
        with pytest.raises(PluginFailed) as caught:
            await call
        assert "start the database" in caught.value.problem
        assert "mta@" not in caught.value.problem
    assert await login(opened) == ""
    assert (await route(opened, "bob@b.test")).zone == "default"
    postgres.start()
    await (await _connected(_url(postgres))).close()
    for host in (closed, opened):
        assert await login(host) == "ann"
        assert (await route(host, "bob@b.test")).zone == "bulk"


async def test_postgres_stands_still(postgres: Server) -> None:
    """With a connection that there is, and with one that would have to be made."""
    used, closed = load(_url(postgres), timeout_s=2, cache_s=0), load(_url(postgres), timeout_s=0.5)
    opened = load(_url(postgres), timeout_s=0.5, failing="open")
    assert await login(used) == "ann"
    with postgres.frozen():
        for host in (used, closed):
            with pytest.raises(PluginFailed, match="does not answer within"):
                await route(host, "bob@b.test")
        assert (await route(opened, "bob@b.test")).zone == "default"
        assert await login(opened) == ""
    for host in (used, opened):
        assert (await route(host, "bob@b.test")).zone == "bulk"


async def test_sqlite_is_gone_and_there_again(sqlite: str) -> None:
    path = sqlite.removeprefix("sqlite:")
    shutil.move(path, f"{path}-aside")
    closed, opened = load(sqlite), load(sqlite, failing="open")
    with pytest.raises(PluginFailed, match="unable to open"):
        await route(closed, "bob@b.test")
    assert await login(opened) == ""
    sqlite_like = b"no database" * 100
    await asyncio.to_thread(Path(path).write_bytes, sqlite_like)
    with pytest.raises(PluginFailed) as caught:
        await route(closed, "bob@b.test")
    assert "not a database" in caught.value.problem
    shutil.move(f"{path}-aside", path)
    for host in (closed, opened):
        assert (await route(host, "bob@b.test")).zone == "bulk"


async def test_slow_queries(url: str) -> None:
    """They end, and the next one is answered."""
    slow = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT CAST(count(*) AS TEXT) AS zone FROM n"
        " WHERE :domain = 'slow.test'"
    )
    if not url.startswith("sqlite"):
        slow = "SELECT pg_sleep(CASE WHEN :domain = 'slow.test' THEN 60 ELSE 0 END)::text AS zone"
    host = load(url, route=slow, timeout_s=0.5, cache_s=0)
    with pytest.raises(PluginFailed) as caught:
        await route(host, "bob@slow.test")
    assert "does not answer within 0.5 s" in caught.value.problem or "interrupted" in caught.value.problem
    if not url.startswith("sqlite"):
        assert (await route(host, "bob@c.test")).zone == "default"


@pytest.mark.parametrize("answer", [b"", b"220 smtp\r\n", b"N", b"R\0\0\0\x04"])
@pytest.mark.parametrize("stays", [False, True])
async def test_what_is_no_database(answer: bytes, stays: bool) -> None:
    async with answering(answer, asked=b"", stays=stays) as port:
        host = load(f"postgresql://mta@127.0.0.1:{port}/x?sslmode=disable", timeout_s=1)
        with pytest.raises(PluginFailed):
            await login(host)


def test_through_the_mta(postgres: Server, start_mta: Any, tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_bytes(self_made("mta.test"))
    port = free_port()
    running = start_mta(
        f"[plugins]\nenabled = ['sql', 'default_headers']\n[plugins.options.sql]\nurl = '{_url(postgres)}'\n"
        f'login = "{LOGIN}"\nroute = "SELECT zone FROM routes WHERE domain = :domain"\ntimeout_s = 4\n'
        f"[[plugins.options.default_headers.fields]]\nname = 'X-Zone'\nvalue = '{{zone}}'\n"
        f"[[listeners]]\nname = 'submission'\nport = {port}\ntls = 'starttls'\nauth = true\nrequire_tls = true\n"
        f"certificate = '{tmp_path}/certificate.pem'\nrelay_networks = []\n"
    )
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        client.starttls()
        client.login("ann", "correct horse")
        client.sendmail("ann@a.test", ["bob@b.test", "carl@c.test"], "Subject: x\r\n\r\ntext\r\n")
    assert b"\r\nX-Zone: bulk\r\n" in running.came("bob@b.test").body
    assert b"\r\nX-Zone: default\r\n" in running.came("carl@c.test").body


def test_the_example_of_its_page() -> None:
    import plugins.sql as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"url": "mysql://x/y"}, "write sqlite:/path/of/file or postgresql:"),
        ({"url": "sqlite:mail.db"}, "write the whole path"),
        ({"login": "", "route": ""}, "the plugin does nothing"),
        ({"login": "DELETE FROM users"}, "is not a query"),
        (
            {"login": "SELECT hash FROM users WHERE name = :recipient"},
            ":recipient is not known there; there are client",
        ),
        ({"timeout_s": 40}, "must be below plugins.timeout_s, which is 30"),
    ],
)
def test_mistakes(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(**({"url": "sqlite:/x"} | more))
    assert sentence in str(caught.value)
