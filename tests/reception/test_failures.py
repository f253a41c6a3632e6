"""What is remembered of clients and users that fail, by processes that share it."""

from __future__ import annotations

import os

from zonemta_py.reception.smtp.failures import FORGET_S, Failures


def test_failures_are_forgotten() -> None:
    """After a while, counted from the last one."""
    now = [0.0]
    failures = Failures(lambda: now[0])
    assert [failures.add("a") for _ in range(3)] == [1, 2, 3]
    now[0] = FORGET_S - 1
    assert failures.count("a") == 3
    now[0] = FORGET_S + 1
    assert failures.count("a") == 0
    assert [failures.add("a") for _ in range(2)] == [1, 2]


def test_many_names_cost_no_more_memory_and_the_last_ones_stay() -> None:
    """Those without a failure for the longest time give way."""
    now = [0.0]
    failures = Failures(lambda: now[0])
    for number in range(50_000):
        now[0] += 0.001
        failures.add(str(number))
    assert sum(failures.count(str(number)) for number in range(50_000)) <= 16_384
    lately = [failures.count(str(number)) for number in range(49_000, 50_000)]
    assert sum(lately) >= 990
    assert failures.count("a") == 0


def test_every_failure_counts_once_whichever_process_meets_it() -> None:
    """Four at the same time, one of which is killed in the middle; and where users are at home they all know."""
    failures = Failures()
    children = [_child(failures, 500) for _ in range(4)]
    doomed = _child(failures, 10_000_000)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0, 0]
    while failures.count("more") <= 2_000:
        assert os.waitpid(doomed, os.WNOHANG) == (0, 0)
    os.kill(doomed, 9)
    os.waitpid(doomed, 0)
    assert failures.count("one") == 2_000
    assert failures.count("more") > 2_000
    assert failures.add("one") == 2_001
    assert failures.at_home("anna", "192.0.2.1")
    assert not failures.at_home("anna", "192.0.2.2")


def _child(failures: Failures, times: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    failures.settle("anna", "192.0.2.1")
    for _ in range(times):
        if times < 1_000:
            failures.add("one")
        failures.add("more")
    os._exit(0)
