"""The protocol of the unix socket: msgpack arrays, one after another, in both directions.

A request is [operation, number, …]; its answer [number, status, payload]. Numbers are the client's; several requests
may be open at once, and answers come in any order. Results and deliveries travel as rows of their fields' values.
"""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum
from operator import attrgetter
from typing import Any

import msgpack

from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.limits import FRAME_BYTES_MAX
from zonemta_py.mail.notes import NoteChanges
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import Delivery, Feedback, Outcome, Result


class Operation(IntEnum):
    HELLO = 0  # [name, token]: who asks; its leases are its own. With a token: while BEATs with it come, see `pulse.py`
    PUT = 1  # [envelope, body] → id
    CHUNK = 2  # [token, chunks, client] → nil; the first ones begin the message
    COMMIT = 3  # [token, envelope, chunks, last chunk, client] → receipt
    ABORT = 4  # [token], no answer
    LEASE = 5  # [most] → deliveries
    SETTLE = 6  # [result] → nil
    FETCH = 7  # [id, first, most, reads] → chunks; to who reads files himself: how many the body's file has
    ASK = 8  # [question, arguments] → anything
    TEMPLATE = 9  # [campaign, first, most] → chunks
    ACCEPT = 10  # [envelope, body] → receipt
    PART = 11  # [result], no answer
    BEAT = 13  # [token of a HELLO], no answer: that connection's process runs
    PULL = 14  # [token, queue, most, reserve_s, wait_s] → deliveries
    LEAVE = 15  # [token of a PULL], no answer: nobody waits for its answer any more
    PULLED = 16  # [what: ack, nack, abandon or extend; lease, id, seconds, remote] → whether it was leased
    PEEK = 17  # [queue, most] → deliveries, leased to nobody
    ENTER = 18  # [session, account, again] → nil; a client of that account is there. again: and was before
    LEFT = 19  # [session of an ENTER], no answer
    CLOSED = 20  # [names of connections], no answer: they are no longer open
    LEFT_OPEN = 21  # [connections], no answer: of a sender that has retired
    PLACE = 22  # [lease, site, provider] → place
    FEEDBACK = 23  # [rows] → whether each is new
    PLUGIN = 24  # [what, plugin, name, token, arguments] → what a plugin's store says (`queue.core.plugin_store`)
    KNOWN = 12  # [token of an envelope] → receipt, if the queue's process before this one has stored it; nil


OK, REFUSED, WRONG, FAULT = 0, 1, 2, 3
"""A client that does not know the last one takes it for the one before: both have a sentence."""

CHUNKS_AT_ONCE = 8
"""Chunks that travel in one frame: a frame costs about as much as copying a chunk."""

_packer = msgpack.Packer(use_bin_type=True, autoreset=True)
pack = _packer.pack


def pack_chunks(before: tuple[Any, ...], chunks: list[bytes], after: tuple[Any, ...] = ()) -> list[bytes]:
    """A frame [*before, chunks, *after] in pieces, the chunks as they are: large bodies are not copied to be packed."""
    array = _packer.pack_array_header
    pieces = [array(len(before) + 1 + len(after)) + b"".join(map(pack, before)) + array(len(chunks))]
    for chunk in chunks:
        pieces += (b"\xc6" + len(chunk).to_bytes(4, "big"), chunk)
    pieces += map(pack, after)
    return pieces


def unpacker() -> msgpack.Unpacker:
    return msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=FRAME_BYTES_MAX)


_FIELDS = [field.name for field in fields(Delivery)]
_RECIPIENTS = _FIELDS.index("recipients")
_values = attrgetter(*_FIELDS)


def delivery_row(delivery: Delivery) -> list[Any]:
    row = [*_values(delivery)]
    row[_RECIPIENTS] = [
        [r.address, r.notify, r.orcpt, None, r.noted, r.meta] if r.noted or r.meta else [r.address, r.notify, r.orcpt]
        for r in delivery.recipients
    ]
    return row


def delivery_of(row: list[Any]) -> Delivery:
    row[_RECIPIENTS] = [Recipient(*recipient) for recipient in row[_RECIPIENTS]]
    return Delivery(*row)


_feedback_values = attrgetter(*(field.name for field in fields(Feedback)))


def feedback_row(feedback: Feedback) -> list[Any]:
    return [*_feedback_values(feedback)]


def result_row(result: Result) -> list[Any]:
    outcomes = [
        [
            o.verdict,
            o.reply.code,
            o.reply.enhanced,
            o.reply.text,
            o.stage,
            o.recipients,
            o.delay_s,
            o.relayed,
            o.kind,
            o.by,
            *((o.rest_s,) if o.rest_s else ()),
        ]
        for o in result.outcomes
    ]
    return [
        result.lease,
        outcomes,
        result.down_s,
        result.remote,
        result.local,
        result.tls,
        result.started_ms,
        result.took_ms,
        result.opened,
        result.security,
        result.kept,
        result.more,
        result.recipients_max,
        result.stalled,
        result.manner,
        result.connection,
        result.chosen,
        result.notes,
    ]


def result_of(row: list[Any]) -> Result:
    outcomes = [Outcome(o[0], Reply(o[1], o[2], o[3]), *o[4:]) for o in row[1]]
    if row[17]:
        row[17] = NoteChanges(*row[17])
    return Result(row[0], outcomes, *row[2:])
