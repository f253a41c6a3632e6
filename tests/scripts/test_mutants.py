"""tests/mutants.toml speaks of what there is: `scripts/mutants` itself runs for long, and when somebody asks for it."""

import tomllib
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_every_reason_is_of_a_line_that_is_there() -> None:
    """Whoever changes such a line measures again: scripts/mutants WORD --line TEXT."""
    table = tomllib.loads((TOP / "tests" / "mutants.toml").read_text("utf-8"))
    for module, entry in table.items():
        assert all((TOP / test).is_file() for test in entry["tests"])
        lines = {line.strip() for line in (TOP / module).read_text("utf-8").splitlines()}
        reasons = [*entry.get("equivalent", []), *entry.get("explained", [])]
        assert [one["line"] for one in reasons if one["line"] not in lines] == []
        assert all(one["why"] and one["mutants"] for one in reasons)
