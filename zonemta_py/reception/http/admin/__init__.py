"""The operators' part of the HTTP interface: everything that can be seen of the queue, and changed."""

from zonemta_py.reception.http.admin import (
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
