"""Certificates that are renewed while the server runs, as certbot does it."""

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from zonemta_py.config import Listener
from zonemta_py.metrics.meter import Meter
from zonemta_py.plugin.host import Host
from zonemta_py.reception import tls


def issue(chain: Path, key: Path) -> str:
    """A certificate in both files; its serial number."""
    issued = trustme.CA().issue_cert("mta.test")
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode()).hex()


async def shown(port: int) -> str:
    """The certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    return found.hex()


async def test_new_connections_get_what_is_renewed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not while only one of two files is there, nor where one is broken; a connection that is open stays."""
    chain, key = tmp_path / "fullchain.pem", tmp_path / "privkey.pem"
    first = issue(chain, key)
    listener = Listener(name="in", tls="starttls", certificate=chain, key=key)
    context = tls.context(listener, Host.empty())
    assert context is not None
    renewal = tls.Renewal(listener, context)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        assert await shown(port) == first
        old_key = key.read_bytes()
        second = issue(chain, key)
        new_key = key.read_bytes()
        key.write_bytes(old_key)
        with caplog.at_level(logging.INFO):
            renewal.look()
            assert await shown(port) == first
            assert "cannot be used" in caplog.text
            assert "the previous one stays in force" in caplog.text
            key.write_bytes(new_key)
            renewal.look()
            assert await shown(port) == second
            assert "the renewed certificate" in caplog.text
            chain.write_text("nonsense")
            renewal.look()
            chain.unlink()
            renewal.look()
        assert await shown(port) == second
        assert len(caplog.records) == 4
        third = issue(chain, key)
        renewal.look()
        assert await shown(port) == third
    finally:
        server.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def not_as_root() -> Iterator[None]:
    """Root may read everything: takes another effective user for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if before == 0:
            os.seteuid(0)


def test_a_key_that_can_be_read_at_last(open_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """certbot leaves a new key to root: its file is named, and when its rights are mended, nothing else is needed.
    Meanwhile the metric has the end of what is in force, not of the file; of several processes the first end."""
    chain, key = open_folder / "fullchain.pem", open_folder / "privkey.pem"
    until(chain, key, 3)
    listener = Listener(name="in", tls="starttls", certificate=chain, key=key)
    context = tls.context(listener, Host.empty())
    assert context is not None
    renewal, late = tls.Renewal(listener, context), tls.Renewal(listener, context)
    before = told(renewal, late)
    until(chain, key, 90)
    key.chmod(0)
    with not_as_root(), caplog.at_level(logging.INFO):
        renewal.look()
        assert f"fullchain.pem cannot be used ({key}: permission denied)" in caplog.text
        assert told(renewal, late) == before
    caplog.clear()
    key.chmod(0o644)
    with not_as_root(), caplog.at_level(logging.INFO):
        renewal.look()
        assert "new connections get the renewed certificate" in caplog.text
    assert told(renewal, late) == before, "one process has the old one"
    assert told(renewal) - before == pytest.approx(87 * 86_400, abs=60)


def told(*processes: tls.Renewal) -> float:
    """What the metric says when each of them has reported."""
    meter = Meter()
    for number, one in enumerate(processes):
        meter.reported(f"smtp-{number}", [], [[name, list(labels), end] for name, labels, end in one._measured()], 1.0)
    ((_, end),) = meter.gauges(0)["zonemta_certificate_expiry_timestamp_seconds"]
    return float(end)


def until(chain: Path, key: Path, days: int) -> None:
    """A certificate that ends in so many days."""
    issued = trustme.CA().issue_cert("mta.test", not_after=datetime.now(UTC) + timedelta(days))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
