"""Commands are run in this process, as `zonemta` runs them: arguments in; exit code, stdout and stderr out."""

import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from zonemta_py.__main__ import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def zonemta(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """zonemta("queue", "size", stdin=b"…") → Ran."""
    monkeypatch.delenv("ZONEMTA_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")  # tables are not to be wrapped

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["zonemta", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main()
        return Ran(int(code), *capsys.readouterr())

    return run
