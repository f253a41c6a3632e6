"""What plugin writers stumbled over: wrong names, arguments and paths are answered at once, and in the right place."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import zonemta_py
from zonemta_py.config import Plugins, read
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Defer, decoded, encoded
from zonemta_py.plugin import Headers as Exported
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.spec import Address, Node, Session
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.queue.api import Delivery, Result

MakeHost = Callable[..., Host]


ASKED = {
    "print(session.remote_address)": "'Session' object has no attribute 'remote_address';",
    "address.adress = 'x@y.test'": "'Address' object has no attribute 'adress', did you mean 'address'?",
    "session.tsl = ''": "'Session' object has no attribute 'tsl', did you mean 'tls'?",
    "Envelope('', []).sending_zne": "'Envelope' object has no attribute 'sending_zne', did you mean 'sending_zone'?",
    "Headers([]).replaced('X', 'y')": "'Headers' object has no attribute 'replaced', did you mean 'replace'?",
    "object().nothing": "'object' object has no attribute 'nothing'",
}


@pytest.mark.parametrize("code", ASKED)
async def test_a_name_that_there_is_not(make_host: MakeHost, caplog: pytest.LogCaptureFixture, code: str) -> None:
    """Read or set, of whatever argument: the log lists what there is, and what was meant."""
    host = make_host(f"""
        from zonemta_py.plugin import Envelope, Headers
        async def smtp_rcpt_to(address, session):
            {code}
    """)
    with pytest.raises(PluginFailed):
        await host.call("smtp_rcpt_to", address=Address("a"), session=Session())
    assert f"raised AttributeError: {ASKED[code]}" in caplog.text
    assert "it has" in caplog.text or "object()" in code


@pytest.mark.parametrize("code", [421, 450, 452, 550, 554])
def test_a_reply_code_is_no_time(code: int) -> None:
    """Defer(452, …) would wait seven and a half minutes; written as seconds it may."""
    with pytest.raises(ValueError, match=f"Defer takes seconds, and {code} looks like a reply code"):
        Defer(code, "busy")
    assert Defer(float(code)).seconds == code
    assert Defer(60).seconds == 60


@pytest.mark.parametrize("helper", [decoded, encoded])
def test_a_node_is_no_encoding(helper: Any) -> None:
    """The error comes where the plugin calls, not from inside when the first block is read."""

    async def stream() -> Any:
        yield b""

    node = Node("text/plain", "", "base64", "", Headers([]))
    with pytest.raises(TypeError, match=rf"write {helper.__name__}\(node.encoding, stream\): it was given \(Node, "):
        helper(node, stream())
    with pytest.raises(TypeError, match=r"node\.encoding, stream"):
        helper("base64", node)


def test_headers_and_types_are_there() -> None:
    """For annotations of plugins, and for their type checkers."""
    assert Exported is Headers
    assert (Path(zonemta_py.__file__).parent / "py.typed").exists()


async def test_a_lost_event_names_its_message(tmp_path: Path, caplog: Any) -> None:
    """A webhook that is down: the log says of which message and recipients nothing was heard."""
    file = tmp_path / "hook.py"
    file.write_text("async def sender_delivered(delivery, result):\n    raise ConnectionRefusedError('webhook down')\n")
    host = Host.load(Plugins(enabled=[str(file)]))
    people = [Recipient(f"r{number}@x.test") for number in range(5)]
    delivery = Delivery(1, "00000000000000ff", "default", "x.test", "a@b.test", people, 1, 1)
    with caplog.at_level(logging.ERROR):
        await host.call("sender_delivered", delivery=delivery, result=Result(1, []))
    [line] = [record.getMessage() for record in caplog.records]
    assert "hook.py:2: raised ConnectionRefusedError: webhook down" in line
    assert "(message 00000000000000ff to r0@x.test, r1@x.test, r2@x.test and 2 more)" in line
    await host.call("queue_release", zone="z", delivery=Envelope("a", [], 0))


def test_a_path_beside_the_configuration(tmp_path: Path, monkeypatch: Any) -> None:
    """A relative path is the configuration's, wherever the command is given; names are left alone."""
    (tmp_path / "etc" / "mine").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "etc" / "one.py").write_text("async def smtp_connect(): pass\n")
    (tmp_path / "etc" / "mine" / "two.py").write_text("async def smtp_connect(): pass\n")
    config = tmp_path / "etc" / "zonemta.toml"
    config.write_text('[plugins]\nenabled = ["one.py", "./mine/two.py", "custom_routing"]\nfolder = "mine"\n')
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = read(config)
    assert Host.load(found.plugins).listens("smtp_connect")
    assert found.plugins.enabled[2] == "custom_routing"
    assert found.plugins.folder == tmp_path / "etc" / "mine"


def test_the_group_is_documented() -> None:
    """As the page for authors says it."""
    from zonemta_py.plugin.loading import BUNDLED, ENTRY_POINTS

    page = (BUNDLED / "README.md").read_text()
    assert f'[project.entry-points."{ENTRY_POINTS}"]' in page
    assert EntryPoint("my_plugin", "my_package.my_plugin", ENTRY_POINTS).module in page
    listed = page.partition("What a `session` has:")[2].partition("\n\n")[0]
    assert [name for name in Session.__dataclass_fields__ if f"`{name}`" not in listed] == []


@pytest.mark.parametrize("where", ["_worker.start()", "def setup(api):\n    _worker.start()"])
@pytest.mark.parametrize("what", ["end.wait", "asyncio.new_event_loop().run_forever"])
def test_a_thread_of_the_start_is_refused(make_host: MakeHost, where: str, what: str) -> None:
    """With or without an event loop in it: after the forks there is no such thread, and nothing else would say so."""
    threads = set(threading.enumerate())
    made = f"end = threading.Event()\n_worker = threading.Thread(target={what}, daemon=True, name='poller')"
    code = f"import asyncio, threading\n{made}\n{where}\n"
    with pytest.raises(PluginError, match=r"plugin p1, .*p1\.py: has started a thread .*poller.*async def start"):
        make_host(f"{code}\nasync def smtp_connect(session): pass\n")
    assert len(set(threading.enumerate()) - threads) == 1


async def test_threads_of_others_are_not_the_plugins(make_host: MakeHost) -> None:
    """At a reload the queue's process loads plugins in a thread, while its own threads come and go."""
    code = "import time\ntime.sleep(0.2)\nasync def smtp_connect(session): pass\n"
    loading = asyncio.ensure_future(asyncio.to_thread(make_host, code))
    await asyncio.sleep(0.1)
    await asyncio.gather(*(asyncio.to_thread(threading.Event().wait, 0.3) for _ in range(3)))
    assert (await loading).listens("smtp_connect")
