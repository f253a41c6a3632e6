"""`zonemta send`: a program's message goes in as `sendmail -t` would take it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

from zonemta_py.cli.send.commands import ServerAddress, compose, door
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.config import Config, Listener
from zonemta_py.mail.addresses.link import decode
from zonemta_py.sink import Sink, SinkOptions

MESSAGE = b"""\
From: Ann <ann@example.com>
To: bob@x.org, Carl <carl@y.org>
Cc: dora@z.org
Bcc: eve@z.org
Subject: Hi

Hello
"""


def composed(raw: bytes = MESSAGE, recipients: tuple[str, ...] = (), **options: object) -> tuple[str, list[str], bytes]:
    return compose(raw, list(recipients), **{"from_header": True, "sender": None, "whole": True, **options})  # type: ignore[arg-type]


def test_recipients_come_from_the_header() -> None:
    """-t takes To, Cc and Bcc, adds those of the command line, each once, and the sender is From's."""
    sender, recipients, _ = composed(recipients=("fred@x.org", "bob@x.org"))
    assert sender == "ann@example.com"
    assert recipients == ["fred@x.org", "bob@x.org", "carl@y.org", "dora@z.org", "eve@z.org"]


def test_bcc_is_taken_out_and_nothing_else() -> None:
    """Only the Bcc field goes, folds and all; every other byte stays, with CRLF line ends."""
    raw = b"To: a@b.c\nBcc: eve@z.org,\n  mallory@z.org\nX: 1\n\nbcc: stays\n"
    _, recipients, message = composed(raw, sender="s@x.org")
    assert message == b"To: a@b.c\r\nX: 1\r\n\r\nbcc: stays\r\n"
    assert recipients == ["a@b.c", "eve@z.org", "mallory@z.org"]


def test_without_t_the_header_is_not_looked_at() -> None:
    """The recipients are the arguments, and Bcc stays where it is."""
    _, recipients, message = composed(recipients=("x@y.z",), from_header=False)
    assert recipients == ["x@y.z"]
    assert b"Bcc: eve@z.org\r\n" in message


@pytest.mark.parametrize(
    ("raw", "whole", "expected"),
    [
        (b"a: b\n\nline\n.\nmore\n", False, b"a: b\r\n\r\nline\r\n"),
        (b"a: b\n\nline\n.\nmore\n", True, b"a: b\r\n\r\nline\r\n.\r\nmore\r\n"),
        (b"a: b\r\n\r\nline", True, b"a: b\r\n\r\nline\r\n"),
        (b"a: b\r\rline\r", True, b"a: b\r\n\r\nline\r\n"),
        (b"", True, b""),
    ],
)
def test_line_ends_and_the_lone_dot(raw: bytes, whole: bool, expected: bytes) -> None:
    """Any line end becomes CRLF; without -i a lone dot ends the input, as with sendmail."""
    assert composed(raw, ("x@y.z",), from_header=False, whole=whole)[2] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("b@x.org,c@x.org", ["b@x.org", "c@x.org"]),
        ("b@x.org, <c@x.org> , ,", ["b@x.org", "c@x.org"]),
        ('"Doe, J." <b@x.org>, Carl (a, b@y) <c@x.org>', ["b@x.org", "c@x.org"]),
        ("b@x.org (Bob (one \\) of them), c@z.org), c@x.org", ["b@x.org", "c@x.org"]),
        ("friends: b@x.org, C <c@x.org>;, d@x.org", ["b@x.org", "c@x.org", "d@x.org"]),
        ("undisclosed-recipients:;, b@x.org", ["b@x.org"]),
        ("user..name.@x.org,.u@x.org", ["user..name.@x.org", ".u@x.org"]),
        ("g: b@x.org; c@x.org", ["b@x.org", "c@x.org"]),
        ('"a, b"@x.org, c@[192.0.2.1], d@[IPv6:::1]', ['"a, b"@x.org', "c@[192.0.2.1]", "d@[IPv6:::1]"]),
        ("Bob@X.ORG, postmaster", ["Bob@x.org", "postmaster"]),
    ],
)  # fmt: skip
def test_all_of_a_list(given: str, expected: list[str]) -> None:
    """An argument, or a field under -t, is a list of addresses: everybody gets the message."""
    assert composed(recipients=(given,), from_header=False)[1] == expected
    assert composed(f"From: a@b.c\nTo: {given}\n\nhi\n".encode())[1] == expected


