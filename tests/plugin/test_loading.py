"""Finding, importing and checking plugins: every mistake is one sentence with plugin, file, line and remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.config import ConfigError, Plugins, read
from zonemta_py.plugin import catalogue
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.loading import digest

MakeHost = Callable[..., Host]

WRONG = {
    "unknown hook": ("\nasync def smtp_rcptto(address): pass", "p1.py:2: there is no hook 'smtp_rcptto', did you mean"),
    "helper": ("async def fetch(): pass", "A helper's name begins with _"),
    "not async": ("def smtp_rcpt_to(address): pass", "p1.py:1: smtp_rcpt_to is a hook; define it with async def"),
    "generator": ("async def smtp_rcpt_to(address): yield 1", "define it with async def"),
    "no function": ("smtp_rcpt_to = 3", "define it with async def"),
    "argument": ("async def smtp_rcpt_to(adress): pass", "unknown argument 'adress', did you mean 'address'?"),
    "default": ("async def smtp_rcpt_to(address, x=1): pass", "The hook offers: address, session"),
    "star": ("async def smtp_rcpt_to(*all): pass", "'all' by position"),
    "positional": ("async def smtp_rcpt_to(address, /): pass", "'address' by position"),
    "syntax": ("x = 1\ndef :", "p1.py:2: is not valid Python"),
    "import": ("import json\nimport no_such_module_here", "p1.py:2: needs the module 'no_such_module_here'"),
    "import name": ("from zonemta_py.plugin import Rejekt", "p1.py:1: importing it raised ImportError"),
    "raises": ("x = 1\ny = x / 0", "p1.py:2: importing it raised ZeroDivisionError"),
    "exits": ("import sys\nsys.exit(3)", "p1.py:2: importing it raised SystemExit"),
    "setup waits": ("async def setup(api): pass", "p1.py:1: setup must be a plain def; nothing can await it yet"),
    "setup argument": ("def setup(app): pass", "setup takes 'app'; its arguments are api and options"),
    "setup raises": ("def setup(api):\n    raise ValueError('no key')", "p1.py:2: setup raised ValueError (no key)"),
    "setup exits": ("import sys\ndef setup(api): sys.exit()", "setup raised SystemExit"),
    "setup returns": ("def setup(api): return 1", "setup returned int"),
    "command twice": (
        "def setup(api):\n    api.command('a', lambda: None)\n    api.command('a', lambda: None)",
        "'a' is registered twice",
    ),
    "command name": ("def setup(api): api.command('A b', print)", "'A b' is not a command name"),
    "no model": ("class Options: pass", "must be a class Options(BaseModel)"),
}


@pytest.mark.parametrize(("source", "says"), WRONG.values(), ids=WRONG)
def test_mistakes_in_a_plugin(make_host: MakeHost, source: str, says: str) -> None:
    """It is refused at load, before any mail, by name and place."""
    with pytest.raises(PluginError) as caught:
        make_host(source)
    assert str(caught.value).startswith("plugin p1, /")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ConfigError)


OPTIONS = """
from pydantic import BaseModel, Field

class Options(BaseModel):
    limit: int = Field(10, le=100)
    names: list[str]

def setup(api, options):
    api.count("limit", options.limit)
"""


def test_options_reach_setup(make_host: MakeHost) -> None:
    """[plugins.options.NAME] is checked by the plugin's model and handed to setup."""
    host = make_host(OPTIONS, p1={"limit": 20, "names": []})
    assert host.statistics() == [{"plugin": "p1", "counter": "limit", "value": 20}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"names": [], "limit": 101}, "option limit: Input should be less than or equal to 100; got '101'"),
        ({"names": ["a", 1]}, "option names.1: Input should be a valid string; got '1'"),
        ({}, "option names: Field required; correct it in [plugins.options.p1]"),
        ({"names": [], "limt": 1}, "has no option 'limt', did you mean 'limit'? Options: limit, names"),
    ],
)
def test_wrong_options(make_host: MakeHost, options: dict[str, object], says: str) -> None:
    """Wrong, missing and unknown options name the key, the value, and the table to correct."""
    with pytest.raises(PluginError) as caught:
        make_host(OPTIONS, p1=options)
    assert "p1.py:4: " in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("options", [{"api_key": "hush"}, {"api_key": 7, "url": "https://me:hush@x.test"}, {}])
