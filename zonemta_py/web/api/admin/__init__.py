"""The operators' part of the HTTP interface: everything that can be seen of the queue, and changed."""

from zonemta_py.web.api.admin import (
    configuration,
    guards,
    messages,
    network,
    orders,
    planning,
    recipients,
    rules,
    state,
    tasks,
    why,
)

ALL = (state, recipients, messages, tasks, network, orders, rules, configuration, why, planning, guards)
"""Its modules, each with a router."""
