"""Bodies of journal records, as msgpack: one class for each record type. Grammar and examples: FORMAT.md.

`pack()` makes the bytes, `of(fields)` takes what `unpack` made of them. A body only ever grows at its end; readers
ignore what they do not know and fill in what is not there yet, so old readers read new journals and new readers old
ones.

    mail.py    ENVELOPE, OPEN, START, DELIVERY, FINISH, IN_DOUBT, REMOVED, MOVED
    people.py  SUPPRESS, UNSUPPRESS, FEEDBACK
    orders.py  STANDING, TASK
    taken.py   TAKEN
    files.py   SEGMENT, POSITION, END, LOST
"""

from __future__ import annotations

from enum import IntEnum


class Type(IntEnum):
    """Types of journal records. Numbers never change."""

    SEGMENT = 0  # the first record of every segment
    ENVELOPE = 1  # a message was accepted
    OPEN = 2  # chunks of a large message start to arrive
    START = 3  # handed to a sender
    DELIVERY = 4  # what the remote server said
    FINISH = 5  # no recipient is left
    POSITION = 6  # where a restart begins
    IN_DOUBT = 7  # found at a restart or when a sender died
    REMOVED = 8  # taken out, or not taken up, without a delivery
    MOVED = 9  # held recipients released by an operator, deferred until then
    END = 10  # the last record of a segment
    STANDING = 12  # a stop, a rest, what was learned
    SUPPRESS = 13  # gets no mail
    UNSUPPRESS = 14  # taken off that list
    TASK = 15  # an operator's order about many recipients, and what was done for it
    FEEDBACK = 16  # what came back about a message later: a bounce, a complaint
    TAKEN = 17  # taken over from another queue of the same MTA
    LOST = 11  # records lost to damage, replaced by this one, which has the number of the last


FORMAT = 2
"""Version of the bodies of records and of the store's values, in each SEGMENT: greater with any change that an older
reader would misunderstand. 2: recipients of an outcome may have four fields, a stop has its tenants, an IN_DOUBT may be
of no lease."""
