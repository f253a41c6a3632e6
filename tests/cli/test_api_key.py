"""`zonemta api-key`: keys for HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.config import load
from zonemta_py.web.keys import ApiKeys, hashed


def test_a_key_is_shown_once_and_its_lines_are_a_configuration(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """What goes to stdout can be appended to the file; the key on stderr is then accepted."""
    ran = zonemta("api-key", "new", "shop", "--right", "inject", "--right", "read")
    assert ran.code == Exit.OK
    key = re.fullmatch(r"The key, shown this once: (\S+)\n", ran.err)
    assert key
    assert key[1] not in ran.out
    path = tmp_path / "c.toml"
    path.write_text("[http]\nenabled = true\n" + ran.out)
    (found,) = load(path).http.keys
    assert (found.name, found.hash, found.rights) == ("shop", hashed(key[1]), ["inject", "read"])
    assert ApiKeys(load(path).http.keys, "x").holder(f"Bearer {key[1]}").name == "shop"
    assert zonemta("api-key", "new", "other").err != ran.err


def test_list_shows_names_and_rights(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """Those of the configuration, and the one in the token file; for programs as JSON."""
    path = tmp_path / "c.toml"
    path.write_text(f"[server]\nfolder = '/q'\n[[http.keys]]\nname = 'shop'\nhash = '{hashed('k')}'\n")
    ran = zonemta("api-key", "list", "--config", path)
    assert ran.out.splitlines()[0].split() == ["shop", "inject"]
    assert "/q/http.token" in ran.out
    assert "closed: set enabled = true in [http]" in ran.out
    rows = json.loads(zonemta("api-key", "list", "--config", path, "--json").out)
    scope: dict[str, list[str]] = {"tenants": [], "campaigns": []}
    assert rows == [{"name": "shop", "role": None, "rights": ["inject"], **scope, "hash": hashed("k")}]
    ran = zonemta("api-key", "new", "shop", "--config", path)
    assert (ran.code, "choose another name" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("Shop!",), "'Shop!' is not a valid name for a key"),
        (("local",), "'local' is not a valid name for a key"),
        (("shop", "--right", "all"), "--right: 'all' is not a right; use inject, campaigns, suppressions, read"),
    ],
)
def test_mistakes_are_one_sentence(zonemta: Callable[..., Any], arguments: tuple[str, ...], sentence: str) -> None:
    """With what to do instead."""
    ran = zonemta("api-key", "new", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert sentence in ran.err
