"""BodyHooks: hooks that see a message while it streams in."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zonemta_py.mail.envelope import Envelope
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.plugin import pipes
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.pipes import BLOCKS_MAX
from zonemta_py.plugin.streams import BodyHooks
from zonemta_py.plugin.verdicts import Drop, PluginFailed, Reject

MakeHost = Callable[..., Host]

MULTIPART = b"Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n"
BODY = (
    b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\nContent-Type: text/html\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\n"
    + base64.encodebytes(b"<b>hello</b>").replace(b"\n", b"\r\n")
    + b"--b--\r\n"
)
PASS = "async def message_rewrite(envelope, node, stream): return None\n"
COPY = """
    async def message_rewrite(envelope, node, stream):
        async for block in stream:
            yield block
"""
UPPER = """
    from zonemta_py.plugin import decoded, encoded

    async def _upper(stream):
        async for block in stream:
            yield block.upper()

    async def message_rewrite(envelope, node, stream):
        if node.content_type != "text/html":
            return None
        return encoded(node.encoding, _upper(decoded(node.encoding, stream)))
"""


class Message:
    """One message through the hooks: what was stored, and the headers as left."""

    def __init__(self, host: Host, section: bytes = MULTIPART) -> None:
        self.stored = bytearray()
        self.envelope = Envelope("a@example.com", [])
        self.headers = Headers.parse(section)
        self.hooks = BodyHooks(host, self.envelope, self.headers, self._sink)

    async def _sink(self, block: bytes) -> None:
        assert block
        self.stored += block

    async def send(self, *blocks: bytes) -> bytes:
        try:
            await self.hooks.on_headers()
            for block in blocks:
                await self.hooks.feed(block)
            await self.hooks.finish()
        except BaseException:
            self.hooks.abort()
            raise
        return bytes(self.stored)


def row(host: Host, hook: str, plugin: str = "p1") -> dict[str, Any]:
    return next(r for r in host.statistics() if r.get("hook") == hook and r["plugin"] == plugin)


def test_nobody_listens() -> None:
    """Without plugins for these hooks reception is told to go without."""
    assert not BodyHooks.wanted(Host.empty())


@pytest.mark.parametrize("source", [PASS, COPY])
async def test_untouched_nodes_pass(make_host: MakeHost, source: str) -> None:
    """A plugin that declines, or copies, changes no byte."""
    host = make_host(source)
    assert BodyHooks.wanted(host)
    assert await Message(host).send(BODY) == BODY
    assert await Message(host).send(*(BODY[i : i + 1] for i in range(len(BODY)))) == BODY


async def test_one_node_is_rewritten(make_host: MakeHost) -> None:
    """The plugin's bytes take the place of the node it claimed; all else stays as it was."""
    stored = await Message(make_host(UPPER)).send(BODY[:100], BODY[100:])
    new = base64.b64encode(b"<B>HELLO</B>")
    assert stored == BODY.replace(base64.b64encode(b"<b>hello</b>") + b"\r\n", new + b"\r\n\r\n")


async def test_rewriters_form_a_chain(make_host: MakeHost) -> None:
    """Each plugin reads what the one before it wrote, in the configured order."""
    add = """
        async def message_rewrite(envelope, node, stream):
            async for block in stream:
                yield block
            yield b"{}"
    """
    host = make_host(add.format("1"), add.format("2"))
    assert await Message(host, b"Subject: x\r\n").send(b"body") == b"body12"
    assert row(host, "message_rewrite", "p2")["calls"] == 1


async def test_node_headers_may_change(make_host: MakeHost) -> None:
    """Fields of a part changed before the hook returns go out changed; other parts stay byte-exact."""
    source = """
        async def message_rewrite(envelope, node, stream):
            if node.content_type == "text/plain":
                node.headers.replace("Content-Type", "text/plain; format=flowed")
    """
    stored = await Message(make_host(source)).send(BODY)
    assert stored == BODY.replace(b"text/plain\r\n", b"text/plain; format=flowed\r\n")


