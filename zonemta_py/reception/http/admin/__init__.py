"""The operators' part of the HTTP interface: everything that can be seen of the queue, and changed."""

from zonemta_py.reception.http.admin import configuration, messages, network, orders, rules, state, why

ALL = (state, messages, network, orders, rules, configuration, why)
"""Its modules, each with a router."""
