"""The configuration: what loads, and that every mistake is one sentence with file, key and remedy."""

import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from zonemta_py.config import Config, ConfigError, load, processes
from zonemta_py.config.secret import hidden
from zonemta_py.reference import effective, reference

CONFIG = Path(__file__).parent.parent / "config"
HIDDEN = "(hidden, see the file)"
CONFIGURATIONS = sorted(path for path in CONFIG.glob("*.toml") if path.name not in ("rules.toml", "providers.toml"))


def written(folder: Path, text: str) -> Path:
    path = folder / "zonemta.toml"
    path.write_text(text)
    return path


def test_no_file_means_the_defaults() -> None:
    """A relay on loopback with one zone, its queue in the user's home."""
    config = load(None)
    assert [(listener.address, listener.port) for listener in config.listeners] == [("127.0.0.1", 2525)]
    assert config.default_zone.name == "default"
    assert config.folder == Path.home() / ".local/state/zonemta"


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_every_configuration_we_ship_loads(path: Path) -> None:
    """Examples that do not work are worse than none."""
    assert load(path).zones


def test_the_reference_is_up_to_date() -> None:
    """config/zonemta.toml is what the classes say; `python -m zonemta_py.reference > config/zonemta.toml` makes it."""
    assert (CONFIG / "zonemta.toml").read_text() == reference()


def test_the_reference_means_the_defaults() -> None:
    """Everything in it is commented out, or at its default."""
    assert load(CONFIG / "zonemta.toml") == Config()


def test_the_reference_uncommented_means_the_defaults(tmp_path: Path) -> None:
    """Every commented key is shown with the value that it has without being there; tables of which there is none are
    only outlined."""
    text = re.sub(r"^#\[\[.*?(?=^\[)", "", reference(), flags=re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("#") if line[:2] not in ("# ", "#") else line for line in text.splitlines()]
    text = "\n".join(line for line in lines if not line.endswith("= …"))
    assert load(written(tmp_path, text)) == Config()


