"""The events of several queues as one stream: a tail for each journal, told as they come.

What is told of a message keeps its order, as its queue's does. An event's id says, besides its own place, how far the
stream has come in the other journals (`EVENT,NAME-RECORD-PART,NAME-RECORD,…`: a name is the first eight characters of
the queue's, and without a part all of the record was told): whoever gives it back gets every event behind it once. An
event's id alone will do too: the other journals are told from its time on then, and so are those of queues that have
come since.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial

from zonemta_py.events.event import place_of
from zonemta_py.events.hub import END_PART, Hub, Listening, Place, Told

_NAME = 8
_INCARNATION = 32
"""Where in a queue's name it begins."""


class Hubs:
    """By the number of their queues."""

    def __init__(self, hubs: Mapping[int, Hub]) -> None:
        self._hubs = dict(hubs)

    def end(self) -> None:
        for hub in self._hubs.values():
            hub.end()

    async def opened(self, last_id: str, since_ms: int | None) -> Listening:
        """As of `Hub`."""
        now = dict(zip(self._hubs, await asyncio.gather(*(hub.now() for hub in self._hubs.values())), strict=True))
        after = dict(now)
        if last_id:
            after = await self._behind(last_id, now)
        elif since_ms is not None:
            after = {number: await hub.before(since_ms) for number, hub in self._hubs.items()}
        return partial(self._listen, {number: min(place, now[number]) for number, place in after.items()}, now)

    async def _behind(self, last_id: str, now: Mapping[int, Place]) -> dict[int, Place]:
        """Raises ValueError."""
        id, *more = last_id.strip().split(",")
        sources = {number: hub.source() for number, hub in self._hubs.items()}
        own = next((number for number, source in sources.items() if id.startswith(f"{source}-")), next(iter(sources)))
        found = {own: place_of(id, sources[own])}
        said = dict(map(_place, more))
        missing = [number for number in self._hubs if number != own and _short(sources[number]) not in said]
        ms = await self._hubs[own].ms_of(found[own], now[own]) if missing else None
        for number, source in sources.items():
            if number in missing:
                found[number] = now[number] if ms is None else await self._hubs[number].before(ms)
            elif number != own:
                found[number] = said[_short(source)]
        return found

    async def _listen(
        self, after: Mapping[int, Place], now: Mapping[int, Place], wait_s: float
    ) -> AsyncGenerator[list[Told], None]:
        places, names = dict(after), {number: _short(hub.source()) for number, hub in self._hubs.items()}
        portions = asyncio.Queue[tuple[int, list[Told] | Exception | None]](1)

        async def feed(number: int) -> None:
            try:
                async with aclosing(self._hubs[number].listen(after[number], now[number], wait_s)) as its:
                    async for found in its:
                        if found:
                            await portions.put((number, found))
                await portions.put((number, None))
            except Exception as error:
                await portions.put((number, error))

        feeds = [asyncio.create_task(feed(number)) for number in self._hubs]
        left = len(feeds)
        try:
            while left:
                try:
                    number, found = await asyncio.wait_for(portions.get(), wait_s)
                except TimeoutError:
                    yield []
                    continue
                if isinstance(found, Exception):
                    raise found
                if found is None:
                    left -= 1
                    continue
                others = "".join(f",{_text(names[one], place)}" for one, place in places.items() if one != number)
                yield [one._replace(id=one.id + others) if one.id else one for one in found]
                places[number] = max(places[number], found[-1].place)
        finally:
            for task in feeds:
                task.cancel()
            await asyncio.gather(*feeds, return_exceptions=True)


def _short(source: str) -> str:
    """Of a queue's name, with how often it was adopted."""
    return source[:_NAME] + source[_INCARNATION:]


def _text(name: str, place: Place) -> str:
    return f"{name}-{place[0]}" if place[1] == END_PART else f"{name}-{place[0]}-{place[1]}"


def _place(text: str) -> tuple[str, Place]:
    """Raises ValueError."""
    name, *numbers = text.split("-")
    if not 1 <= len(numbers) <= 2 or not all(one.isascii() and one.isdigit() and len(one) < 20 for one in numbers):
        raise ValueError(f"{text[:100]!a} is no place in a queue's journal; give an id as it came")
    return name, (int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else END_PART)
