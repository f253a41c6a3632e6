"""The trials live in scripts/survival, where scripts/crash and scripts/faults run them at length; here, in short."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reception.conftest import certificate, users  # noqa: F401 (fixtures)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from survival.rig import Mta


@pytest.fixture
def mta(tmp_path: Path) -> Iterator[Mta]:
    """Not started: its configuration may be changed before."""
    running = Mta(tmp_path / "queue", 9, home=tmp_path)
    yield running
    running.end()