async def test_root_headers_may_change(make_host: MakeHost) -> None:
    """The root node's fields are the message's: a change is there when the header section is stored."""
    message = Message(
        make_host("async def message_rewrite(node): node.headers.add('X-Seen', 'yes')"), b"Subject: x\r\n"
    )
    assert await message.send(b"body") == b"body"
    assert message.headers.get("X-Seen") == "yes"


async def test_headers_hook(make_host: MakeHost) -> None:
    """message_headers changes the section before the body; message_analyze still sees it as received."""
    source = """
        async def message_headers(envelope, headers): headers.remove("Subject")
        async def message_analyze(envelope, stream):
            envelope.notes["seen"] = b"".join([block async for block in stream]).decode()
    """
    message = Message(make_host(source))
    await message.send(b"one", b"two")
    assert "Subject" not in message.headers
    assert message.envelope.notes["seen"].encode() == MULTIPART + b"\r\nonetwo"


async def test_store_sees_what_is_stored(make_host: MakeHost) -> None:
    """message_store reads the body after rewriting."""
    keep = 'async def message_store(envelope, stream): envelope.envid = b"".join([b async for b in stream]).hex()'
    message = Message(make_host(UPPER, keep))
    assert (await message.send(BODY)).hex() == message.envelope.envid


@pytest.mark.parametrize("hook", ["message_analyze", "message_store"])
async def test_a_reader_may_stop_early(make_host: MakeHost, hook: str) -> None:
    """A plugin that does not read to the end holds nothing up; its verdict is raised at the end."""
    host = make_host(f"from zonemta_py.plugin import *\nasync def {hook}(stream): raise Reject(550, 'spam')")
    message = Message(host)
    with pytest.raises(Reject) as caught:
        await message.send(*[bytes(65536)] * 20)
    assert caught.value.plugin == "p1"
    assert len(message.stored) == 20 * 65536
    assert row(host, hook)["verdicts"] == 1


async def test_drop_from_a_rewriter(make_host: MakeHost) -> None:
    """A verdict from inside the generator is raised as it is, and counted."""
    source = """
        from zonemta_py.plugin import Drop
        async def message_rewrite(stream):
            async for block in stream:
                raise Drop("unwanted")
                yield b""
    """
    host = make_host(source)
    with pytest.raises(Drop):
        await Message(host, b"Subject: x\r\n").send(b"body")
    assert row(host, "message_rewrite")["verdicts"] == 1


async def test_a_verdict_passes_through_a_chain(make_host: MakeHost) -> None:
    """It stays the verdict of the plugin that raised it."""
    source = "from zonemta_py.plugin import *\nasync def message_rewrite():\n    raise Drop('x')\n    yield"
    host = make_host(source, COPY)
    with pytest.raises(Drop) as caught:
        await Message(host, b"Subject: x\r\n").send(b"body")
    assert caught.value.plugin == "p1"
    assert [r["verdicts"] for r in host.statistics()] == [1, 0]


