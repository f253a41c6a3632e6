"""What pages say."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from tests.web.admin.requests import DOCUMENT
from zonemta_py.web.dashboard import desk
from zonemta_py.web.dashboard.pages.overview import _of_machine
from zonemta_py.web.dashboard.words import percent

_REQUEST = re.compile(r"\b(GET|POST|PUT|DELETE) (/v1/[\w/{}-]+)")


def test_requests_that_pages_name_are_there() -> None:
    """Whoever is told to send one finds it; capitals stand for a name."""
    templates = Path(desk.__file__).parent / "templates"
    named = {one for path in templates.rglob("*.j2") for one in _REQUEST.findall(path.read_text())}
    known = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert named
    assert {(method, re.sub("[A-Z]+$", "{name}", path)) for method, path in named} <= known


def test_a_share_is_written_as_in_the_queues_own_sentences() -> None:
    """Both stand side by side."""
    assert percent(0.171) == "17.1%"


def test_a_reload_is_not_what_is_wrong() -> None:
    """However often a process was started: only one that has ended by itself within the hour is trouble."""
    now = time.time()
    numbers: dict[str, Any] = {
        "counters": {"zonemta_process_starts_total": [[["sender-1"], 5], [["http"], 5]]},
        "gauges": {
            "zonemta_disk_free_bytes": [[[], 10e9]], "zonemta_disk_reserve_bytes": [[[], 1e6]],
            "zonemta_accepting": [[[], 1]],
            "zonemta_process_start_time_seconds": [[["sender-1"], now], [["http"], now]],
        },
    }  # fmt: skip
    assert list(_of_machine("", numbers)) == []
    numbers["gauges"]["zonemta_process_failure_time_seconds"] = [[["sender-1"], now - 60], [["http"], now - 7200]]
    (trouble,) = _of_machine("", numbers)
    assert trouble.said == "sender-1 ended unexpectedly 1 min ago, and was restarted."
