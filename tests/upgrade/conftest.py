"""What earlier versions left when they were killed (`scripts/upgrade/fixture.py` packs it), one file a version."""

import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent

VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


@pytest.fixture(params=VERSIONS)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with `queue`, `lake`, `zonemta.toml` and `owed.json` of that version."""
    with tarfile.open(HERE / f"{request.param}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path
