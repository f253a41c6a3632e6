"""What the system says of a failure, in words."""

import errno
import re
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from zonemta_py.logs.causes import cause

HOUSE = Path(__file__).resolve().parents[2] / "zonemta_py"


def _raised(path: str) -> OSError:
    with pytest.raises(OSError, match="No such file") as caught:
        Path(path).read_bytes()
    return caught.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 101] no"),
         "Multiple exceptions: Connect call failed, no"),
        (httpx.ConnectError("[Errno -2] Name or service not known"), "Name or service not known"),
        (_raised("/none/such"), "/none/such: no such file or directory"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
         "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
        (TimeoutError(), "timed out"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "connection timed out"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)  # fmt: skip
def test_words_without_numbers(error: Exception, said: str) -> None:
    """And without the repetition that asyncio adds."""
    assert cause(error) == said


def test_no_sentence_has_the_number_of_an_error() -> None:
    """An error of the system in a sentence goes through `cause`, or says its strerror."""
    found = []
    for path in sorted(HOUSE.rglob("*.py")):
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            told = re.search(r"except \(?[^:]*\bOSError\b[^:]*as (\w+)", line)
            for said in lines[number + 1 : number + 4] if told else ():
                if re.search(r"^ *(except|def) ", said):
                    break
                if told and re.search(rf"\{{{told[1]}\}}|%.*, {told[1]}\)", said):
                    found.append(f"{path.relative_to(HOUSE)}: {said.strip()}")
    assert found == []
