"""The orders that pages give, by name."""

from __future__ import annotations

from zonemta_py.web.dashboard.desk import NoPage, may_operate
from zonemta_py.web.dashboard.orders import campaigns, suspensions, tasks
from zonemta_py.web.dashboard.orders.order import DeskOrder
from zonemta_py.web.dashboard.sessions import LoginSession

ORDERS = {order.name: order for order in (*suspensions.ORDERS, *campaigns.ORDERS, *tasks.ORDERS)}


def find(name: str, session: LoginSession) -> DeskOrder:
    """Raises NoPage, also if that key may only look."""
    order = ORDERS.get(name)
    if order is None:
        raise NoPage(404, f"there is no order {name[:80]!r}")
    if not may_operate(session):
        raise NoPage(403, f"the key {session.holder.name!r} may only look; give it the role operate in [[http.keys]]")
    return order