def test_mistakes_in_options_do_not_echo_what_is_secret(make_host: MakeHost, options: dict[str, object]) -> None:
    """Neither the value that is wrong, nor one beside it."""
    model = """
from pydantic import BaseModel, model_validator

class Options(BaseModel, extra="allow"):
    api_key: int = 0

    @model_validator(mode="before")
    def _check(cls, given):
        if "api_key" not in given or given["api_key"] == 7:
            raise ValueError("is not right")
        return given

def setup(api, options: Options):
    pass
"""
    with pytest.raises(PluginError, match="option ") as caught:
        make_host(model, p1=options | ({} if "api_key" in options else {"token": "hush"}))
    assert "hush" not in str(caught.value)


def test_options_for_a_plugin_that_takes_none(make_host: MakeHost) -> None:
    """They would be ignored, so they are refused."""
    with pytest.raises(PluginError, match="takes no options"):
        make_host("async def smtp_rcpt_to(): pass", p1={"x": 1})


def test_options_of_a_plugin_that_is_not_enabled(make_host: MakeHost, caplog: pytest.LogCaptureFixture) -> None:
    """A plugin may be switched off without deleting its options; the log says so, in case it is a slip."""
    make_host("async def smtp_rcpt_to(): pass", p11={"x": 1})
    assert "[plugins.options.p11] is not used: no such plugin is enabled, did you mean 'p1'?" in caplog.text


def test_a_name_that_does_not_exist() -> None:
    """The message lists what there is."""
    with pytest.raises(PluginError, match=r"plugin custom_ruting: is not installed, did you mean 'custom_routing'\?"):
        Host.load(Plugins(enabled=["custom_ruting"]))


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    """A path is taken as one, and must exist."""
    with pytest.raises(PluginError, match="there is no such file"):
        Host.load(Plugins(enabled=[str(tmp_path / "nothing.py")]))


def test_a_file_by_path(tmp_path: Path) -> None:
    """A path loads that file; its name without .py is the plugin's name; relative paths also start at the folder."""
    (tmp_path / "my-plugin.py").write_text("async def smtp_rcpt_to(): pass")
    for enabled in (str(tmp_path / "my-plugin.py"), "./my-plugin.py", "my-plugin.py"):
        host = Host.load(Plugins(enabled=[enabled], folder=tmp_path))
        assert [row["plugin"] for row in host.statistics()] == ["my-plugin"]


def test_a_plugin_enabled_twice(tmp_path: Path) -> None:
    """It would be called twice, which nobody means."""
    (tmp_path / "a.py").write_text("async def smtp_rcpt_to(): pass")
    with pytest.raises(PluginError, match="enabled twice"):
        Host.load(Plugins(enabled=["a", "./a.py"], folder=tmp_path))


def test_two_files_with_one_name(tmp_path: Path) -> None:
    """Both are named, and where the second gets a name of its own."""
    (tmp_path / "more").mkdir()
    for file in (tmp_path / "a.py", tmp_path / "more" / "a.py"):
        file.write_text("async def smtp_rcpt_to(): pass")
    with pytest.raises(PluginError) as caught:
        Host.load(Plugins(enabled=["a", "./more/a.py"], folder=tmp_path))
    assert f"has the name of {tmp_path / 'a.py'}" in str(caught.value)
    assert "[[plugins.instances]]" in str(caught.value)


def test_a_folder_that_is_no_plugin(tmp_path: Path) -> None:
    """The sentence says what it lacks."""
    (tmp_path / "links").mkdir()
    with pytest.raises(PluginError, match=r"plugin links, .*/links: has no __init__\.py"):
        Host.load(Plugins(enabled=["./links"], folder=tmp_path))


