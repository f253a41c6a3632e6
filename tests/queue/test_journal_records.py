"""What is packed by hand for speed is what the classes of `journal.records` pack: every record of a busy hour."""

from collections.abc import Callable
from typing import Any

from zonemta_py.disk.packing import unpack
from zonemta_py.journal import segments
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.mail import (
    DeliveryRecord,
    EnvelopeRecord,
    FinishRecord,
    InDoubtRecord,
    MovedRecord,
    OpenRecord,
    RemovedRecord,
    StartRecord,
)
from zonemta_py.journal.records.orders import StandingRecord
from zonemta_py.journal.records.people import UnsuppressRecord
from zonemta_py.queue.api import BOUNCED, DEFERRED, HELD

Make = Callable[..., Any]
CLASSES: dict[int, Any] = {
    Type.ENVELOPE: EnvelopeRecord,
    Type.OPEN: OpenRecord,
    Type.START: StartRecord,
    Type.DELIVERY: DeliveryRecord,
    Type.FINISH: FinishRecord,
    Type.IN_DOUBT: InDoubtRecord,
    Type.REMOVED: RemovedRecord,
    Type.MOVED: MovedRecord,
    Type.STANDING: StandingRecord,
    Type.UNSUPPRESS: UnsuppressRecord,
}


async def test_every_record_is_what_its_class_would_write(house: Make) -> None:
    """Mail is delivered, deferred, bounced, held, released, dropped, left in doubt and left out for a suppression."""
    home = await house(retry={"schedule_min": [1], "jitter": 0})
    await home.queue.ask("suppress", rows=[["gone@x.test", "manual"], ["back@x.test", "manual", "", "", "", "", 0]])
    await home.queue.ask("unsuppress", addresses=["back@x.test"], by="me")
    held = await home.put("ann@x.test", "gone@x.test")
    await home.settle((await home.lease())[0], HELD)
    await home.rest()
    await home.queue.ask("release", id=held)
    await home.settle((await home.lease())[0], DEFERRED)
    await home.move(90)
    await home.settle((await home.lease())[0], BOUNCED)
    await home.rest()
    for delivery in await home.leases():  # the notice
        await home.settle(delivery)
    dropped = await home.put("eve@x.test")
    await home.settle((await home.lease())[0], HELD)
    await home.rest()
    await home.queue.ask("drop", id=dropped)
    await home.put("bob@x.test")
    await home.leases()
    await home.crash()
    await home.rest()
    seen = set()
    for record in segments.read(home.folder / "journal"):
        if record.type in CLASSES:
            one = CLASSES[record.type].of(unpack(record.body))
            assert one.pack() == record.body
            seen.add(record.type)
    assert {Type(kind).name for kind in CLASSES.keys() - seen} <= {"OPEN", "STANDING"}
