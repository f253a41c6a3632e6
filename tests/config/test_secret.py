"""What is secret in a configuration is not shown, not echoed, and not left readable in silence."""

from pathlib import Path

import pytest

from zonemta_py.config import Config, ConfigError, load
from zonemta_py.config.secret import warning
from zonemta_py.reference import effective

FILE = """
[plugins.options.web]
api_key = "hush-1"
url = "https://me:hush-2@hooks.test/"
limit = 5
[[pools]]
name = "p"
[[pools.sources]]
address = "192.0.2.1"
proxy = "socks5://me:hush-3@proxy.test:1080"
[[zones]]
name = "default"
host = "mx.test"
tls = "required"
username = "me"
password = "hush-4"
[users]
ann = "$argon2id$hush-5"
"""


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    """`config show`: passwords of zones, users, proxies, and what plugins call secret."""
    path = tmp_path / "c.toml"
    path.write_text(FILE)
    shown = effective(load(path))
    assert "hush" not in shown
    for words in ("limit = 5", "hooks.test", "proxy.test:1080", "(hidden, see the file)"):
        assert words in shown


@pytest.mark.parametrize(
    "wrong",
    [
        "[[pools]]\nname='p'\n[[pools.sources]]\naddress='192.0.2.1'\nproxy='ftp://me:hush@p.test:1'",
        "[return_path]\nsecret = ['hush']",
        "[users]\nann = ['hush']",
        "[[zones]]\nname='z'\npassword = ['hush']",
        "[[http.keys]]\nname='shop'\nhash='hush'",
    ],
)
def test_mistakes_do_not_echo_what_is_secret(tmp_path: Path, wrong: str) -> None:
    """The sentence names the key, not its value."""
    path = tmp_path / "c.toml"
    path.write_text(wrong)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert "hush" not in str(caught.value)


def test_a_file_with_passwords_that_all_can_read_is_named(tmp_path: Path) -> None:
    """One sentence with the remedy; none for a file without secrets, or one that is kept to oneself."""
    path = tmp_path / "c.toml"
    path.write_text(FILE)
    path.chmod(0o644)
    rows = load(path).model_dump()
    assert f"chmod o-r {path}" in warning(path, rows)
    assert warning(path, Config().model_dump()) == ""
    path.chmod(0o640)
    assert warning(path, rows) == ""
