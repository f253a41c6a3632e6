"""For all tests: properties are judged by what they find, never by how long the machine took to look.

A run looks at the same examples every time, so that what fails has been broken by a change and not by chance;
`pytest --hypothesis-profile=search` looks at others. Tests that need Spark share a session, and those that wait for
many syncs without trying any have a folder in memory.

`scripts/test` runs them in five processes (pytest-xdist): a file's tests stay together, since they share fixtures, and
so do all files that share one of the two sessions of Spark. What takes long begins first, so that all end together.

No run waits for ever: a test fails after `timeout` of pyproject.toml, wherever it waits. A process that does not come
out of its test even then, or does not end when all are done, shows where its threads are and ends itself; xdist reports
its test and starts another in its place.
"""

import faulthandler
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STUCK_S, LEAVING_S = float(os.environ.get("ZONEMTA_STUCK_S", "900")), 60
STDERR = pytest.StashKey[int]()
MEMORY, ROOM_BYTES = Path("/dev/shm"), 1 << 30
SPARK, LAKES = "spark", "spark, lakes and reports"
LONG_S = {
    SPARK: 1000,
    LAKES: 1000,
    "tests/web/test_document.py": 303,
    "tests/scripts/test_bench.py": 199,
    "tests/cluster/test_durability.py": 151,
    "tests/web/admin/test_browse.py": 138,
    "tests/cluster/test_conformance.py": 135,
    "tests/queues/test_resize.py": 128,
    "tests/cluster/test_nodes_run.py": 125,
    "tests/cluster/test_campaigns.py": 119,
    "tests/queues/test_moving_killed.py": 109,
    "tests/test_readme.py": 105,
    "tests/cluster/test_moves.py": 87,
    "tests/cluster/test_log_life.py": 83,
    "tests/delivery/test_injected.py": 73,
    "tests/real/test_limits.py": 72,
    "tests/events/sinks/test_amqp.py": 67,
    "tests/cluster/test_versions.py": 65,
    "tests/faults/test_crash.py": 64,
    "tests/scripts/test_cluster.py": 63,
    "tests/faults/test_disk.py": 61,
    "tests/cluster/test_nodes.py": 57,
    "tests/web/dashboard/test_long_queue.py": 52,
    "tests/faults/test_reload.py": 47,
    "tests/faults/test_damage.py": 46,
    "tests/delivery/test_points.py": 45,
    "tests/faults/test_mixed.py": 43,
    "tests/web/dashboard/test_pages.py": 41,
    "tests/reception/test_hostile.py": 38,
    "tests/delivery/test_counted_trial.py": 34,
    "tests/events/test_feed.py": 32,
    "tests/queue/test_orders_survive.py": 32,
    "tests/web/test_batch.py": 32,
    "tests/wire/test_socket.py": 31,
    "tests/queues/test_truth.py": 29,
    "tests/scripts/test_tasks.py": 28,
    "tests/plugins/test_rspamd.py": 33,
    "tests/plugins/test_milter.py": 27,
    "tests/test_dead_code.py": 26,
    "tests/web/test_accounts.py": 26,
    "tests/web/dashboard/test_access.py": 24,
    "tests/scripts/test_events.py": 23,
    "tests/faults/test_numbers.py": 23,
    "tests/cluster/test_log_day.py": 22,
    "tests/queue/test_explain.py": 22,
    "tests/plugins/test_sql.py": 22,
    "tests/queue/test_flow_queues.py": 22,
    "tests/web/admin/test_admin.py": 21,
    "tests/faults/test_privileges.py": 20,
    "tests/faults/test_power.py": 19,
    "tests/real/test_prometheus.py": 19,
    "tests/events/sinks/test_kafka.py": 19,
    "tests/cluster/test_cut_off.py": 18,
    "tests/events/test_set_clock.py": 18,
    "tests/queues/test_campaigns_in_all.py": 18,
    "tests/faults/test_start.py": 17,
    "tests/cluster/test_log_servers.py": 17,
    "tests/cli/test_sendmail.py": 17,
    "tests/cluster/test_doctor.py": 16,
    "tests/faults/test_standstill.py": 16,
    "tests/pull/test_kills.py": 16,
    "tests/cli/test_watch.py": 16,
    "tests/web/admin/test_roles.py": 16,
    "tests/web/admin/test_scopes.py": 16,
    "tests/faults/test_drain.py": 15,
    "tests/cli/test_json.py": 15,
    "tests/plugins/test_http_auth.py": 15,
    "tests/scripts/test_questions.py": 15,
    "tests/whatif/test_replay.py": 15,
    "tests/faults/test_rights.py": 15,
    "tests/mail/test_rules.py": 15,
    "tests/queue/test_admin_orders_life.py": 15,
    "tests/queue/test_reload_life.py": 14,
    "tests/faults/test_poison.py": 13,
    "tests/cli/test_tree.py": 13,
    "tests/queue/test_survival.py": 13,
    "tests/pull/test_scripts.py": 12,
    "tests/pipeline/report/test_browser.py": 12,
    "tests/events/test_running_types.py": 12,
    "tests/zones/test_rates.py": 11,
    "tests/cli/test_mistakes.py": 11,
    "tests/queue/pull/test_pull_model.py": 10,
    "tests/queue/test_garbage.py": 10,
    "tests/queue/pull/test_killed.py": 10,
    "tests/pipeline/report/test_page.py": 10,
    "tests/web/events/test_killed_queue.py": 9,
    "tests/pull/test_session.py": 9,
    "tests/faults/test_broken_off.py": 9,
    "tests/web/test_hostile.py": 9,
    "tests/reception/test_session.py": 8,
    "tests/events/sinks/test_webhook.py": 8,
    "tests/test_house.py": 8,
    "tests/wire/test_pulse.py": 8,
    "tests/wire/test_owed.py": 8,
    "tests/queue/test_fence.py": 8,
    "tests/plugins/test_custom_routing.py": 8,
    "tests/cli/test_tasks.py": 8,
    "tests/pull/test_tls.py": 7,
    "tests/web/dashboard/test_first_message.py": 7,
}
"""Seconds, about: files that begin first, the longest ahead. The others follow, those with most tests ahead."""

