"""The first line of a connection."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.pull.command import COMMANDS, Command, LineError, overview, parse


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"push", Command("push")),
        (b"pop", Command("pop", "default")),
        (b"  pop \t jobs ", Command("pop", "jobs")),
        (b"push id", Command("push", "id")),
        (b"push jobs priority=-3 delay=1.5 size=9", Command("push", "jobs", priority=-3, delay=1.5, size=9)),
        (b"push jobs id", Command("push", "jobs", id=True)),
        (b"push queue=jobs", Command("push", "jobs")),
        (b"reserve jobs 30 wait=5 envelope", Command("reserve", "jobs", seconds=30, wait=5, envelope=True)),
        (b"ack 1a2063c153e00000.3", Command("ack", receipt="1a2063c153e00000.3")),
        (b"nack 1a2063c153e00000.3 60", Command("nack", receipt="1a2063c153e00000.3", delay=60)),
        (b"extend 1a2063c153e00000.3 60", Command("extend", receipt="1a2063c153e00000.3", seconds=60)),
        (b"auth zmta_X", Command("auth", token="zmta_X")),
        (b"pop Jobs.X", Command("pop", queue="jobs.x")),
    ],
)  # fmt: skip
def test_lines_are_understood(line: bytes, command: Command) -> None:
    """Spaces and tabs separate; the first bare word is the queue, whatever it says."""
    assert parse(line) == command


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "is empty; send a command"),
        (b"frob", "'frob' is not a command; send one of push, pop"),
        (b"POP", "is not a command"),
        (b"pop a/b", "is not the name of a queue; use 1 to 63"),
        (b"pop a b", "pop does not understand 'b'; write pop [queue]"),
        (b"pop jobs id", "does not understand 'id'"),
        (b"push jobs id id", "twice"),
        (b"push jobs priority=10", "write a number from -9 to 9"),
        (b"push jobs delay=-1", "is not a number of seconds; write it as 30 or 0.5"),
        (b"push jobs size=many", "is not a size"),
        (b"ack", "ack needs RECEIPT; write ack RECEIPT"),
        (b"ack x", "is not a receipt"),
        (b"extend 1.2", "extend needs SECONDS"),
        (b"auth", "write auth TOKEN on a line of its own"),
        (b"\xff\x00\x1b[2J", "is not a command"),
    ],
)
def test_what_cannot_be_understood_is_one_sentence_with_the_remedy(line: bytes, said: str) -> None:
    with pytest.raises(LineError, match=r"^[^\n]*$") as error:
        parse(line)
    assert said in str(error.value)
    assert str(error.value).isprintable()


@given(st.binary(max_size=300))
def test_no_line_does_anything_else(line: bytes) -> None:
    """A command of the table, or a LineError."""
    with suppress(LineError):
        assert parse(line).verb in {*COMMANDS, "auth"}


def test_help_fits_a_terminal() -> None:
    assert max(map(len, overview().splitlines())) <= 80
    assert all(f"  {verb}" in overview() for verb in COMMANDS)