BAD = {
    "raises": "async def message_rewrite(stream):\n    yield b''\n    raise KeyError('x')",
    "raises at once": "async def message_rewrite(stream): raise KeyError('x')",
    "yields text": "async def message_rewrite(stream): yield 'text'",
    "returns text": "async def message_rewrite(stream): return b'text'",
    "reads too early": "async def message_rewrite(stream): return [b async for b in stream]",
    "sleeps": "import asyncio\nasync def message_rewrite(stream):\n    await asyncio.sleep(60)\n    yield b''",
    "sleeps at once": "import asyncio\nasync def message_rewrite(stream): await asyncio.sleep(60)",
    "analyst raises": "async def message_analyze(stream): 1 / 0",
    "analyst sleeps": "import asyncio\nasync def message_analyze(stream): await asyncio.sleep(60)",
    "analyst returns": "async def message_analyze(stream): return 1",
    "analyst exits": "async def message_analyze(stream): raise SystemExit(1)",
    "interrupts": "async def message_rewrite(stream):\n    raise KeyboardInterrupt\n    yield b''",
    "analyst interrupts": "async def message_analyze(stream): raise KeyboardInterrupt",
    "analyst leaves": "async def message_analyze(stream): raise GeneratorExit",
    "analyst cancels": "import asyncio\nasync def message_analyze(stream): raise asyncio.CancelledError",
    "analyst generates": "async def message_store(stream): return (x for x in 'abc')",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
async def test_failures_are_contained(make_host: MakeHost, source: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a plugin does wrong, the message gets 451, and the log names plugin and hook."""
    host = make_host(source, timeout_s=0.05 if "sleep" in source else 20)
    with pytest.raises(PluginFailed) as caught:
        await Message(host, b"Subject: x\r\n").send(*[bytes(65536)] * 10)
    assert caught.value.reply.code == 451
    assert "plugin p1, hook message_" in caplog.text
    (only,) = host.statistics()
    assert only["failures"] == 1


async def test_the_slow_one_in_a_chain_is_blamed(make_host: MakeHost) -> None:
    """If the first of two rewriters stalls, the second, which waits for it, is not to blame."""
    stall = """
        import asyncio
        async def message_rewrite(stream):
            async for block in stream:
                await asyncio.sleep(60)
                yield block
    """
    with pytest.raises(PluginFailed) as caught:
        await Message(make_host(stall, COPY, timeout_s=0.05), b"Subject: x\r\n").send(b"body")
    assert caught.value.plugin == "p1"


async def test_a_slow_client_is_not_the_plugins_fault(make_host: MakeHost) -> None:
    """The time limit does not count while plugins wait for bytes to arrive."""
    host = make_host(COPY, "async def message_analyze(stream): [b async for b in stream]", timeout_s=1.5)
    message = Message(host, b"Subject: x\r\n")
    await message.hooks.on_headers()
    await message.hooks.feed(b"one")
    await asyncio.sleep(2)
    await message.hooks.feed(b"two")
    await message.hooks.finish()
    assert message.stored == b"onetwo"
    assert [r["overruns"] for r in host.statistics()] == [0, 0]


@pytest.mark.parametrize("name", ["waited_s", "waiting", "anything"])
async def test_nothing_can_be_set_of_a_stream(make_host: MakeHost, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """That is the plugin's named failure, and none of the server's."""
    host = make_host(f"async def message_store(stream): stream.{name} = object()")
    with pytest.raises(PluginFailed):
        await Message(host, b"Subject: x\r\n").send(b"body")
    assert "plugin p1, hook message_store" in caplog.text
    assert "AttributeError" in caplog.text


async def test_a_plugin_that_is_behind_slows_its_client(make_host: MakeHost) -> None:
    """Only BLOCKS_MAX blocks are held for a plugin; feeding waits until it reads on."""
    source = """
        import asyncio
        async def message_analyze(envelope, stream):
            await envelope.headers["gate"].wait()
            envelope.notes["seen"] = sum([len(block) async for block in stream])
    """
    message = Message(make_host(source))
    gate = message.envelope.headers["gate"] = asyncio.Event()
    sending = asyncio.create_task(message.send(*[bytes(65536)] * 50))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not sending.done()
    assert 0 < len(message.stored) <= BLOCKS_MAX * CHUNK_BYTES
    gate.set()
    await sending
    assert message.envelope.notes["seen"] == len(MULTIPART) + 2 + 50 * 65536


async def test_a_rewriter_may_write_much_for_little(make_host: MakeHost) -> None:
    """More output than input is stored as it comes, not gathered."""
    source = """
        async def message_rewrite(stream):
            async for block in stream:
                for _ in range(100):
                    yield bytes(65536)
    """
    assert len(await Message(make_host(source), b"Subject: x\r\n").send(b"x", b"y")) == 200 * 65536


async def test_a_rewriter_may_end_early(make_host: MakeHost) -> None:
    """What it does not read is thrown away: the node is what it wrote, and the parts behind it stay."""
    source = """
        async def message_rewrite(node, stream):
            if node.content_type == "text/plain":
                return _gone()

        async def _gone():
            yield b"removed"
    """
    big = BODY.replace(b"hello\r\n--b", b"hello" * 200_000 + b"\r\n--b")
    assert await Message(make_host(source)).send(*(big[i : i + 65536] for i in range(0, len(big), 65536))) == (
        BODY.replace(b"hello\r\n--b", b"removed\r\n--b")
    )


async def test_an_endless_rewriter_is_stopped(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that never ends does not fill the disk."""
    monkeypatch.setattr(pipes, "WRITTEN_BYTES_MAX", 1_000_000)
    source = """
        async def message_rewrite():
            while True:
                yield bytes(65536)
    """
    message = Message(make_host(source), b"Subject: x\r\n")
    with pytest.raises(PluginFailed, match="wrote more than 1000000 bytes"):
        await message.send(b"x")
    assert len(message.stored) <= 1_000_000


async def test_a_refusing_store_is_not_a_plugin_failure(make_host: MakeHost) -> None:
    """What the sink raises passes through, and no plugin is blamed for it."""
    host = make_host(COPY)
    message = Message(host, b"Subject: x\r\n")

    async def full(block: bytes) -> None:
        raise OSError("no space")

    hooks = BodyHooks(host, message.envelope, message.headers, full)
    await hooks.on_headers()
    await hooks.feed(b"x")
    with pytest.raises(OSError, match="no space"):
        await hooks.finish()
    hooks.abort()
    await asyncio.sleep(0)
    assert row(host, "message_rewrite")["failures"] == 0


async def test_abort_ends_all_tasks(make_host: MakeHost) -> None:
    """A client that hangs up leaves nothing running, and nobody is blamed."""
    host = make_host(COPY, "async def message_analyze(stream): [b async for b in stream]")
    message = Message(host, b"Subject: x\r\n")
    await message.hooks.on_headers()
    await message.hooks.feed(b"x")
    message.hooks.abort()
    message.hooks.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [r["failures"] for r in host.statistics()] == [0, 0]


fragments = st.sampled_from([b"--b", b"--b--", b"\r\n", b"\n", b"-", b"\r\n\r\n", b"\r\n--b\r\n", b"\r\n--b--\r\n"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.one_of(fragments, st.binary(max_size=9)), max_size=8).map(b"".join), max_size=6))
def test_any_message_passes_unchanged(make_host: MakeHost, blocks: list[bytes]) -> None:
    """Arbitrary bytes cut arbitrarily come out identical through a plugin that declines and one that copies."""
    for source in (PASS, COPY):
        assert asyncio.run(Message(make_host(source)).send(*blocks)) == b"".join(blocks)


@pytest.mark.parametrize("way", ["timeout", "group"])
async def test_a_time_limit_of_its_own_cuts_no_reader_off(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Nor does what libraries cancel within its task, as HTTP clients do when one of several addresses has answered."""
    monkeypatch.setattr("zonemta_py.plugin.calls.GRACE_S", 0.05)
    limit = {
        "timeout": "async with asyncio.timeout(0.01)",
        "group": "with anyio.move_on_after(0.01)",
    }[way]
    host = make_host(f"""
        import asyncio, anyio
        from zonemta_py.plugin import Reject

        async def message_analyze(envelope, stream):
            async for block in stream: pass
            try:
                {limit}:
                    await asyncio.sleep(9)
            except TimeoutError:
                pass
            await asyncio.sleep(0.3)
            raise Reject(554, "looked at")
    """)
    message = Message(host)
    with pytest.raises(Reject, match="looked at"):
        await message.send(BODY)
