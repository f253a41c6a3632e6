"""The gate for all bytes that leave, our own notices too: line ends are CRLF, no line is longer than 998 octets, and a
server that does not offer 8BITMIME gets seven bits. What does not fit is recoded before it is signed (`mail.recode`),
or refused, as the zone says (`long_lines`, `eight_bit`).

What reception has looked at is not looked at again (`Delivery.lines`). A recoded message is remembered as space allows:
the next recipients of the same message get the same bytes, with the same signature.

Failures: Unsendable, with the reply that the sender gets; QueueRefusal where a large body has to be read.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict

from zonemta_py.config import Zone
from zonemta_py.delivery.message.body import WHOLE_BYTES_MAX, Body
from zonemta_py.mail.lines import crlf, has_long_line, paired
from zonemta_py.mail.reply import Reply
from zonemta_py.queue.api import LINES_FIT, LINES_LONG, LINES_UNKNOWN, Delivery

KEPT_BYTES_MAX = 16 * 1024 * 1024
KEPT_ONE_BYTES_MAX = 1024 * 1024
FACTS_MAX = 2_000
LINES, SEVEN = "lines", "seven"


class Unsendable(Exception):
    """The message cannot be sent as it is, nor be changed. `reply` refuses it."""

    def __init__(self, enhanced: str, text: str) -> None:
        super().__init__(text)
        self.reply = Reply(554, enhanced, text)


class Gate:
    """For one process."""

    def __init__(self) -> None:
        self._facts: OrderedDict[str, int] = OrderedDict()
        self._kept: OrderedDict[tuple[str, str, bytes], bytes] = OrderedDict()
        self._bytes = 0
        self._turn = asyncio.Lock()

    async def lines(self, delivery: Delivery, body: Body, zone: Zone) -> Body:
        """Before fields and signatures are added: the message, or another one in its place. Not for what reception has
        looked at, if it is unchanged and fits. Raises Unsendable, QueueRefusal."""
        if delivery.values is not None and body.whole is None:
            return body  # made here, of lines that fit
        found = await self._look(delivery, body)
        if found == LINES_FIT or (found == LINES_LONG and zone.long_lines == "send"):
            return body
        if found == LINES_LONG and zone.long_lines == "refuse":
            raise Unsendable("5.6.0", "the message has lines of more than 998 octets (RFC 5321 4.5.3.1.6)")
        return await self._recoded(delivery, body, LINES)

    async def seven(self, delivery: Delivery, body: Body, zone: Zone) -> Body | None:
        """For a server without 8BITMIME: None if the finished message fits, else another one, to be finished. Raises
        Unsendable, QueueRefusal."""
        if zone.eight_bit == "send" or await self._is_seven(delivery, body):
            return None
        if delivery.smtputf8 and not (await body.section()).isascii():
            return None  # it needs SMTPUTF8, which is judged with MAIL
        if zone.eight_bit == "refuse":
            raise Unsendable("5.6.3", "the server does not take 8-bit mail (8BITMIME)")
        return await self._recoded(delivery, body.unfinished(), SEVEN)

    async def _look(self, delivery: Delivery, body: Body) -> int:
        """Of a message whose lines nobody has looked at since it was changed, or came from an earlier version."""
        if body.whole is not None:
            merged = delivery.values is not None
            return _fact(body.whole, merged)
        if body.changed and delivery.lines != LINES_UNKNOWN:  # only its header section is another one
            return max(delivery.lines, _fact(await body.section(), False))
        known = self._facts.get(delivery.id)
        if known is None:
            known, before = LINES_FIT, b""
            async for chunk in body.chunks():
                known = max(known, _fact(before + chunk, False))
                before = chunk[chunk.rfind(b"\n") + 1 :][-LINES_TAIL:]
            self._facts[delivery.id] = known
            if len(self._facts) > FACTS_MAX:
                self._facts.popitem(last=False)
        return known

    async def _is_seven(self, delivery: Delivery, body: Body) -> bool:
        if body.whole is not None:
            return body.whole.isascii()
        if delivery.lines != LINES_UNKNOWN and not delivery.eightbit:  # reception saw all of it
            return not body.changed or (await body.section()).isascii()
        async for chunk in body.chunks():
            if not bytes(chunk).isascii():
                return False
        return True

    async def _recoded(self, delivery: Delivery, body: Body, variant: str) -> Body:
        if delivery.values is not None:
            return body.replaced(await self._made(body, variant), variant)
        place = (delivery.id, variant, hashlib.blake2b(await body.section(), digest_size=16).digest())
        made = self._kept.get(place)
        if made is None:
            made = await self._made(body, variant)
            self._keep(place, made)
        else:
            self._kept.move_to_end(place)
        return body.replaced(made, variant)

    async def _made(self, body: Body, variant: str) -> bytes:
        from zonemta_py.mail.recode import NotRecodable  # here: it needs the library's email package, and is rare

        try:
            if body.size <= WHOLE_BYTES_MAX:
                return _recode(await body.everything(), variant)
            async with self._turn:  # one large message at a time is in memory
                return await asyncio.to_thread(_recode, await body.everything(), variant)
        except NotRecodable as error:
            if variant == LINES:
                what = f"the message has lines of more than 998 octets (RFC 5321 4.5.3.1.6), and {error}"
                raise Unsendable("5.6.0", what) from None
            what = f"the server does not take 8-bit mail (8BITMIME), and the message cannot be recoded: {error}"
            raise Unsendable("5.6.3", what) from None

    def _keep(self, place: tuple[str, str, bytes], made: bytes) -> None:
        if len(made) > KEPT_ONE_BYTES_MAX or place in self._kept:
            return
        self._kept[place] = made
        self._bytes += len(made)
        while self._bytes > KEPT_BYTES_MAX:
            self._bytes -= len(self._kept.popitem(last=False)[1])


LINES_TAIL = 2_000
"""Bytes of an open line that are enough to tell that it is too long."""
_BARE = LINES_LONG + 1


def _fact(data: bytes, ours: bool) -> int:
    """LINES_FIT, LINES_LONG, or more where a line end stands alone. ours: it was made here, with the right ones."""
    if not ours and not paired(data.removesuffix(b"\r")):
        return _BARE
    return LINES_LONG if has_long_line(data) else LINES_FIT


def _recode(message: bytes, variant: str) -> bytes:
    from zonemta_py.mail.recode import recoded

    if not paired(message):
        message = crlf(message)
    return recoded(message, variant == SEVEN)
