"""For all tests: properties are judged by what they find, never by how long the machine took to look.

A run looks at the same examples every time, so that what fails has been broken by a change and not by chance;
`pytest --hypothesis-profile=search` looks at others. All tests that need Spark share one session, and those that wait
for many syncs without trying any have a folder in memory.

`scripts/test` runs them in three processes (pytest-xdist): a file's tests stay together, since they share fixtures, and
all that need Spark stay with its one session. What takes long begins first, so that all end together.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY, ROOM_BYTES = Path("/dev/shm"), 1 << 30
LONG_S = {
    "spark": 1000,
    "tests/pipeline/test_cluster.py": 70,
    "tests/scripts/test_bench.py": 60,
    "tests/faults/test_damage.py": 50,
    "tests/reception/http/test_document.py": 50,
    "tests/faults/test_mixed.py": 40,
    "tests/real/test_limits.py": 35,
    "tests/faults/test_disk.py": 30,
    "tests/faults/test_crash.py": 30,
    "tests/events/test_feed.py": 30,
    "tests/faults/test_power.py": 30,
    "tests/reception/test_hostile.py": 30,
    "tests/pull/test_kills.py": 15,
    "tests/pull/test_tls.py": 10,
    "tests/queue/test_orders_survive.py": 25,
    "tests/queue/test_admin_orders_life.py": 20,
    "tests/test_readme.py": 20,
    "tests/events/sinks/test_amqp.py": 20,
    "tests/delivery/test_points.py": 20,
    "tests/faults/test_start.py": 15,
    "tests/real/test_tls.py": 15,
    "tests/real/test_receivers.py": 10,
    "tests/scripts/test_events.py": 10,
}
"""Seconds, about: files that begin first, the longest ahead. The others follow, those with most tests ahead."""

WITH_SPARK = ("tests/pipeline/", "tests/cli/test_archive.py", "tests/cli/test_report.py", "tests/upgrade/test_lakes.py")
WITH_THEIR_OWN = ("tests/pipeline/test_cluster.py",)
"""Files that need the shared session, but for those that start what they need: these need not wait for it."""

# Tests start hundreds of processes of the package, and none should have to compile it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("search"), derandomize=True)
settings.load_profile("steady")


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out whole files, and all files with Spark in them as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if file.startswith(WITH_SPARK) and file not in WITH_THEIR_OWN else file

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda scope: LONG_S.get(scope, 0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _Together(config, log)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """local[2], as `zonemta lake` makes it; every test shares it, so none may change its settings for good."""
    from zonemta_py.pipeline.spark.session import session

    one = session("local[2]", memory_gb=2)
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """`zonemta run` and `fsck`, run in this process, keep mail to themselves; the tests after them need not."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="module")
def shared_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory where that can be had, for tests that wait for many syncs and try none of them."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield tmp_path_factory.mktemp("disk")
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def memory(shared_memory: Path) -> Iterator[Path]:
    """The same for one test, which finds it empty."""
    with tempfile.TemporaryDirectory(dir=shared_memory) as folder:
        yield Path(folder)