def test_the_reference_explains_every_key() -> None:
    """No key without a comment above it."""
    lines = reference().splitlines()
    keys = [n for n, line in enumerate(lines) if "=" in line and (line[:1].isalpha() or line[1:2].isalpha())]
    assert len(keys) > 60
    assert all(lines[n - 1].startswith("# ") for n in keys)


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_what_show_prints_means_the_same(path: Path, tmp_path: Path) -> None:
    """The effective configuration, loaded again, is the configuration, but for the secrets, which are hidden."""
    config = load(path)
    zones = [z.model_copy(update={"password": HIDDEN if z.password else ""}) for z in config.zones]
    return_path = config.return_path.model_copy(update={"secret": HIDDEN if config.return_path.secret else ""})
    users = dict.fromkeys(config.users, HIDDEN)
    hidden = config.model_copy(update={"users": users, "zones": zones, "return_path": return_path})
    assert load(written(tmp_path, effective(config))) == hidden


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_survives_being_shown(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Quotes, controls and every script: a value is shown as TOML that means the same value, unless it is a secret."""
    assume(hidden(text, "shown", plugins=True) == "shown")
    config = Config.model_validate(
        {
            "server": {"group": text, "user": "u", "folder": "/q"},
            "plugins": {"options": {text: {text: [text, 1, True]}}},
        }
    )
    assert load(written(tmp_path_factory.mktemp("c"), effective(config))) == config


MISTAKES = [
    ("[server]\nhostname = 'a'\nhostname = 'b'", "is not TOML", "correct that line"),
    ("[server", "is not TOML", "correct that line"),
    ("[sever]", "unknown key sever", "did you mean 'server'?"),
    ("[server]\nhosname = 'x'", "unknown key server.hosname", "did you mean 'hostname'?"),
    ("[server]\nname = 'x'", "unknown key server.name", "did you mean 'hostname'?"),
    ("[[zones]]\nname = 'z'\nprot = 25", "unknown key zones[z].prot", "did you mean 'port'?"),
    ("[server]\nxyzzy = 1", "unknown key server.xyzzy", "`zonemta config show`"),
    ("[http]\nlistener = 'x'", "unknown key http.listener", "there are enabled, address, port"),
    ("[[listeners]]\nlisten = 'x'", "unknown key listeners[0].listen", "there are name, address, port"),
    ("[http]\nreceivers = 2", "unknown key http.receivers", "it belongs in [server]"),
    ("[server]\nzones = 1", "unknown key server.zones", "'zones' is a section of its own"),
    ("[server]\nreceivers = 'many'", "server.receivers: should be a valid integer", "not 'many'"),
    ("[server]\nreceivers = -1", "server.receivers: should be greater than or equal to 0", "not '-1'"),
    ("[server]\nlog_level = 'loud'", "server.log_level: should be 'debug', 'info', 'warning' or 'error'", "not 'loud'"),
    ("server = 1", "server: should be a valid dictionary", "not '1'"),
    ("[[listeners]]\nname = 'in'\nport = 99999", "listeners[in].port: should be less than or equal to 65535", "99999"),
    ("[[listeners]]\naddress = 'localhost'", "listeners[0].address: 'localhost' is not an IP address", "127.0.0.1"),
    ("[[listeners]]\nrelay_networks = ['10.0.0.1/8']", "'10.0.0.1/8' is not a network", "such as 192.0.2.0/24"),
    ("[[listeners]]\ntls = 'starttls'", "tls = 'starttls' needs certificate", "a PEM file"),
    ("[[listeners]]\nauth = true", "auth = true needs tls", "must not travel in the clear"),
    ("[[listeners]]\nrequire_tls = true", "require_tls = true needs tls", "'starttls' or 'implicit'"),
    ("[[listeners]]\n[[listeners]]", "two listeners are named 'smtp'", "give each its own name"),
    ("zones = []", "there is no zone", "add a [[zones]] table"),
    ("[[zones]]\nhost = 'x'", "zones[0].name: is missing", "give it a value"),
    ("[[zones]]\nname = 'a'\n[[zones]]\nname = 'a'", "two zones are named 'a'", "give each its own name"),
    ("[[zones]]\nname = 'a b'", "zones[a b].name: String should match pattern", "not 'a b'"),
    ("[[zones]]\nname = 'a'\nconnections = 0", "zones[a].connections: should be greater than or equal to 1", "not '0'"),
    ("[[zones]]\nname = 'a'\ndefault = true\n[[zones]]\nname = 'b'\ndefault = true", "more than one zone", "in one"),
    ("[[zones]]\nname = 'a'\nsources = ['eth0']", "'eth0' is not an IP address", "such as"),
    ("[[zones]]\nname = 'a'\norigins = ['here']", "'here' is not a network", "such as"),
    ("[[zones]]\nname = 'a'\nsender_domains = ['a@b.c']", "'a@b.c' is not a domain", "such as example.com"),
    ("[[zones]]\nname = 'a'\nrecipient_domains = ['*x.org']", "'*x.org' is not a domain", "such as example.com"),
    (
        "[[zones]]\nname = 'a'\nsender_domains = ['x.org']\n[[zones]]\nname = 'b'\nsender_domains = ['X.org.']",
        "zones 'a' and 'b' both claim sender_domains 'X.org.'", "keep it in one",
    ),
    (
        "[[zones]]\nname = 'a'\nsender_domains = ['ü.org']\n[[zones]]\nname = 'b'\nsender_domains = ['xn--tda.org']",
        "zones 'a' and 'b' both claim sender_domains 'xn--tda.org'", "keep it in one",
    ),
    (
        "[[zones]]\nname = 'a'\nheaders = {List-Id = '*x*'}\n[[zones]]\nname = 'b'\nheaders = {list-id = '*X*'}",
        "zones 'a' and 'b' both claim headers 'list-id: *X*'", "keep it in one",
    ),
    ("[[zones]]\nname = 'a'\nheaders = {'List-Id:' = 'x'}", "'List-Id:' is not the name of a header field", "such as"),
    ("[[zones]]\nname = 'a'\nusername = 'u'", "username needs host and tls", "a password must not travel in the clear"),
    ("[retry]\nschedule_min = [5, 0]", "retry.schedule_min[1]: should be greater than 0", "not '0'"),
    (
        "[[listeners]]\nname = 'a'\n[[listeners]]\nname = 'b'",
        "listeners 'a' and 'b' are both at 127.0.0.1 port 2525", "give each its own",
    ),
    ("[http]\nenabled = true\nport = 2525", "'smtp' and 'http' are both at 127.0.0.1 port 2525", "give each its own"),
    ("[retry]\nschedule_min = []", "retry.schedule_min: is empty", "give it a value, or leave it out"),
    ("[retry]\nlife_h = '2 days'", "retry.life_h: should be a valid number", "not '2 days'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "what", "remedy"), MISTAKES, ids=[what[:40] for _, what, _ in MISTAKES])
def test_a_mistake_is_one_sentence_with_file_key_and_remedy(tmp_path: Path, text: str, what: str, remedy: str) -> None:
    """Whatever is wrong, one line names the file, the key and what to do."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert what in sentence
    assert remedy in sentence
    assert "\n" not in sentence


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With what the operating system says."""
    with pytest.raises(
        ConfigError, match=r"absent\.toml: cannot be read \(No such file or directory\); name an existing"
    ):
        load(tmp_path / "absent.toml")


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """Latin-1 files happen."""
    path = tmp_path / "latin.toml"
    path.write_bytes(b"[server]\nhostname = 'gr\xfcn'")
    with pytest.raises(ConfigError, match="is not UTF-8 text; save it as UTF-8"):
        load(path)


@pytest.mark.parametrize("rule", ["example.com", "*.example.com", "*", "bücher.example", "[192.0.2.1]", "localhost"])
def test_domain_rules_that_are_good(rule: str) -> None:
    """Names, subdomains, everything, U-labels, and what local networks use."""
    assert Config.model_validate({"zones": [{"name": "a", "recipient_domains": [rule]}]}).zones[
        0
    ].recipient_domains == [rule]


def test_zero_processes_means_half_of_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one; a number given is taken."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert (processes(0), processes(3)) == (4, 3)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert processes(0) == 1


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ~ means nothing, the sentence says which key to set."""

    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(ConfigError, match=r"server\.folder: .*name one that begins with /"):
        _ = Config().folder
