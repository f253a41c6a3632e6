"""`zonemta tls`: what a domain's servers offer, and the reports of a day."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.mail.tls.reports import Seen
from zonemta_py.sink import Sink, SinkOptions

NOON_MS = 1_774_785_600_000
ADDRESS = "127.0.0.5"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The authority's, and the server's with its key."""
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert(ADDRESS).private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return folder / "ca.pem", folder / "server.pem"


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[Callable[..., Sink]]:
    """Starts servers on a loop of their own: commands have theirs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    sinks: list[Sink] = []

    def start(*capabilities: str) -> Sink:
        sink = Sink(SinkOptions((f"{ADDRESS}:0",), capabilities=capabilities, certificate=certificate[1]))
        asyncio.run_coroutine_threadsafe(sink.__aenter__(), loop).result()
        sinks.append(sink)
        return sink

    yield start
    for sink in sinks:
        asyncio.run_coroutine_threadsafe(sink.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def config(tmp_path: Path, certificate: tuple[Path, Path]) -> Callable[..., Path]:
    def write(port: int = 25, tls: str = "opportunistic", private: bool = True) -> Path:
        path = tmp_path / "zonemta.toml"
        path.write_text(
            f'[server]\nfolder = "{tmp_path}"\nhostname = "mta.test"\n[tls]\nca_file = "{certificate[0]}"\n'
            f'reports = true\n[[zones]]\nname = "z"\nport = {port}\ntls = "{tls}"\n'
            f"allow_private = {str(private).lower()}\n"
        )
        return path

    return write


def test_check(zonemta: Any, server: Any, config: Any) -> None:
    """A table: each host, the policy, whether mail would go and how, and the certificate."""
    file = config(server("STARTTLS").port)
    ran = zonemta("tls", "check", f"[{ADDRESS}]", "-c", file)
    assert ran.code == 0
    assert "yes, TLSv1.3 TLS_AES_256_GCM_SHA384 verified=none" in ran.out
    assert "valid" in ran.out
    [row] = json.loads(zonemta("tls", "check", f"[{ADDRESS}]", "-c", file, "--json").out)["hosts"]
    assert (row["address"], row["policy"], row["certificate"]) == (ADDRESS, "none", "valid")


@pytest.mark.parametrize(
    ("tls", "code", "said"), [("opportunistic", 0, "yes, in plain"), ("required", 1, "no, TLS is")]
)
def test_check_without_starttls(tls: str, code: int, said: str, zonemta: Any, server: Any, config: Any) -> None:
    """As the zone would: in plain, or not at all, which is exit status 1."""
    ran = zonemta("tls", "check", f"[{ADDRESS}]", "-c", config(server("PIPELINING").port, tls), "--zone", "z")
    assert (ran.code, said in ran.out) == (code, True)


def test_check_mistakes(zonemta: Any, config: Any) -> None:
    """Zones that are not there, domains that cannot be, hosts that may not be: one sentence."""
    assert "there is no zone 'x'; use one of z" in zonemta("tls", "check", "d.test", "-c", config(), "--zone", "x").err
    assert "no route to [1.2" in zonemta("tls", "check", "[1.2", "-c", config()).err
    assert "see allow_private" in zonemta("tls", "check", f"[{ADDRESS}]", "-c", config(private=False)).out


def test_report(zonemta: Any, config: Any, tmp_path: Path) -> None:
    """The reports on a day from the journal, as a table or as JSON; --send says what became of each."""
    seen = Seen("[127.0.0.5]", "sts", "certificate-expired", "mx.d.test", "127.0.0.9", "127.0.0.1", "x", [], [])
    trace = ["", "", "", 0, 0, "", "", "", [list(seen), list(seen._replace(result=""))]]
    records = [
        Record(1, NOON_MS, Type.SEGMENT, pack({"version": 1})),
        Record(2, NOON_MS, Type.DELIVERY, pack([1, "m", "z", "d.test", [], trace])),
    ]
    segments.Writer(tmp_path / "journal").write(records, True)
    ran = zonemta("tls", "report", "--day", "2026-03-29", "-c", config())
    assert ran.code == 0
    assert "certificate-expired" in ran.out
    [body] = json.loads(zonemta("tls", "report", "--day", "2026-03-29", "-c", config(), "--json").out)
    assert body["policies"][0]["summary"] == {"total-successful-session-count": 1, "total-failure-session-count": 1}
    assert json.loads(zonemta("tls", "report", "--day", "2026-03-28", "-c", config(), "--json").out) == []
    assert "not sent" in zonemta("tls", "report", "--day", "2026-03-29", "-c", config(), "--send").out
