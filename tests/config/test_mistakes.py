"""Mistakes of operators, by the dozen (mistakes.txt): each is told by `zonemta config check`, with the key."""

import contextlib
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from zonemta_py.cli.config.commands import check
from zonemta_py.cli.run.commands import configured
from zonemta_py.config import Config, ConfigError, load
from zonemta_py.reference import effective

HERE = Path(__file__).parent


def mistakes(name: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """(words of the sentence, configuration)"""
    for block in re.split(r"^=== ", (HERE / name).read_text(), flags=re.MULTILINE)[1:]:
        words, _, text = block.partition("\n")
        yield tuple(words.split(", ")), text


def is_said(words: tuple[str, ...], sentence: str) -> bool:
    """A table may be named zones[bulk], zones.bulk or zone 'bulk'."""
    return all(
        any(
            form in sentence for form in (word, word.replace("[", ".").strip("]"), re.sub(r"s\[(.*)\]", r" '\1'", word))
        )
        for word in words
    )


def _by_table() -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """By the first table of each: a test for each mistake takes longer than the mistake."""
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for words, text in [*mistakes("mistakes.txt"), *mistakes("mistakes_unseen.txt")]:
        table = re.search(r"^\[+([\w.]+)\]", text, re.MULTILINE)
        found.setdefault(table[1].partition(".")[0] if table else "none", []).append((words, text))
    return found


MISTAKES = _by_table()


def sentences(file: Path) -> list[str]:
    """All that `zonemta config check` has to say about a file."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("zonemta").addHandler(handler)
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            check(file)
        except ConfigError as error:
            print(error, file=said)
    logging.getLogger("zonemta").removeHandler(handler)
    return said.getvalue().splitlines()


@pytest.fixture(scope="module")
def folder(shared_memory: Path) -> Path:
    """With the files that the configurations name."""
    here = shared_memory / "etc"
    here.mkdir()
    authority = trustme.CA()
    mine, others = authority.issue_cert("mx.test"), authority.issue_cert("mx.test")
    (here / "good.pem").write_bytes(mine.private_key_and_cert_chain_pem.bytes())
    (here / "cert.pem").write_bytes(mine.cert_chain_pems[0].bytes())
    (here / "key.pem").write_bytes(mine.private_key_pem.bytes())
    (here / "other.pem").write_bytes(others.private_key_pem.bytes())
    key = Ed25519PrivateKey.generate()
    (here / "dkim.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (here / "pub.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (here / "empty.pem").write_text("")
    (here / "notes.txt").write_text("call Bob\n")
    (here / "badregex.toml").write_text("[[rules]]\nname = 'x'\nclass = 'spam'\ntext = '(unclosed'\n")
    (here / "broken.py").write_text("async def smtp_mail(:\n")
    (here / "there").mkdir()
    (here / "badtexts").mkdir()
    (here / "badtexts" / "en.toml").write_text("signatur = 'x'\n")
    return here


@pytest.mark.parametrize("table", sorted(MISTAKES))
def test_a_mistake_is_named(folder: Path, table: str) -> None:
    """In one sentence."""
    file = folder / "zonemta.toml"
    missed: list[tuple[tuple[str, ...], list[str]]] = []
    for words, text in MISTAKES[table]:
        file.write_text(text)
        said = sentences(file)
        if not any(is_said(words, sentence) for sentence in said):
            missed.append((words, said))
    assert missed == []


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """Of every table, also between tables, and nothing that only comes of another."""
    file = tmp_path / "zonemta.toml"
    file.write_text(
        "[server]\nhostname = 'mail acme'\nreciever = 2\n[[zones]]\nname = 'out'\npool = 'newz'\nconnections = 0\n"
        "[[zones]]\nname = 'Bulk'\n[[accounts]]\nname = 'a'\nnetworks = ['10.0.0.0/8']\nzone = 'out'\nkeys = ['k']\n"
        "[[dkim]]\ndomain = 'a.example'\nselector = 's'\n"
    )
    said = [sentence.removeprefix(f"{file}: ").partition(";")[0] for sentence in sentences(file)]
    assert sorted(one for one in said if "warning" not in one) == [
        "accounts[a].keys: there is no key 'k' in [[http.keys]]",
        "dkim[a.example].key: is missing",
        "server.hostname: 'mail acme' is no name for EHLO",
        "unknown key server.reciever",
        "zones[Bulk].name: String should match pattern '^[a-z0-9][a-z0-9._-]{0,62}$', not 'Bulk'",
        "zones[out].connections: should be greater than or equal to 1, not '0'",
        "zones[out].pool: there is no pool 'newz' in [[pools]]",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[zones]]\nname = 'a'\nport = 25\nport = 26\n", "line 4: port is there twice; keep one"),
        ("[server]\nhostname = 'a'\n[server]\nsenders = 1\n", "line 3: server is there twice; keep one"),
        ("zones = 1\n[[zones]]\nname = 'a'\n", "line 2: zones is there twice; keep one"),
        ("[server]\nhostname = a.example\nsenders = 1.2.3\n", "correct senders"),
    ],
)
def test_a_line_that_is_not_toml_names_its_key(tmp_path: Path, text: str, said: str) -> None:
    """And those that follow are looked at too."""
    file = tmp_path / "zonemta.toml"
    file.write_text(text)
    assert any(said in sentence for sentence in sentences(file)), sentences(file)


def test_paths_go_from_the_folder_of_the_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a command was started: of every key that is a path, and of a plugin's options too."""
    monkeypatch.chdir(tmp_path)
    file = folder / "paths.toml"
    (folder / "table.csv").write_text("a.example,mx.example\n")
    file.write_text(
        "[server]\nfolder = 'queue'\n[[listeners]]\ntls = 'starttls'\ncertificate = 'good.pem'\nkey = './good.pem'\n"
        "[tls]\nca_file = 'good.pem'\n[[dkim]]\ndomain = 'a.example'\nselector = 's'\nkey = 'dkim.pem'\n"
        "[notices]\ntexts = 'there'\n[plugins]\nenabled = ['custom_routing']\n"
        "[plugins.options.custom_routing]\ntable = 'table.csv'\n"
    )
    config = load(file)
    assert (config.folder, config.listeners[0].certificate) == (folder / "queue", folder / "good.pem")
    assert (config.tls.ca_file, config.dkim[0].key) == (folder / "good.pem", folder / "dkim.pem")
    assert config.notices.texts == folder / "there"
    assert [one for one in sentences(file) if "warning" not in one] == []
    assert configured(["--config", str(file), "--folder", "here"])[0].folder == tmp_path / "here"


@pytest.mark.parametrize("name", ["docker.toml", "routing.toml", "newsletter.toml", "bench.toml"])
def test_what_is_fine_stays_fine(name: str) -> None:
    """The configurations we ship are good; the only warnings are of this machine."""
    said = [one for one in sentences(HERE.parent.parent / "config" / name) if "started as root" not in one]
    assert [one for one in said if "this machine does not have the address" not in one] == []


def test_what_is_set_and_used_is_not_doubted(tmp_path: Path) -> None:
    """What `zonemta config show` prints has every key, most of them at defaults that mean nothing alone."""
    file = tmp_path / "zonemta.toml"
    secret = "nNbkOEgZ0p0nQe4rXUE2Fw3Yx1gU2hLkPZ"
    for text in (
        effective(Config()),
        "[limits]\nconnections = 50\nmessage_bytes = 50000\n[queue]\narchive_bytes = 100000000\n",
        "[http]\nenabled = false\nport = 8000\nrequests = 8\n[pull]\nenabled = true\nreserve_s = 90\n",
        "[http]\nenabled = true\n[[http.keys]]\nname = 'a'\nhash = '" + "a" * 64 + "'\nsenders = ['a.example']\n"
        "[[http.keys]]\nname = 'b'\nhash = '" + "b" * 64 + "'\nrights = ['pop']\nqueues = ['jobs']\n",
        "[[listeners]]\nrelay_networks = ['10.0.0.0/8']\n[[accounts]]\nname = 'a'\nnetworks = ['10.20.0.0/16']\n"
        "messages = ['20/s', '5000/h', '50000/day']\nrecipients = ['2/s', '10/min', '30/h']\nmessage_bytes = 1000\n",
        "[[pools]]\nname = 'p'\n[[pools.sources]]\naddress = '127.0.0.1'\nfamily = 'prefer-ipv6'\n[[zones]]\n"
        "name = 'z'\npool = 'p'\n[[throttles]]\nname = 't'\nper = ['source']\nconnections = 90\n",
        "[retry]\nlife_h = 2\nschedule_min = [1]\ndelay_notice_h = 1\n[[destinations]]\nname = 'd'\n"
        "domains = ['a.example']\nlife_h = 96\ndown_max_s = 60\n",
        f"[links]\nenabled = true\nurl = 'https://a.example'\nsecrets = ['{secret}']\ntrack = 'asked'\n"
        "track_tenants = ['acme']\n[return_path]\nlist_unsubscribe_zones = ['default']\n",
        "[[zones]]\nname = 'z'\nhosts = [{ host = 'a.example', weight = 1 }, { host = 'b.example', weight = 2 }]\n"
        "[[zones]]\nname = 'y'\nhost = '127.0.0.1'\nport = 2526\ncampaigns = true\n",
        "[[listeners]]\nport = 2600\n[[zones]]\nname = 'z'\nhost = 'a.example'\nport = 2600\n",
        "[[listeners]]\nport = 2465\n[[zones]]\nname = 'z'\nhost = 'a.example'\nport = 465\ntls = 'implicit'\n"
        "[[throttles]]\nname = 't'\nmessages = '10/min'\n[[throttles]]\nname = 'u'\nmessages = '50/day'\nburst = 20\n",
        "[suppression]\nfull = { after = 3, within_days = 5, over_days = 5 }\n"
        "[suppression.tenants.acme]\nautomatic = false\n",
        "[[accounts]]\nname = 'a'\nnetworks = ['127.0.0.1/32']\ntenant = 'shop1'\n[shares]\n"
        "tenants = { shop2 = 2, shop1 = 3, 'sho*' = 4, bakery = 1 }\n[server]\nfolder = '/srv/a$b/c'\n",
    ):
        file.write_text(text)
        file.chmod(0o600)
        assert [one for one in sentences(file) if "started as root" not in one] == [], text


@pytest.mark.parametrize(
    ("listener", "good"),
    [
        ("address = '0.0.0.0'\nrelay_networks = ['0.0.0.0/0']\nopen_relay = true", True),
        ("relay_networks = ['0.0.0.0/0']", True),  # nobody else reaches loopback
        ("relay_networks = ['0.0.0.0/0']\nproxy_protocol = true", False),
        ("address = '0.0.0.0'\nproxy_protocol = true\nproxy_networks = ['0.0.0.0/0']", False),
        ("address = '0.0.0.0'\nrelay_networks = ['0.0.0.0/2', '64.0.0.0/2', '128.0.0.0/1']", False),
        ("address = '::'\nrelay_networks = ['2000::/3']", False),
        ("address = '::'\nrelay_networks = ['fc00::/7', '10.0.0.0/8', '2001:db8::/32']", True),
    ],
)
def test_an_open_relay_is_said_twice(tmp_path: Path, listener: str, good: bool) -> None:
    """Else it is an error, of a start too."""
    file = tmp_path / "zonemta.toml"
    file.write_text(f"[[listeners]]\n{listener}\n")
    with contextlib.nullcontext() if good else pytest.raises(ConfigError, match="open relay"):
        load(file)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a.example", ("a.example", 25)), ("a.example:26", ("a.example", 26)), ("[::1]:26", ("::1", 26)),
        ("[::1]", ("::1", 25)), ("::1", ("::1", 25)), ("2001:db8::25", ("2001:db8::25", 25)),
        ("/run/lmtp.sock", ("/run/lmtp.sock", 25)), ("mail_1", ("mail_1", 25)), ("127.0.0.1:26", ("127.0.0.1", 26)),
        ("bücher.example.", ("bücher.example.", 25)), ("[2001:db8::1:25]", ("2001:db8::1:25", 25)),
    ],
)  # fmt: skip
def test_hosts_that_are_good(text: str, place: tuple[str, int]) -> None:
    """Names as Docker has them, addresses with and without brackets, sockets."""
    config = Config.model_validate({"zones": [{"name": "z", "hosts": [text, "other.example"]}]})
    assert config.zones[0].places[0] == place
    site = f"{text}:26" if place[1] == 25 and not text.startswith("::") and text != "2001:db8::25" else "mx.example"
    assert Config.model_validate({"destinations": [{"name": "d", "sites": [site], "life_h": 1}]}).destinations
