"""Archives: a real one, and as many synthetic ones as a test wants."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "pipeline"


@pytest.fixture(scope="session", autouse=True)
def few_partitions() -> Iterator[None]:
    """Plans of some thousand rows need no 64 of them; `test_the_same_again_is_the_same` has so many."""
    from zonemta_py.pipeline.prepare import plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plan._SETTINGS, "spark.sql.shuffle.partitions", "3")
        yield


@pytest.fixture(scope="session")
def real_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the queue itself has archived of some hundred messages; read only."""
    folder = tmp_path_factory.mktemp("mta")
    subprocess.run([sys.executable, str(SCRIPTS / "real.py"), str(folder), "300"], check=True, timeout=120)
    return folder / "archive"


@pytest.fixture
def archive(real_archive: Path, tmp_path: Path) -> Path:
    """A copy of the real archive that the test may change."""
    return Path(shutil.copytree(real_archive, tmp_path / "archive"))


@pytest.fixture(scope="session")
def make_archive() -> Callable[..., Any]:
    """`make_archive(folder, messages=…, days=…, seed=…, segment_records=…)` of scripts/pipeline/synthetic.py."""
    spec = importlib.util.spec_from_file_location("synthetic", SCRIPTS / "synthetic.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., Any] = module.make_archive
    return found