@pytest.mark.parametrize(
    "given",
    [
        "b@x.org c@x.org", "b@x.org;c@x.org", "<b@x.org> <c@x.org>", "b@x.org <c@x.org>", "<b@x.org> c@x.org",
        "b@x.org (Bob", '"b@x.org', "b@x.org>", "<b@x.org", "a@x@y.org", "a b", "bob", "b@x.org, bob",
        "<b@x.org> NOTIFY=NEVER", "[b@x.org", "b@x.org,<>", "mailto:b@x.org,c", "<@r.org:b@x.org>",
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_read_is_refused(given: str) -> None:
    """Whole: nobody in it gets the message while others do not, and status 0 would say that all do."""
    with pytest.raises(CommandError, match="is not an address") as caught:
        composed(recipients=("a@b.c", given), from_header=False)
    assert caught.value.code == Exit.USAGE
    with pytest.raises(CommandError, match="is not an address"):
        composed(f"From: a@b.c\nTo: a@b.c\nCc: {given}\n\nhi\n".encode())


def test_one_sender() -> None:
    """Of several only one could get what comes back."""
    with pytest.raises(CommandError, match=r"'a@s\.org,b@s\.org' names 2 senders; give one"):
        composed(sender="a@s.org,b@s.org")
    assert composed(sender="Joe (me) <a@s.org>")[0] == "a@s.org"
    assert composed(b"From: Doe, J <b@s.org>, c@s.org\nTo: a@b.c\n\nhi\n")[0] == "b@s.org"


def test_the_line_of_an_mbox() -> None:
    """Programs hand a message in with the line that stands before it in an mbox; the header stays the header."""
    for line in (b"From joe@x.org Sat Nov 28 22:00:00 2026\n", b">From joe\r\n"):
        assert composed(line + MESSAGE)[2] == composed()[2]
    text = b"From here it is far.\nReally\n"
    assert composed(text, ("a@b.c",), from_header=False)[2] == text.replace(b"\n", b"\r\n")


def test_a_name_in_another_charset_and_a_fold_by_tab() -> None:
    """What stands beside the addresses is not ours to judge."""
    raw = "From: Jürgen <j@s.org>\nTo: K\xf6ln <a@b.c>,\n\tb@b.c\n\nhi\n".encode("latin-1")
    assert composed(raw)[:2] == ("j@s.org", ["a@b.c", "b@b.c"])


@pytest.mark.parametrize(("given", "sender"), [("a@b.c", "a@b.c"), ("<a@b.c>", "a@b.c"), ("<>", ""), ("", "")])
def test_the_sender_can_be_named_or_be_nobody(given: str, sender: str) -> None:
    """-f wins over From; <> is the null return path."""
    assert composed(sender=given)[0] == sender


def test_a_message_for_nobody_is_refused() -> None:
    """With what to do about it."""
    with pytest.raises(CommandError, match="no recipients; name some, or use -t") as caught:
        composed(b"Subject: x\n\n")
    assert caught.value.code == Exit.USAGE


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ([{}], ServerAddress("127.0.0.1", 2525, "none")),
        ([{"address": "0.0.0.0"}], ServerAddress("127.0.0.1", 2525, "none")),
        ([{"address": "::"}], ServerAddress("::1", 2525, "none")),
        ([{"proxy_protocol": True}, {"name": "b", "port": 26}], ServerAddress("127.0.0.1", 26, "none")),
        ([{"tls": "implicit"}, {"name": "b", "port": 26}], ServerAddress("127.0.0.1", 26, "none")),
        ([{"tls": "implicit"}], ServerAddress("127.0.0.1", 2525, "implicit")),
        ([{"tls": "starttls", "require_tls": True}], ServerAddress("127.0.0.1", 2525, "starttls")),
        ([{"tls": "starttls"}], ServerAddress("127.0.0.1", 2525, "none")),
    ],
)
def test_the_easiest_listener_is_used(listeners: list[dict[str, object]], expected: ServerAddress) -> None:
    """The first one that a plain client on this machine can talk to; TLS only where it is demanded."""
    made = [Listener(**{"certificate": "x.pem", **listener}) for listener in listeners]  # type: ignore[arg-type]
    assert door(Config(listeners=made), None, None) == expected