SHARED = (
    "tests/pipeline/", "tests/cli/test_archive.py", "tests/cli/test_report.py", "tests/upgrade/test_lakes.py",
)  # fmt: skip
"""Files that share a session of Spark, and so a process: to start another takes longer than many of their tests."""

OF_LAKES = ("tests/pipeline/lake/", "tests/pipeline/report/", "tests/pipeline/findings/", "tests/upgrade/test_lakes.py")
"""Half of them, with a session of their own: in one process after the other they took longer than all other tests."""

WITHOUT = (
    "tests/pipeline/test_ranges.py", "tests/pipeline/test_reader.py", "tests/pipeline/test_schema.py",
    "tests/pipeline/findings/test_erasure.py",
    "tests/pipeline/findings/test_erasure_proof.py", "tests/pipeline/findings/test_suppressing.py",
    "tests/pipeline/findings/test_warmup_proposal.py", "tests/pipeline/report/test_browser.py",
    "tests/pipeline/report/test_page.py", "tests/pipeline/report/test_plots.py",
)  # fmt: skip
"""Files among them that need no session, or start what they need: these go anywhere."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark writes and compiles Java for each plan, which for some hundred rows takes it longer than to do without."""

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "trials")]

# Tests start hundreds of processes of the package, and none should have to compile it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

gc.disable()  # while tests are collected: two fifths of that time would go to look through what stays

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("search"), derandomize=True)
settings.load_profile("steady")


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out whole files, and those that share a session of Spark as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if not file.startswith(SHARED) or file in WITHOUT:
            return file
        return LAKES if file.startswith(OF_LAKES) else SPARK

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda scope: LONG_S.get(scope, 0))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """A test in which its process ended is not run again: it would end the next process, too."""
        given = self.assigned_work.pop(node)
        left = [(tests, test) for tests in given.values() for test, done in tests.items() if not done]
        if not left:
            return None
        tests, ended_with = left[0]
        tests[ended_with] = True
        self.workqueue.update({scope: tests for scope, tests in given.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return ended_with


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    gc.enable()  # in the process that only gives out tests
    return _Together(config, log)


def _ends_in(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # not yet captured


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """From here on rubbish is collected as ever, but nobody looks through the collected tests again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    marker = item.get_closest_marker("timeout")  # of those that take long on a slow machine
    _ends_in(max(STUCK_S, marker.args[0] + 100 if marker is not None and marker.args else 0), item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest has just cancelled it, for those who debug; but what a failed test leaves may not end either."""
    if isinstance(node, pytest.Item):
        _ends_in(STUCK_S, node.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _ends_in(LEAVING_S, session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """xdist's processes wait for each other here, and are ended by it."""
    if hasattr(config, "workerinput"):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """local[2], as `zonemta lake` makes it; every test shares it, so none may change its settings for good."""
    from zonemta_py.pipeline.spark.session import session

    one = session("local[2]", memory_gb=2, settings=INTERPRETED)
    yield one
    one.stop()


@pytest.fixture
def unused_tcp_port() -> int:
    """Out of the range from which others' connections take theirs."""
    from ports import free_port

    return free_port()


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
