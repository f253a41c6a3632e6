"""The attachments of requests: contents that come with them, and references to what was uploaded.

A reference is looked up while its request is answered, and the message, or the campaign's template, is stored with the
content itself. So what is queued needs no uploaded file any more, whatever is removed; and what is not there is refused
at once.

A small request may refer to large files, many times: what one may take is bounded, and few are at it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from zonemta_py.config import Config
from zonemta_py.disk.attachments import AttachmentRefused, Attachments, Kept, NoRoom
from zonemta_py.disk.space import LEAST_BYTES, Space
from zonemta_py.logs.causes import cause
from zonemta_py.web.documents import reading
from zonemta_py.web.documents.attachments import AttachedFile
from zonemta_py.web.documents.models import Attachment
from zonemta_py.web.documents.problem import DISK_S, FieldError, RequestProblem, invalid
from zonemta_py.web.keys import Holder

log = logging.getLogger(__name__)

BYTES_MAX = 64 * 1024 * 1024
"""Of the attachments of all messages that one request makes."""
TURNS = 2
"""So many requests with references are made at once."""
TIDY_S = 3600.0
_DAY_MS = 86_400_000
_OCTETS = "application/octet-stream"
_T = TypeVar("_T")


class AttachmentGroup(NamedTuple):
    """Attachments of one place of a request. times: in how many messages they are."""

    where: str
    attachments: Sequence[Attachment]
    times: int = 1


class AttachmentDesk:
    """What requests need of `disk.attachments`, off the event loop. clock_ms: UNIX time."""

    def __init__(self, config: Config, clock_ms: Callable[[], int]) -> None:
        space = Space(config.folder, max(LEAST_BYTES, config.queue.reserve_bytes))
        life_ms = round(config.http.attachment_days * _DAY_MS)
        spare = config.http.attachment_bytes
        self.kept = Attachments(config.folder, space, config.http.attachments_bytes, life_ms, spare)
        self.clock_ms, self._turns = clock_ms, asyncio.Semaphore(TURNS)

    async def run(self, work: Callable[..., _T], *arguments: object) -> _T:
        """In a thread. Raises RequestProblem."""
        try:
            return await asyncio.to_thread(work, *arguments)
        except NoRoom as short:
            raise RequestProblem("unavailable", str(short), retry_s=DISK_S) from None
        except AttachmentRefused as refused:
            raise RequestProblem("conflict", str(refused)) from None
        except OSError as error:
            log.error("the attachments cannot be read or written: %s; repair the disk", cause(error))
            sentence = "the server's disk fails; show its operator the instance, and try again later"
            raise RequestProblem("unavailable", sentence, retry_s=DISK_S) from None

    @contextlib.asynccontextmanager
    async def of(
        self, groups: Sequence[AttachmentGroup], who: Holder, tenant: str
    ) -> AsyncIterator[list[list[AttachedFile]]]:
        """The files of each group. tenant: of the mail, as the request says, or "". Raises RequestProblem."""
        if not any(group.attachments for group in groups):
            yield [[] for _ in groups]
            return
        async with contextlib.AsyncExitStack() as stack:
            found: dict[str, Kept] = {}
            if wanted := _references(groups):
                tenant = who.owner(tenant)
                found = await self.run(self._found, tenant, wanted)
            _check_size(groups, found)
            if wanted:
                await stack.enter_async_context(self._turns)
            yield await self.run(self._files, tenant, groups, found)

    def _found(self, tenant: str, wanted: dict[str, str]) -> dict[str, Kept]:
        """wanted: place in the request → reference."""
        found = self.kept.find(tenant, {*wanted.values()}, self.clock_ms())
        of = f"the tenant {tenant!r} has" if tenant else "there is"
        wrong = [
            FieldError(where, f"{of} no attachment {ref[:100]!r}; upload it first (PUT /v1/attachments/…)")
            for where, ref in wanted.items()
            if ref not in found
        ]
        if wrong:
            raise invalid(wrong)
        return found

    def _files(
        self, tenant: str, groups: Sequence[AttachmentGroup], found: dict[str, Kept]
    ) -> list[list[AttachedFile]]:
        """Of each content that is referred to there is one copy in memory."""
        read = cache(lambda kept: self.kept.read(tenant, kept))

        def file(one: Attachment, where: str) -> AttachedFile:
            if one.ref is None:
                content = reading.bytes_of(one.content or "", f"{where}.content")
                return AttachedFile(one.name or "", one.type or _OCTETS, content, one.content_id)
            kept = found[one.ref]
            return AttachedFile(one.name or kept.name, one.type or kept.type, read(kept), one.content_id, kept.sha256)

        return [
            [file(one, f"{group.where}[{number}]") for number, one in enumerate(group.attachments)] for group in groups
        ]

    async def tidy(self) -> None:
        """Removes what has lived long enough, now and every hour, until it is canceled."""
        while True:
            with contextlib.suppress(RequestProblem):  # which is logged
                await self.run(self.kept.tidy, self.clock_ms())
            await asyncio.sleep(TIDY_S)


def _references(groups: Sequence[AttachmentGroup]) -> dict[str, str]:
    """Place in the request → reference."""
    return {
        f"{group.where}[{number}].ref": one.ref
        for group in groups
        for number, one in enumerate(group.attachments)
        if one.ref is not None
    }


def _check_size(groups: Sequence[AttachmentGroup], found: dict[str, Kept]) -> None:
    """Raises RequestProblem."""
    total = sum(group.times * _size(one, found) for group in groups for one in group.attachments)
    if total > BYTES_MAX:
        what = f"the attachments of all messages of this request have {total:,} bytes together"
        remedy = "hand in fewer messages at once, or use a campaign, whose template is stored once"
        raise RequestProblem("too-large", f"{what}; {BYTES_MAX:,} at most: {remedy}")


def _size(one: Attachment, found: dict[str, Kept]) -> int:
    return found[one.ref].size if one.ref is not None else len(one.content or "") * 3 // 4