def test_host_and_port_override(zonemta: Callable[..., object]) -> None:
    """A host without a port means port 25; a port alone is the listener's address with that port."""
    assert door(Config(), "mx.example.com", None) == ServerAddress("mx.example.com", 25, "none")
    assert door(Config(), None, 2626) == ServerAddress("127.0.0.1", 2626, "none")


class Running:
    """A sink in a thread, since the command under test blocks this one."""

    def __init__(self, *rules: str, capabilities: tuple[str, ...] = ("8BITMIME", "SMTPUTF8", "DSN")) -> None:
        self.options = SinkOptions(("127.0.0.1:0",), rules=rules, capabilities=capabilities, keep=True)
        self.ready, self.thread = threading.Event(), threading.Thread(target=lambda: asyncio.run(self.run()))

    async def run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        async with Sink(self.options) as self.sink:
            self.ready.set()
            await self.end.wait()

    def __enter__(self) -> Sink:
        self.thread.start()
        assert self.ready.wait(60)
        return self.sink

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join()


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Running() as sink:
        yield sink


def test_a_message_arrives_as_it_was_written(zonemta: Callable[..., object], sink: Sink) -> None:
    """Sender, recipients and every byte; silence and exit status 0."""
    ran = zonemta("send", "-t", "-oi", "--port", sink.port, "-f", "x@y.z", stdin=MESSAGE + b".\n..dots\n")
    assert ran == (0, "", "")
    (message,) = sink.messages
    assert (message.sender, len(message.recipients)) == ("x@y.z", 4)
    assert message.body == (MESSAGE + b".\n..dots\n").replace(b"Bcc: eve@z.org\n", b"").replace(b"\n", b"\r\n")


def test_what_is_not_ascii_is_announced(zonemta: Callable[..., object], sink: Sink) -> None:
    """BODY=8BITMIME for bytes above 127, SMTPUTF8 for such addresses."""
    assert zonemta("send", "--port", sink.port, "-f", "ü@y.z", "bob@x.org", stdin="\nGrüße\n".encode()).code == 0
    assert sink.messages[0].sender == "ü@y.z"
    assert {"BODY=8BITMIME", "SMTPUTF8"} <= set(sink.messages[0].parameters[0].upper().split())


def test_addresses_are_sent_as_they_were_checked(zonemta: Callable[..., object], sink: Sink) -> None:
    """Nothing reads them once more on the way: what is odd arrives as odd as it was."""
    odd = ['"a, b"@x.org', '"<c>"@x.org', "user..name.@x.org", '"q\\\\"@x.org']
    assert zonemta("send", "--port", sink.port, "-f", '"s (t)"@x.org', *odd, stdin=b"\nx\n") == (0, "", "")
    assert (sink.messages[0].sender, sink.messages[0].recipients) == ('"s (t)"@x.org', odd)


def test_who_is_refused_does_not_stop_the_others(zonemta: Callable[..., object]) -> None:
    """A transaction of which nobody is taken is followed by the next one; the sentence counts who was taken."""
    addresses = [*(f"no{n}@x.org" for n in range(1_000)), *(f"u{n}@x.org" for n in range(200))]
    with Running("rcpt:/no/ 550 5.1.1 unknown") as sink:
        ran = zonemta("send", "--port", sink.port, *addresses, stdin=b"\nx\n")
    assert (ran.code, "and 999 more" in ran.err, ran.err.count("accepted for the other 200")) == (Exit.NO_USER, True, 1)
    assert [len(message.recipients) for message in sink.messages] == [200]


def test_more_recipients_than_one_transaction_takes(zonemta: Callable[..., object], sink: Sink) -> None:
    """They are sent in several, each within the configured limit."""
    addresses = [f"u{n}@x.org" for n in range(1_200)]
    assert zonemta("send", "--port", sink.port, *addresses, stdin=b"\nx\n").code == 0
    assert [len(message.recipients) for message in sink.messages] == [1_000, 200]


