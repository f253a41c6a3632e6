"""The page of hooks and fields is what the code declares, and has something to say about each field."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from zonemta_py.plugin import fields_page, spec, values
from zonemta_py.plugin.arguments import Address, Routing
from zonemta_py.reference import plugins

PAGE = Path(__file__).parents[2] / "docs" / "PLUGIN_FIELDS.md"


def test_it_is_up_to_date() -> None:
    """`python -m zonemta_py.reference --plugins > docs/PLUGIN_FIELDS.md` makes it."""
    assert PAGE.read_text() == plugins()


@pytest.mark.parametrize("kind", fields_page.KINDS, ids=lambda kind: kind.__name__)
def test_each_field_is_described(kind: type) -> None:
    """In its class's docstring, as `name: what it is`."""
    assert [name for name, _, says, _ in fields_page.members(kind) if not says] == []


def test_each_argument_of_a_hook_is_there() -> None:
    """Whatever has fields of its own."""
    named = {
        str(one.annotation).removeprefix("list[").rstrip("]")
        for hook in spec.HOOKS
        for one in inspect.signature(getattr(spec, hook)).parameters.values()
    }
    plain = {"Stream", "str", "Exception", "dict[str, Any"}
    assert named - plain <= {kind.__name__ for kind in fields_page.KINDS}
    assert [hook for hook in spec.HOOKS if f"\n### {hook}\n" not in PAGE.read_text()] == []


def test_what_may_be_set_is_what_is_checked() -> None:
    found = {name: bounds for name, _, _, bounds in fields_page.members(Routing)}
    assert found["port"] == "a whole number from 1 to 65535"
    assert found["recipient"] == ""
    rules = {rule.field for rule in values.RULES["routing"]}
    assert {name for name, bounds in found.items() if bounds} == rules
    assert "of at most 1,024 bytes" in {name: bounds for name, _, _, bounds in fields_page.members(Address)}["notes"]


def test_several_names_and_empty_ones_are_read() -> None:
    """`a, b: text`, `host "": text`."""
    said = fields_page.described(Routing)
    assert said["host"] == '"": as the zone has it, a host of its own or MX lookup.'
    assert said["notes"] == "of this recipient."
    assert fields_page.introduction(Routing) == "Where one recipient's mail goes."
