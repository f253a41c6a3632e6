"""The bundled plugin rspamd with Debian's rspamd, in the real MTA; and with servers that are down, slow and wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from ports import free_port
from programs import Server, answering, program

from zonemta_py.config import Config, Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.plugin import Delivery
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.testing import received
from zonemta_py.plugin.verdicts import Drop, PluginFailed, Reject

GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
RULES = """
config['regexp']['TEST_MARKED'] = { re = '/markword/{sa_raw_body}', score = 100.0 }
rspamd_config.TEST_WHO = {
  callback = function(task)
    return task:get_user() == 'ann' and tostring(task:get_ip()) == '192.0.2.7' and task:get_helo() == 'pc'
      and task:get_from('smtp')[1].addr == 'ann@a.test' and #task:get_recipients('smtp') == 2
      and task:get_queue_id() == 's1'
  end,
  score = 0.1
}
"""
OVERRIDES = {
    "worker-normal.inc": 'bind_socket = "127.0.0.1:{port}"; count = 1;',
    "worker-controller.inc": "enabled = false; count = 0;",
    "worker-proxy.inc": "enabled = false; count = 0;",
    "options.inc": 'filters = "regexp"; dns {{ nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }} '
    'disable_hyperscan = true; task_timeout = 3s; control_socket = "{folder}/control mode=0600";',
    "logging.inc": 'type = "console"; level = "warning";',
    "actions.conf": "reject = 1000; add_header = 90; rewrite_subject = 190; greylist = 80;",
}


def load(zones: tuple[str, ...] = (), **more: Any) -> Host:
    given = {"url": "http://127.0.0.1:9", "timeout_s": 29} | more
    return Host.load(Plugins(enabled=["rspamd"], options={"rspamd": given}, timeout_s=30), Configured(frozenset(zones)))


@pytest.fixture(scope="module")
def rspamd(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., Server]) -> Server:
    """Debian's configuration, without the worlds that it would ask by DNS."""
    where = program("rspamd", "rspamd")
    folder, port = tmp_path_factory.mktemp("rspamd"), free_port()
    for name in ("db", "run", "log", "local.d", "override.d"):
        (folder / name).mkdir()
    for name, text in OVERRIDES.items():
        (folder / "override.d" / name).write_text(text.format(port=port, folder=folder))
    (folder / "rspamd.local.lua").write_text(RULES)
    for path in (folder, *folder.iterdir(), folder.parent, folder.parent.parent):
        path.chmod(0o777)
    command = [where, "-f", "-i", "-u", "nobody", "-g", "nogroup", "-c", "/etc/rspamd/rspamd.conf"]
    command += [f"--var={name}={folder / place}" for name, place in (("DBDIR", "db"), ("RUNDIR", "run"))]
    command += [f"--var=LOGDIR={folder / 'log'}", f"--var=LOCAL_CONFDIR={folder}"]
    return serve(command, port, folder / "log" / "out")


@pytest.fixture(scope="module")
def running(rspamd: Server, start_mta: Any) -> Any:
    return start_mta(
        f"""
[plugins]
enabled = ["rspamd", "default_headers"]
timeout_s = 30
[plugins.options.rspamd]
url = "http://127.0.0.1:{rspamd.where}"
timeout_s = 25
zone = "bulk"
symbols_field = "X-Spam-Symbols"
[[plugins.options.default_headers.fields]]
name = "X-Zone"
value = "{{zone}}"
"""
    )


def letter(text: bytes, subject: bytes = b"x") -> bytes:
    return b"From: A <ann@a.test>\r\nTo: b@one.test\r\nX-Spam-Score: 0\r\nSubject: " + subject + b"\r\n\r\n" + text


def test_spam_is_refused(running: Any) -> None:
    assert running.send(letter(GTUBE + b"\r\n"), "bob@one.test") == "554 5.7.1 Gtube pattern"


