"""Whether this queue should be given mail, for load balancers and supervisors; and a message's content.

Failures: ValueError, one sentence.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from zonemta_py.disk.bodies import restore
from zonemta_py.disk.leveldb.store import StoreError
from zonemta_py.mail import edits
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.queue import questions
from zonemta_py.queue.core.bodies import DISK_SHORT
from zonemta_py.queue.lifecycle.context import QueueContext
from zonemta_py.queue.questions.question import AnswerTable, Refused

ANSWERS = AnswerTable[QueueContext]()
CHUNKS_AT_ONCE = 4


@ANSWERS.to(questions.ready)
async def ready(queue: QueueContext) -> list[str]:
    core, refusal = queue.core, queue.core.disk.refusal(queue.core.clock.monotonic())
    found = [] if core.ready else ["the queue is recovering: mail is accepted, and sent once that is done; wait for it"]
    if core.stopping:
        found.append("the queue is draining: it ends when deliveries under way have ended; start it again afterwards")
    if core.copied:
        found.append(core.copied)
    if refusal is not None:
        found.append(f"no mail is accepted ({refusal.text}); free disk space, or see the log")
    elif core.disk.bodies.uncommitted.short():
        found.append(f"large mail is refused ({DISK_SHORT.text}); free disk space, or lower queue.reserve_bytes")
    return found


@ANSWERS.to(questions.content)
async def content(queue: QueueContext, id: str, first: int = 1) -> dict[str, Any]:
    """Up to CHUNKS_AT_ONCE of them. Nothing is pinned: the message may end meanwhile."""
    messages, bodies = queue.core.messages, queue.core.disk.bodies
    try:
        message = messages.look(id)
    except (StoreError, UnicodeError):
        raise Refused(f"there is no message {id!r} in the queue; its content is gone with its last answer") from None
    if not message.chunks:
        raise Refused("every recipient's message is its own, made from the campaign's template when it is sent")
    read = partial(messages.chunks, message, first, CHUNKS_AT_ONCE)
    try:
        found = await bodies.run(read) if message.filed else read()
        data = b"".join(restore(one, CHUNK_BYTES) for one in found)
        if first == 1 and (made := message.metadata.get("edits")):
            data = edits.applied(data, made)
        return {"chunks": message.chunks, "count": len(found), "data": data}
    except (StoreError, ValueError) as error:
        raise Refused(f"the content of message {id} cannot be read, or it has just ended ({error})") from None
