"""A person is erased from the rows of tasks: as an example, in a filter, in a cause."""

from __future__ import annotations

import re
from typing import Any

from zonemta_py.mail.addresses.person import person
from zonemta_py.queue.core.tasks import Tasks

ERASED = "(erased)"


def forget(tasks: Tasks, who: str) -> None:
    """who: the canonical address. A filter that names nobody else finds nothing any more, as there is nothing left."""
    for task in tasks.by_number.values():
        examples = [row for row in task.examples if person(row["recipient"]) != who]
        where = {name: _without(value, who) for name, value in task.where.items()}
        cause = re.sub(re.escape(who), ERASED, task.cause, flags=re.IGNORECASE)
        if (examples, where, cause) != (task.examples, task.where, task.cause):
            task.examples, task.where, task.cause = examples, where, cause
            tasks.changed(task)


def _without(value: Any, who: str) -> Any:
    if isinstance(value, str):
        return ERASED if "@" in value and person(value) == who else value
    if isinstance(value, list):
        return [_without(one, who) for one in value]
    if isinstance(value, dict):
        return {name: _without(one, who) for name, one in value.items()}
    return value