def test_two_plugins_with_one_command(make_host: MakeHost) -> None:
    """The second is refused and both are named."""
    with pytest.raises(PluginError, match=r"plugin p2, .*its command 'go' is also plugin p1's"):
        make_host("def setup(api): api.command('go', lambda: None)", "def setup(api): api.command('go', lambda: None)")


def test_bundled_plugins_load() -> None:
    """Every file in plugins/ that needs no options loads as it is, and implements something."""
    host = Host.load(Plugins(enabled=["custom_routing"]))
    assert host.listens("queue_route")


def _install(tmp_path: Path, package: str, target: str) -> None:
    info = tmp_path / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[zonemta.plugins]\nshout = {target}\n")


def test_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package offers plugins by entry points of the group zonemta.plugins; hooks may be imported from its modules."""
    package = tmp_path / "shout_plugin"
    package.mkdir()
    (package / "hooks.py").write_text("async def smtp_rcpt_to(address): pass\nasync def not_a_hook(): pass")
    (package / "__init__.py").write_text("from .hooks import smtp_rcpt_to, not_a_hook")
    _install(tmp_path, "shout", "shout_plugin")
    monkeypatch.syspath_prepend(tmp_path)
    host = Host.load(Plugins(enabled=["shout"]))
    assert [(row["plugin"], row["hook"]) for row in host.statistics()] == [("shout", "smtp_rcpt_to")]
    sys.modules.pop("shout_plugin", None)


def test_bad_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that names no module, or is offered by two packages, is refused."""
    _install(tmp_path, "loud1", "json:loads")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match="must name a module"):
        Host.load(Plugins(enabled=["shout"]))
    _install(tmp_path, "loud2", "json.decoder")
    with pytest.raises(PluginError, match=r"is offered by json.decoder and json:loads"):
        Host.load(Plugins(enabled=["shout"]))


def test_two_hosts_share_nothing(tmp_path: Path) -> None:
    """A plugin's module state belongs to one host: a reload starts afresh."""
    (tmp_path / "a.py").write_text("n = []\ndef setup(api):\n    n.append(1)\n    api.count('n', len(n))")
    for _ in range(2):
        host = Host.load(Plugins(enabled=["a"], folder=tmp_path))
        assert host.statistics()[0]["value"] == 1


def test_a_folder_is_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path or by its name; hooks may come from its modules, and it is loaded afresh with all of them."""
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from zonemta_py.plugin import Routing\nfrom .hooks import queue_route\nfrom .rules import ZONE\n"
        "def setup(api): api.count(ZONE)\n"
    )
    (folder / "hooks.py").write_text("async def queue_route(envelope, routing): pass\n")
    (folder / "rules.py").write_text("ZONE = 'one'\n")
    (tmp_path / "zonemta.toml").write_text('[plugins]\nenabled = ["./links"]\n')
    monkeypatch.chdir("/")
    by_path, by_name = read(tmp_path / "zonemta.toml").plugins, Plugins(enabled=["links"], folder=tmp_path)
    before = digest(str(folder / "__init__.py"))
    for plugins, zone in ((by_path, "one"), (by_name, "another")):
        host = Host.load(plugins)
        assert host.listens("queue_route")
        assert [row["counter"] for row in host.statistics() if "counter" in row] == [zone]
        (folder / "rules.py").write_text("ZONE = 'another'\n")
        (found,) = [one for one in catalogue.plugins(plugins) if one.place]
        assert (found.name, found.hooks, found.fault) == ("links", ("queue_route",), "")
    assert digest(str(folder / "__init__.py")) != before
    with pytest.raises(PluginError, match="there is no such file"):
        Host.load(Plugins(enabled=[str(tmp_path / "nothing")]))


def test_what_a_plugin_has_of_the_server_is_only_read() -> None:
    """What it sets there would be missing elsewhere in the process."""
    api = PluginApi("p")
    for name in ("numbers", "store", "name", "ask", "life", "own"):
        with pytest.raises(AttributeError, match=rf"api\.{name} is only read; keep what is your own in the plugin's"):
            setattr(api, name, object())
    with pytest.raises(AttributeError, match=r"api\.log is only read"):
        del api.log
