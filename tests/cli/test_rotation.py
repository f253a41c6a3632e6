"""The steps of a rotation that a whole way does not meet, and the diff on configurations as people write them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from zonemta_py.cli.config.dkim_rotation import RotationState, diff, next_step, successor, table
from zonemta_py.config import DkimKey


def key(selector: str, state: Literal["active", "published", "retired"] = "active") -> DkimKey:
    return DkimKey(domain="d.example", selector=selector, key=Path("/k"), state=state)


@pytest.mark.parametrize(
    ("selector", "following"),
    [("s1", "s2"), ("2026a", "2027a"), ("k09", "k10"), ("mail", "mail2"), ("a1b99c", "a1b100c")],
)
def test_successor(selector: str, following: str) -> None:
    """A name that has not been used, and that people would have chosen."""
    assert successor(selector) == following


def test_an_active_key_that_is_not_in_dns_comes_first() -> None:
    """It signs mail that nobody can verify: worse than any step of a rotation."""
    step = next_step([RotationState(key("s1"), "missing"), RotationState(key("s2", "published"), "ok")], 48)
    assert (step.number, step.publish) == (2, ("s1",))


def test_a_revoked_key_is_as_good_as_gone() -> None:
    """An empty p= says more than no record."""
    step = next_step([RotationState(key("s1", "retired"), "revoked"), RotationState(key("s2"), "ok")], 48)
    assert step.todo.startswith("done")


MESSY = """# our keys
[server]
hostname = "x"

[[dkim]]  # the old one
selector = "s1"
domain   = "D.example"
key = "/k"
  state="active" # since 2024
[[dkim]]
domain = "d.example"
selector = "s2"
key = "/k"

# and the rest
[signing]
"""


def changes(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_diff_of_a_line_that_is_there() -> None:
    """Only that line of that table."""
    assert changes(diff(MESSY, "f", key("s1"), "retired")) == ['-  state="active" # since 2024', '+state = "retired"']


def test_diff_of_a_line_that_is_not() -> None:
    """It is added at the end of the table's own lines."""
    text = diff(MESSY, "f", key("s2"), "retired")
    assert changes(text) == ['+state = "retired"']
    assert ' key = "/k"\n+state = "retired"\n' in text


def test_a_table_that_cannot_be_found() -> None:
    """Written as an inline array, or in another file: said in words."""
    assert diff("", "f", key("s3"), "active") == 'set state = "active" in the [[dkim]] table of d.example, s3'


def test_table_can_be_read_back() -> None:
    """Whatever the file is called."""
    import tomllib

    settings = DkimKey(domain="d.example", selector="s", key=Path('/a "b"\\c'))
    assert DkimKey.model_validate(tomllib.loads(table(settings))["dkim"][0]) == settings
