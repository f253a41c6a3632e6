"""The trials live in scripts/trials/survival, and scripts/trials has them at length; here, in short."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from survival.rig import Mta

from tests.reception.conftest import certificate, users  # noqa: F401 (fixtures)


@pytest.fixture
def mta(tmp_path: Path) -> Iterator[Mta]:
    """Not started: its configuration may be changed before."""
    running = Mta(tmp_path / "queue", 9, home=tmp_path)
    yield running
    running.end()
