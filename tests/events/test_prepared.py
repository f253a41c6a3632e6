"""Events in a ring's records: everything comes back."""

import pytest

from zonemta_py.events import prepared
from zonemta_py.events.event import Event


@pytest.mark.parametrize("data", [{"message": "m1", "recipient": "b\u00f6b@x.test"}, {}, {"message": "é" * 300}])
def test_what_is_packed_comes_back(data: dict[str, str]) -> None:
    one = prepared.ready(Event(7, 3, "delivered", 1_795_000_000_000, data), "5f0c.2")
    assert prepared.unpack(prepared.pack(one)) == one
    assert prepared.place(prepared.pack(one)) == (7, 3)
    assert one.id == "5f0c.2-7-3"


def test_the_id_is_found_in_other_json_too() -> None:
    one = prepared.ready(Event(7, 0, "delivered", 1, {}), "5f0c")
    other = one._replace(body=b'{"id": "5f0c-7-0", "type": "zonemta.delivered"}')
    assert prepared.unpack(prepared.pack(other)).id == "5f0c-7-0"
    with pytest.raises(ValueError, match="not an event's record"):
        prepared.unpack(b"short")