@pytest.mark.parametrize(
    ("rule", "code", "said"),
    [
        ("rcpt 550 5.1.1 unknown", Exit.NO_USER, "refused bob@x.org and 1 more: 550 5.1.1 unknown"),
        (
            "rcpt:/carl/ 550 5.1.1 unknown",
            Exit.NO_USER,
            "refused carl@x.org: 550 5.1.1 unknown; accepted for the other 1",
        ),
        ("rcpt 450 4.2.1 later", Exit.TEMPORARY, "refused bob@x.org and 1 more: 450 4.2.1 later"),
        ("mail 550 5.7.1 not you", Exit.UNAVAILABLE, "refused: 550 5.7.1 not you"),
        ("dot 452 4.3.1 full", Exit.TEMPORARY, "refused: 452 4.3.1 full"),
        ("data close", Exit.TEMPORARY, "hung up"),
        ("connect 554 go away", Exit.UNAVAILABLE, "refused: 554 go away"),
    ],
)
def test_a_refusal_is_one_sentence(zonemta: Callable[..., object], rule: str, code: Exit, said: str) -> None:
    """With what the server said, and an exit status that tells lasting from passing."""
    with Running(rule) as sink:
        ran = zonemta("send", "--port", sink.port, "bob@x.org", "carl@x.org", stdin=b"\nx\n")
    assert ran.code == code
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("-f", "nonsense", "a@b.c"), ("-f", "a@", "a@b.c"), ("a@b.c", "bob"), ("a@b c",)]
)
def test_a_command_line_without_addresses(zonemta: Callable[..., object], arguments: tuple[str, ...]) -> None:
    """It is wrong, whatever the server says; postmaster, and no sender, are meant as they stand."""
    with Running() as sink:
        ran = zonemta("send", "--port", sink.port, *arguments, stdin=b"\nx\n")
        assert (ran.code, ran.err.count("is not an address; write it like ann@example.com")) == (Exit.USAGE, 1)
        assert not sink.messages
        assert zonemta("send", "--port", sink.port, "-f", "<>", "postmaster", "a@b.c", stdin=b"\nx\n").code == 0


@pytest.mark.parametrize("address", ["a@b.c\nRCPT TO:<x@y.z>", "a@b.c\r", "a\udcff@b.c", "a@b.c\td@e.f"])
def test_what_is_no_address_is_a_sentence(address: str) -> None:
    """Line ends, control characters and bytes that are no UTF-8 are refused here, as sender and as recipient."""
    for sender, recipients in (("s@x.org", (address,)), (address, ("a@b.c",))):
        with pytest.raises(CommandError, match="is not an address") as caught:
            composed(recipients=recipients, from_header=False, sender=sender)
        assert caught.value.code == Exit.USAGE
        assert str(caught.value).isprintable()


def test_a_user_without_a_name_can_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system knows no name for the user id, the id itself makes the return path."""
    monkeypatch.setattr("getpass.getuser", lambda: {}["no such user"])
    assert composed(b"To: a@b.c\n\nx\n")[0].startswith("uid")


def test_what_programs_give_to_sendmail(zonemta: Callable[..., object], sink: Sink) -> None:
    """Options that others' sendmail takes: -oi holds among other -o, and -bm, -F and -B change nothing."""
    options = ("-bm", "-oi", "-oem", "-odb", "-F", "Cron Daemon", "-B8BITMIME", "-fs@x.org")
    assert zonemta("send", *options, "--port", sink.port, "--", "a@b.c", stdin=b"X: 1\n\n.\nend\n").code == 0
    assert sink.messages[0].body.endswith(b"end\r\n")
    assert sink.messages[0].sender == "s@x.org"
    refused = zonemta("send", "-bs")
    assert (refused.code, refused.err.count("\n")) == (Exit.USAGE, 1)


def test_smtputf8_needs_a_server_that_knows_it(zonemta: Callable[..., object]) -> None:
    """An address beyond ASCII cannot go to a server without SMTPUTF8; the sentence says so."""
    with Running(capabilities=("8BITMIME",)) as sink:
        ran = zonemta("send", "--port", sink.port, "ü@x.org", stdin=b"\nx\n")
    assert ran.code == Exit.UNAVAILABLE
    assert "SMTPUTF8" in ran.err