def test_other_mail_has_its_score(running: Any) -> None:
    assert running.send(letter(b"hello\r\n"), "carl@one.test").startswith("250")
    head = running.came("carl@one.test").body.partition(b"\r\n\r\n")[0] + b"\r\n"
    scores = [value for name, value in Headers.parse(head) if name == "X-Spam-Score"]
    assert len(scores) == 1
    assert scores[0].endswith(" / 1000.00")
    assert b"X-Zone: default\r\n" in head
    assert b"X-Spam: " not in head


@pytest.mark.parametrize(("words", "tag"), [(1, b""), (2, b"[SPAM] ")])
def test_what_is_marked_goes_through_its_zone(running: Any, words: int, tag: bytes) -> None:
    """100 points are a field, 200 another subject."""
    text = b"markword\r\n" if words == 1 else b"x" * 300_000 + b"\r\nmarkword\r\n"
    who = f"dora{words}@one.test"
    assert running.send(letter(text), who).startswith("250")
    head = running.came(who).body.partition(b"\r\n\r\n")[0] + b"\r\n"
    assert b"X-Spam: Yes\r\n" in head
    assert b"X-Zone: bulk\r\n" in head
    assert b"TEST_MARKED" in head
    assert b"Subject: x\r\n" in head


async def test_it_hears_who_sends_to_whom(rspamd: Server) -> None:
    host, note = load(url=f"http://127.0.0.1:{rspamd.where}"), Envelope("ann@a.test", [])
    envelope = Envelope(
        "ann@a.test", [Recipient("b@b.test"), Recipient("c@b.test")], origin="192.0.2.7", origin_name="pc", user="ann"
    )
    envelope.scratch["rspamd"] = "s1"
    await received(host, letter(b"x\r\n"), envelope)
    assert "TEST_WHO" in envelope.notes["rspamd"]["symbols"]
    await received(host, letter(b"x\r\n"), note)
    assert "TEST_WHO" not in note.notes["rspamd"]["symbols"]


async def test_down_and_there_again(rspamd: Server) -> None:
    """Closed: the client is told to come again; open: the mail passes, and has no score."""
    closed, opened = (load(url=f"http://127.0.0.1:{rspamd.where}", failing=how) for how in ("closed", "open"))
    rspamd.stop()
    with pytest.raises(PluginFailed) as caught:
        await received(closed, letter(b"x\r\n"))
    assert "start rspamd" in caught.value.problem
    envelope = Envelope("ann@a.test", [])
    await received(opened, letter(GTUBE + b"\r\n"), envelope)
    assert envelope.notes == {}
    assert {"plugin": "rspamd", "counter": "passed_unjudged", "value": 1} in opened.statistics()
    rspamd.start()
    for host in (closed, opened):
        with pytest.raises(Reject):
            await received(host, letter(GTUBE + b"\r\n"))


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["short", "long"])
async def test_rspamd_stands_still(rspamd: Server, size: int) -> None:
    """Before it has read a message, or has answered; it is asked again when it goes on."""
    where, message = f"http://127.0.0.1:{rspamd.where}", letter(b"0123456\r\n" * size)
    with rspamd.frozen():
        with pytest.raises(PluginFailed, match="does not answer within"):
            await received(load(url=where, timeout_s=0.5), message)
        opened = load(url=where, failing="open", timeout_s=0.5)
        assert await received(opened, message) == message
    with pytest.raises(Reject):
        await received(load(url=where, failing="open"), letter(GTUBE + b"\r\n"))


