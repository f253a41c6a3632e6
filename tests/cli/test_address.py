"""`zonemta verp` and `zonemta srs`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.errors import Exit
from zonemta_py.mail import srs, verp

SECRET = "0123456789abcdef"
TODAY = int(time.time()) // 86_400


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "zonemta.toml"
    path.write_text(f'[return_path]\nsecret = "{SECRET}"\n')
    return path


def test_verp(zonemta: Callable[..., Any], file: Path) -> None:
    """Message and recipient, for people and for programs."""
    path = verp.encode("0199aabbccddeeff", "ann@d.example", "b.example", SECRET, TODAY)
    ran = zonemta("verp", "decode", f"<{path}>", "--config", file)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert ran.out.startswith("message 0199aabbccddeeff to ann@d.example, made ")
    row = json.loads(zonemta("verp", "decode", path, "--config", file, "--json").out)
    assert (row["id"], row["recipient"]) == ("0199aabbccddeeff", "ann@d.example")


def test_srs(zonemta: Callable[..., Any], file: Path) -> None:
    """The address behind it, and nothing else."""
    path = srs.rewrite("ann@there.example", "ours.example", SECRET, TODAY)
    assert zonemta("srs", "decode", path, "--config", file) == (Exit.OK, "ann@there.example\n", "")


@pytest.mark.parametrize("command", ["verp", "srs"])
def test_refused(command: str, zonemta: Callable[..., Any], file: Path) -> None:
    """One sentence; and without a secret nothing can be said at all."""
    ran = zonemta(command, "decode", "ann@d.example", "--config", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.DATA, "", 1)
    assert zonemta(command, "decode", "ann@d.example").code == Exit.CONFIG
