"""The configuration knows every type of event, and no other."""

from typing import get_args

from zonemta_py.config.services.events import EventType
from zonemta_py.events.schema import TYPES


def test_types() -> None:
    assert list(get_args(EventType)) == list(TYPES)