def test_a_campaign_is_tested_with_ones_own_mailbox(zonemta: Callable[..., object], sink: Sink, tmp_path: Path) -> None:
    """The message that the list's recipient would get, at once, to oneself alone; byte for byte but for its date."""
    (tmp_path / "t.toml").write_text(
        'subject = "Hi {{ name }}"\nfrom = "news@b.net"\nheaders = { X-Deliver-After = "3600" }\n'
        'text = """\nDear {{ name }}\n"""\n'
    )
    (tmp_path / "l.csv").write_text("E-Mail;Vorname\nann@x.org;Ann\nbob@x.org;J\u00f6rg\n")
    words = (tmp_path / "t.toml", "--list", tmp_path / "l.csv", "--map", "name=Vorname", "--recipient", "Bob@x.org")
    ran = zonemta("campaign", "test", *words, "--to", "Me <me@example.org>", "--port", sink.port)
    said = "the message of bob@x.org is in the queue for me@example.org\n"
    assert (ran.code, ran.out) == (Exit.OK, said), ran.err
    (message,) = sink.messages
    assert (message.sender, message.recipients) == ("news@b.net", ["me@example.org"])
    assert "X-Deliver-After" not in message.body.decode()
    assert "To: bob@x.org\r\nSubject: =?utf-8?" in message.body.decode()
    shown = zonemta("campaign", "preview", *words, "--campaign", "test").out.replace("\n", "\r\n").splitlines()
    dated = ("Date:", "X-Deliver-After:")
    assert [line for line in message.body.decode().splitlines() if not line.startswith(dated)] == [
        line for line in shown if not line.startswith(dated)
    ]


def test_the_links_of_a_test_are_the_testers(zonemta: Callable[..., object], sink: Sink, tmp_path: Path) -> None:
    """Signed as those of the campaign, of the tester's own address; without [links] it is refused, as sending is."""
    secret, config, letter = "0123456789abcdef", tmp_path / "c.toml", tmp_path / "t.toml"
    letter.write_text(
        'subject = "Hi"\nfrom = "news@b.net"\nheaders = { X-Unsubscribe = "campaign" }\n'
        'text = """\n{{ name }}\n{{ unsubscribe_url }}\n{{ preferences_url }}\n"""\n'
    )
    words = ("campaign", "test", letter, "--field", "name=Ann", "--to", "me@x.org", "--to", "you@x.org")
    (tmp_path / "none.toml").write_text("")
    refused = zonemta(*words, "--port", sink.port, "--config", tmp_path / "none.toml")
    assert (refused.code, sink.messages) == (Exit.CONFIG, [])
    assert "the template prints preferences_url, which a server makes that has [links] enabled" in refused.err
    config.write_text(f'[links]\nenabled = true\nurl = "https://mail.b.net"\nsecrets = ["{secret}"]\n')
    ran = zonemta(*words, "--port", sink.port, "--config", config)
    assert (ran.code, "leaves by the tester's own address" in ran.out) == (Exit.OK, True), ran.err
    for message, who in zip(sink.messages, ("me@x.org", "you@x.org"), strict=True):
        assert message.recipients == [who]
        text = message_from_bytes(message.body).get_payload(decode=True).decode()
        found = [decode(url.rpartition("/")[2], [secret]) for url in text.split()[1:]]
        assert [(one.purpose, one.recipient, one.scope) for one in found] == [
            ("unsubscribe", who, "campaign"), ("preferences", who, "campaign"),
        ]  # fmt: skip


def test_a_campaign_test_says_what_is_in_its_way(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """A template that is not sound, nobody to send to, no MTA."""
    (tmp_path / "t.toml").write_text('subject = "Hi"\nfrom = "news@b.net"\ntext = """\n{{ name }}\n"""\n')
    ran = zonemta("campaign", "test", tmp_path / "t.toml", "--to", "me@x.org")
    assert (ran.code, "'name' is undefined" in ran.err) == (Exit.DATA, True)
    ran = zonemta("campaign", "test", tmp_path / "t.toml", "--to", "me@x.org", "--field", "name=A", "--port", "1")
    assert (ran.code, "start the MTA with `zonemta run`" in ran.err) == (Exit.TEMPORARY, True)
    ran = zonemta("campaign", "test", tmp_path / "t.toml")
    assert (ran.code, "--to" in ran.err) == (Exit.USAGE, True)