def reply(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


WRONG = {
    "no JSON": reply(b"<html>"),
    "no judgement": reply(b'{"error": "x"}'),
    "a list": reply(b"[]"),
    "no number": reply(b'{"action": "reject", "score": "much", "required_score": 5}'),
    "infinite": reply(b'{"action": "add header", "score": Infinity, "required_score": 5}'),
    "another status": reply(b"wrong password", b"403 Forbidden"),
    "nothing": b"",
    "no HTTP": b"220 smtp\r\n",
    "too much": b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b" " * 2_000_000,
}


@pytest.mark.parametrize("what", [*WRONG, "never", "half"])
@pytest.mark.parametrize("size", [10, 600_000], ids=["short", "long"])
async def test_slow_and_wrong(what: str, size: int) -> None:
    slow = what in ("never", "half")
    answer = WRONG.get(what, b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{" if what == "half" else b"")
    message = letter(b"x" * 70 + b"\r\n" + (b"y" * 70 + b"\r\n") * (size // 72))
    async with answering(answer, stays=slow) as port:
        url = f"http://127.0.0.1:{port}"
        limit = {"timeout_s": 0.3} if slow else {}
        with pytest.raises(PluginFailed) as caught:
            await received(load(url=url, **limit), message)
        assert "RspamdFailed" in caught.value.problem
        assert url in caught.value.problem
        assert await received(load(url=url, failing="open", **limit), message) == message


@pytest.mark.parametrize(
    ("action", "verdict", "code"),
    [("reject", Reject, 554), ("soft reject", Reject, 451), ("discard", Drop, 250), ("greylist", None, 0)],
)
async def test_actions(action: str, verdict: type | None, code: int) -> None:
    body = f'{{"action": "{action}", "score": 1, "required_score": 15, "messages": {{"smtp_message": "Why"}}}}'
    async with answering(reply(body.encode())) as port:
        url = f"http://127.0.0.1:{port}"
        if verdict is None:
            await received(load(url=url), letter(b"x"))
            return
        with pytest.raises(verdict) as caught:
            await received(load(url=url), letter(b"x"))
        assert caught.value.reply.code == code


async def test_a_tenant_has_a_zone_of_its_own() -> None:
    body = b'{"action": "reject", "score": 16, "required_score": 15}'
    async with answering(reply(body)) as port:
        url = f"http://127.0.0.1:{port}"
        host = load(("a", "b"), url=url, reject=False, zone="a", tenant_zones={"shop": "b"})
        for tenant, zone in ((None, "a"), ("shop", "b")):
            envelope = Envelope("ann@a.test", [], tenant=tenant)
            await received(host, letter(b"x"), envelope)
            assert envelope.sending_zone == zone


async def test_what_is_too_large_is_not_judged() -> None:
    async with answering(reply(b'{"action": "reject", "score": 16, "required_score": 15}')) as port:
        url = f"http://127.0.0.1:{port}"
        for size in (2_000, 500_000):
            host = load(url=url, bytes_max=1_000 if size < 10_000 else 400_000)
            await received(host, letter(b"x" * size))
            assert {"plugin": "rspamd", "counter": "too_large", "value": 1} in host.statistics()


@pytest.mark.parametrize("found", [{}, {"action": "rewrite subject", "score": 9.5, "required": 15, "symbols": []}])
async def test_fields_of_others_go(found: dict[str, Any]) -> None:
    """Only ours are there, in mail without a judgement too."""
    delivery = Delivery(1, "m", "default", "b.test", "ann@a.test", [Recipient("bob@b.test")], 9, 1)
    delivery.notes = {"rspamd": found} if found else {}
    headers = Headers.parse(b"X-Spam: No\r\nX-Spam-Score: -5\r\nSubject: =?utf-8?q?=C3=A4?=\r\n")
    await load().call("sender_headers", delivery=delivery, headers=headers)
    if found:
        assert headers.build() == (
            b"Subject: [SPAM] =?utf-8?q?=C3=A4?=\r\nX-Spam-Score: 9.50 / 15.00\r\nX-Spam: Yes\r\n"
        )
    else:
        assert headers.build() == b"Subject: =?utf-8?q?=C3=A4?=\r\n"


def test_the_example_of_its_page() -> None:
    import plugins.rspamd as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins, Configured(frozenset(("default", "suspect", "shop-suspect"))))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"url": "localhost:11333"}, "is not a URL such as http://127.0.0.1:11333"),
        ({"timeout_s": 30}, "must be below plugins.timeout_s, which is 30"),
        ({"zone": "bluk"}, "there is no zone 'bluk'; there are bulk, default"),
        ({"tenant_zones": {"shop": "x"}}, "there is no zone 'x'"),
    ],
)
def test_mistakes(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(("default", "bulk"), **more)
    assert sentence in str(caught.value)
