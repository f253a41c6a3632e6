"""The connection to NATS, and what is needed of JetStream. Bytes in, bytes out. The only module of the cluster that
imports nats-py.

A `Nats` connects again for ever, each time anew: nothing that was not sent is sent later. What is appended or put
under an expected number may be tried again without doing it twice: each carries a mark, and where the number has been
taken, it is looked up by whom. So every call goes on over the death of a server as long as its time lasts, and then
raises one of the errors below; nothing of nats-py's own is seen or printed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count, cycle
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from zonemta_py.config import ClusterSection, ConfigError
from zonemta_py.logs.causes import cause

log = logging.getLogger(__name__)
logging.getLogger("nats").setLevel(logging.CRITICAL)  # with tracebacks; what it says is said here

Handler = Callable[[bytes], Awaitable[bytes]]
T = TypeVar("T")

CONNECT_S = 2
"""Whole seconds: nats-py says so."""
PING_S, PONG_S, MISSED_MOST = 1.0, 1.0, 2
"""A server that answers none of so many pings is as good as dead: nodes that wait for it longer would count as dead
themselves. This process may have been busy when one was not heard."""
CLOSE_S = 1.0
TRY_S = 2.0
"""How long one try waits for an answer before it is made again."""
AGAIN_S, AGAIN_MOST_S = 0.05, 0.5
PRESENCE_S = 2.0
"""How long a subject may be without anybody who listens: one who has lost a server connects to another."""
CALL_S = 20.0
PART_BYTES = 512 * 1024
"""Requests and answers that are larger go in parts: servers take 1 MB, with headers."""
PARTS_MOST = 256
"""Requests whose parts have not all come."""
BATCH, BATCH_BYTES = 512, 8 << 20
LEADS_S, PAUSE_S = 10.0, 0.1
"""So long a server may take to lead a stream that it is told to."""
_APPEND = "a"
"""The last part of the subject of an answer to an append begins so; others are numbers."""
MARK = "Zonemta-Mark"
PART = "Zonemta-Part"
WORKING = "Zonemta-Working"
WORKING_S, SILENT_S = 2.0, 7.0
"""How often whoever is asked says that it is about it, and after how long without a word the question, or its answer,
is lost."""
FAILED = "Zonemta-Failed"
EXPECTED, EXPECTED_OF_SUBJECT = "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence"
_WRONG_SEQUENCE = (10071, 10164)
_NO_STREAM, _NO_MESSAGE = 10059, 10037
_NAME_TAKEN = 10058
_NO_PEERS = 10005
"""A server is away, or there are not as many as replicas."""
_FOR_GOOD = (10039, 10074, 10076)
"""With codes that else pass: no JetStream, no such replicas."""


class NatsError(Exception):
    """One sentence."""


class NoQuorum(NatsError):
    """Within the time that was given nobody has answered who may: what was asked is done, or is not."""


class NoAnswer(NatsError):
    """A request was sent, and nothing came back: it may have been carried out."""


class WrongSequence(NatsError):
    """Another one has written since. last: what is the last now, if the server says so."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        found = re.search(r"wrong last sequence: (\d+)", said)
        self.last = int(found[1]) if found else None


class NotThere(NatsError):
    """No such stream, message, key; or nobody listens to that subject."""


class NoStream(NotThere):
    """No such stream."""


class NatsRefusal(NatsError):
    """The server, or who was asked, refuses for good. code: one of JetStream's error codes."""

    def __init__(self, said: str, code: int = 0) -> None:
        super().__init__(said)
        self.code = code


class StreamInfo(NamedTuple):
    """first: the sequence of the oldest message that is there; last + 1 if there is none. messages: how many there are:
    less than the sequences, if some have been lost between. leader: a server's name, or "". replicas: how many there
    are to be."""

    first: int
    last: int
    messages: int
    bytes: int
    leader: str
    replicas: int


class StreamCopies(NamedTuple):
    """wanted: how many there are to be. behind: servers whose copy is not current, or away."""

    wanted: int
    behind: list[str]


class StreamMessage(NamedTuple):
    """A message of a stream."""

    sequence: int
    data: bytes


class KeyEntry(NamedTuple):
    """Of a bucket. value: None: it was deleted."""

    key: str
    value: bytes | None
    revision: int


class _Answer(NamedTuple):
    """status: "503" and such, "" for an ordinary one."""

    data: bytes
    headers: Mapping[str, str]
    status: str


class _Reader(Parser):
    """Tells answers to appends at once; all else goes nats-py's way."""

    def __init__(self, client: Client, waiting: Mapping[str, Callable[[_Answer | NatsError], None]]) -> None:
        super().__init__(client)
        self._waiting = waiting
        self._answer: re.Pattern[bytes] | None = None

    def hears(self, inbox: str) -> None:
        self._answer = re.compile(rb"MSG %b\.(%b\d+) \d+ (\d+)\r\n" % (re.escape(inbox.encode()), _APPEND.encode()))

    async def parse(self, data: bytes = b"") -> None:
        at = 0
        if self._answer is not None and not self.buf and self.state == AWAITING_CONTROL_LINE:
            while (found := self._answer.match(data, at)) is not None:
                end = found.end() + int(found[2])
                if end + 2 > len(data):
                    break
                if (tell := self._waiting.get(found[1].decode())) is not None:
                    tell(_Answer(data[found.end() : end], {}, ""))
                at = end + 2
        if at < len(data):
            await super().parse(data[at:] if at else data)


async def _answers(client: Client, seconds: float) -> bool:
    """Whether its server answers a ping in that time.

    Not by `Client.flush`: a late answer to one that was given up ends nats-py's task that reads, and then `flush` says
    that all is well. Raises errors.Error, OSError.
    """
    pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    await client._send_ping(pong)
    await asyncio.wait({pong}, timeout=seconds)
    return pong.done()


class Nats:
    """One lasting connection."""

    def __init__(self, section: ClusterSection, name: str) -> None:
        """name: as the servers' administrators see it."""
        self._section, self._name = section, name
        self.prefix = f"zonemta.{section.name}."
        """Of subjects."""
        self._client: Client | None = None
        self._there = asyncio.Event()
        self._told = asyncio.Event()
        """It was there once, or refuses for good."""
        self._inbox = ""
        self._open = dict[str, Callable[[_Answer | NatsError], None]]()
        """Those who wait, by the last part of the subject of their answer."""
        self._numbers = count()
        self._marks = (f"{os.urandom(9).hex()}-{number}" for number in count())
        self._served = dict[str, Callable[[Msg], Awaitable[None]]]()
        self._parts = dict[str, list[bytes]]()
        self._made = set[str]()
        """Streams that are there, whatever a server says that has not heard of them yet."""
        self._tasks, self._closing = set[asyncio.Task[Any]](), set[asyncio.Task[None]]()
        self._keeper: asyncio.Task[None] | None = None
        self._noted: Exception | None = None
        self.connections = 0
        """How often it has connected."""

    @classmethod
    async def connect(cls, section: ClusterSection, name: str, timeout_s: float = CALL_S) -> Nats:
        """Raises NoQuorum if no server can be reached, NatsRefusal for a login that is refused, ConfigError."""
        self = cls(section, name)
        tls_context(section)
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), timeout_s)
        if self._there.is_set():
            return self
        await self.close()
        where, why = ", ".join(section.servers), _said(self._noted)
        if _login_refused(self._noted):
            raise NatsRefusal(f"NATS at {where} refuses the login; compare cluster.username and password with it")
        if isinstance(self._noted, NatsRefusal):
            raise NatsRefusal(f"NATS at {where}: {why}")
        raise NoQuorum(f"NATS cannot be reached at {where}: {why}; start its servers")

    async def close(self) -> None:
        """What waits for an answer gets none."""
        while self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()  # nats-py swallows some
            await asyncio.wait({self._keeper}, timeout=AGAIN_S)
        for task in self._tasks:
            task.cancel()
        if waiting := {*self._tasks, *self._closing}:
            await asyncio.wait(waiting, timeout=CLOSE_S * 2)

    @property
    def version(self) -> tuple[int, ...]:
        """Of the server that it is connected to; (): unknown."""
        found = self._client._server_info.get("version", "") if self._client is not None else ""
        return tuple(map(int, re.findall(r"\d+", found)[:3]))

    @property
    def payload_max(self) -> int:
        """Bytes that this server takes at once."""
        return self._client.max_payload if self._client is not None else 0

    async def account(self, timeout_s: float = CALL_S) -> None:
        """Whether JetStream may be used with this login. Raises NatsRefusal if not."""
        await self._api("INFO", {}, timeout_s)

    @property
    def is_connected(self) -> bool:
        return self._there.is_set()

    # -- the connection

    async def _keep(self) -> None:
        """For ever."""
        wait_s, tries = AGAIN_S, 0
        for server in cycle(self._section.servers):
            client, gone, tries = Client(), asyncio.Event(), tries + 1
            client._ps = reader = _Reader(client, self._open)
            try:
                await self._open_one(client, server, gone)
                reader.hears(self._inbox)
                wait_s, tries = AGAIN_S, 0
                await self._watch(client, gone)
            except Exception as error:  # whatever nats-py raises, a connection is made anew
                self._note(error)
            finally:
                self._there.clear()
                self._client = None
                self._fail(NoQuorum("the connection to NATS broke"))
                self._closing.add(closing := asyncio.get_running_loop().create_task(_closed(client)))
                closing.add_done_callback(self._closing.discard)
            if tries >= len(self._section.servers):
                tries = 0
                await asyncio.sleep(wait_s)
                wait_s = min(AGAIN_MOST_S, wait_s * 2)

    async def _open_one(self, client: Client, server: str, broke: asyncio.Event) -> None:
        section = self._section
        parts = urlsplit(server)
        secured = parts.scheme == "tls"

        async def note(error: Exception) -> None:
            self._note(error)

        async def gone() -> None:
            broke.set()

        def checked(value: str) -> str:
            """The library goes on in the clear if the server offers no TLS: a login never does."""
            if secured and not client._server_info.get("tls_required"):
                raise NatsRefusal("it offers no TLS: set up TLS there, or write nats:// with cleartext = true")
            return value

        more: dict[str, Any] = {}
        if section.credentials is not None:
            more = {"user_credentials": str(section.credentials)}
        elif section.username:
            more = {"user": lambda: checked(section.username), "password": lambda: section.password}
        elif section.password:
            more = {"token": lambda: checked(section.password)}
        if secured:
            more["tls"] = tls_context(section)
        async with asyncio.timeout(CONNECT_S * 2):
            await client.connect(
                f"nats://{parts.netloc.rpartition('@')[2]}" + ("" if parts.port else ":4222"), name=self._name,
                allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, connect_timeout=CONNECT_S,
                error_cb=note, closed_cb=gone, disconnected_cb=gone, **more,
            )  # fmt: skip
            checked("")
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._answered, pending_msgs_limit=0, pending_bytes_limit=0)
            served = set[str]()
            while lacking := [subject for subject in self._served if subject not in served]:
                for subject in lacking:
                    take = self._served[subject]
                    await client.subscribe(subject, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
                served.update(lacking)
                await client.flush(CONNECT_S)
        self._client = client
        self.connections += 1
        self._noted = None
        self._there.set()
        self._told.set()

    def _note(self, error: Exception) -> None:
        """What says most about why there is no connection: what breaks afterwards says less."""
        said = self._noted
        if said is None or not (_refuses(said) or isinstance(error, errors.NoServersError)):
            self._noted = error
        if _refuses(self._noted):
            self._told.set()

    async def _watch(self, client: Client, gone: asyncio.Event) -> None:
        """Returns when the connection is gone, or its server says nothing any more."""
        missed = 0
        while missed < MISSED_MOST:
            if not missed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(gone.wait(), PING_S)
                    return
            if client._reading_task is None or client._reading_task.done():
                return
            missed = 0 if await _answers(client, PONG_S) else missed + 1

    def _fail(self, error: NatsError) -> None:
        for tell in [*self._open.values()]:
            tell(error)
        self._parts.clear()

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, message: Msg) -> None:
        tell = self._open.get(message.subject.rpartition(".")[2])
        if tell is not None:
            headers = message.headers or {}
            tell(_Answer(message.data, headers, headers.get("Status", "")))

    # -- one try

    async def _send(
        self, subject: str, data: bytes, headers: dict[str, str] | None, tell: Callable[[_Answer | NatsError], None]
    ) -> str:
        """tell: what to do with each answer, until `_open` forgets it. Raises NoQuorum: nothing was sent."""
        client = self._client
        if client is None:
            raise NoQuorum(f"NATS cannot be reached: {_said(self._noted)}")
        key = str(next(self._numbers))
        self._open[key] = tell
        try:
            await client.publish(subject, data, f"{self._inbox}.{key}", headers)
        except errors.MaxPayloadError:
            del self._open[key]
            raise _too_large(data) from None
        except (errors.Error, OSError) as error:
            del self._open[key]
            raise NoQuorum(f"NATS cannot be reached: {_said(error)}") from None
        return key

    async def _asked(self, subject: str, data: bytes, headers: dict[str, str] | None, timeout_s: float) -> _Answer:
        answer, key = await self._begun(subject, data, headers)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise NoQuorum(f"no answer from NATS within {timeout_s:.1f} s") from None
        finally:
            self._open.pop(key, None)

    async def _begun(
        self, subject: str, data: bytes, headers: dict[str, str] | None
    ) -> tuple[asyncio.Future[_Answer], str]:
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()

        def tell(came: _Answer | NatsError) -> None:
            if answer.done():
                return
            if isinstance(came, NatsError):
                answer.set_exception(came)
            else:
                answer.set_result(came)

        return answer, await self._send(subject, data, headers, tell)

    async def _again(self, timeout_s: float, work: Callable[[float], Awaitable[T]]) -> T:
        """Tries until it is done, or raises something else than NoQuorum, or the time is over. work: takes the seconds
        it may last."""
        loop = asyncio.get_running_loop()
        end, wait_s = loop.time() + timeout_s, AGAIN_S
        while True:
            left = end - loop.time()
            try:
                if not self._there.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._there.wait(), max(0.0, left))
                return await work(max(AGAIN_S, min(TRY_S, end - loop.time())))
            except NoQuorum:
                if end - loop.time() <= wait_s:
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(AGAIN_MOST_S, wait_s * 2)

    async def _api(self, question: str, arguments: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        data = json.dumps(arguments).encode() if arguments else b""

        async def one(seconds: float) -> dict[str, Any]:
            try:
                return _parsed(await self._asked(f"$JS.API.{question}", data, None, seconds))
            except NoStream as error:
                if question.rpartition(".")[2] in self._made:
                    raise NoQuorum(str(error)) from None
                raise

        return await self._again(timeout_s, one)

    # -- streams

    async def make_stream(self, stream: str, subject: str, timeout_s: float = CALL_S, **more: Any) -> None:
        """If it is not there yet. more: of its configuration."""
        settings = {
            "name": stream, "subjects": [subject], "retention": "limits", "storage": "file", "discard": "new",
            "num_replicas": self._section.replicas, "allow_direct": True, "max_msgs": -1, "max_bytes": -1,
            "max_age": 0, "max_msg_size": -1, "max_consumers": -1, **more,
        }  # fmt: skip
        try:
            await self._api(f"STREAM.CREATE.{stream}", settings, timeout_s)
        except NatsRefusal as error:
            if error.code != _NAME_TAKEN:  # an administrator has changed it
                raise
        self._made.add(stream)

    async def delete_stream(self, stream: str, timeout_s: float = CALL_S) -> None:
        self._made.discard(stream)
        with suppress(NotThere):
            await self._api(f"STREAM.DELETE.{stream}", {}, timeout_s)

    async def info(self, stream: str, timeout_s: float = CALL_S) -> StreamInfo:
        """As its leader says, which may know less than all in the moment that it becomes the leader: only what is
        appended under an expected number is sure of that. Raises NotThere."""
        found = await self._api(f"STREAM.INFO.{stream}", {}, timeout_s)
        state = found["state"]
        first = state["first_seq"] if state["messages"] else state["last_seq"] + 1
        leader = (found.get("cluster") or {}).get("leader", "")
        return StreamInfo(
            first, state["last_seq"], state["messages"], state["bytes"], leader, found["config"]["num_replicas"]
        )

    async def lacking(self, stream: str, timeout_s: float = CALL_S) -> list[str]:
        """Names of servers that should keep the stream, and are away. Raises NotThere."""
        found = (await self._api(f"STREAM.INFO.{stream}", {}, timeout_s)).get("cluster") or {}
        return [one["name"] for one in found.get("replicas") or () if one.get("offline")]

    async def copies(self, stream: str, timeout_s: float = CALL_S) -> StreamCopies:
        """Raises NotThere; NoQuorum: it has no leader."""
        found = await self._api(f"STREAM.INFO.{stream}", {}, timeout_s)
        group = found.get("cluster") or {}
        behind = [one["name"] for one in group.get("replicas") or () if one.get("offline") or not one.get("current")]
        return StreamCopies(found["config"]["num_replicas"], sorted(behind))

    async def purge(self, stream: str, before: int, timeout_s: float = CALL_S) -> None:
        """Removes all messages before that sequence."""
        await self._api(f"STREAM.PURGE.{stream}", {"seq": before}, timeout_s)

    async def unseat(self, stream: str, timeout_s: float = TRY_S) -> None:
        """Asks its leader to let another server lead; whether one does is to be seen."""
        with suppress(NatsError):
            await self._api(f"STREAM.LEADER.STEPDOWN.{stream}", {}, timeout_s)

    async def append(self, subject: str, data: bytes, expected: int, timeout_s: float = CALL_S) -> int:
        """The new message's sequence, when the quorum has it on stable storage. Raises WrongSequence if the last one is
        another than `expected`, NoQuorum."""
        return await self._published(subject, data, EXPECTED, expected, timeout_s, self._after)

    def begin_append(self, subject: str, data: bytes, expected: int) -> asyncio.Future[int]:
        """One try, whose answer is the future's: several may be on the way, in the order of the calls, each expecting
        the one before. Raises NoQuorum: nothing was sent; the future's error NoQuorum: it may have been.

        Each group commit of a queue is one: so it is written to the socket as it is here, and `_Reader` finds its
        answer.
        """
        client = self._client
        if client is None or not client.is_connected:
            raise NoQuorum(f"NATS cannot be reached: {_said(self._noted)}")
        if len(data) > client.max_payload:
            raise _too_large(data)
        key = f"{_APPEND}{next(self._numbers)}"
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def tell(came: _Answer | NatsError) -> None:
            if done.done():
                return
            try:
                if isinstance(came, NatsError):
                    raise came
                done.set_result(int(_parsed(came)["seq"]))
            except NatsError as error:
                done.set_exception(error)
            except (ValueError, KeyError) as error:
                done.set_exception(NoQuorum(f"the answer of NATS cannot be read: {error!r}"))

        def over(one: asyncio.Future[int]) -> None:
            self._open.pop(key, None)
            if not one.cancelled():
                one.exception()  # it is heard

        done.add_done_callback(over)
        self._open[key] = tell
        header = b"NATS/1.0\r\n%b: %d\r\n\r\n" % (EXPECTED.encode(), expected)
        line = f"HPUB {subject} {self._inbox}.{key} {len(header)} {len(header) + len(data)}\r\n"
        transport: Any = client._transport
        transport.writelines([line.encode() + header, data, b"\r\n"])
        return done

    async def _published(
        self, subject: str, data: bytes, header: str, expected: int | None, timeout_s: float,
        found_there: Callable[[str, int], Awaitable[tuple[int, str]]],
        more: Mapping[str, str] | None = None,
    ) -> int:  # fmt: skip
        headers = {MARK: next(self._marks), **(more or {})}
        if expected is not None:
            headers[header] = str(expected)
        tried = False

        async def one(seconds: float) -> int:
            nonlocal tried
            before, tried = tried, True
            try:
                acknowledged = _parsed(await self._asked(subject, data, headers, seconds))
            except WrongSequence:
                if before:  # and the earlier try may have done it, though it is not yet to be seen
                    try:
                        sequence, mark = await found_there(subject, expected or 0)
                    except NotThere:
                        raise NoQuorum("another try is under way, or was") from None
                    if mark == headers[MARK]:
                        return sequence
                raise
            return int(acknowledged["seq"])

        return await self._again(timeout_s, one)

    async def _after(self, subject: str, expected: int) -> tuple[int, str]:
        """The sequence of what follows a number, and its mark. Raises NotThere."""
        which = {"seq": expected + 1, "next_by_subj": subject}
        return await self._marked(await self._stream_of(subject), which)

    async def _stream_of(self, subject: str) -> str:
        found = await self._api("STREAM.NAMES", {"subject": subject}, CALL_S)
        if not found.get("streams"):
            raise NotThere(f"no stream has subject {subject}")
        return str(found["streams"][0])

    async def _marked(self, stream: str, which: Mapping[str, Any]) -> tuple[int, str]:
        message = (await self._api(f"STREAM.MSG.GET.{stream}", which, CALL_S))["message"]
        return message["seq"], _headers(message).get(MARK, "")

    async def get_block(self, stream: str, sequence: int, timeout_s: float = CALL_S) -> StreamMessage:
        """As the stream's leader has it. Raises NotThere."""
        message = (await self._api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}, timeout_s))["message"]
        return StreamMessage(message["seq"], _unbase64(message.get("data", "")))

    async def read(
        self, stream: str, first: int, last: int | None = None, timeout_s: float = CALL_S
    ) -> AsyncIterator[StreamMessage]:
        """What is there from `first` to `last` (None: the last one now), in order; what has been purged, or is lost, is
        not among it. timeout_s: without anything new."""
        found = await self.info(stream, timeout_s)
        first = max(first, found.first)
        last = found.last if last is None else last
        while first <= last:
            blocks = await self._next(stream, first, min(BATCH, last - first + 1), timeout_s)
            if not blocks:
                return
            first = blocks[0].sequence
            for block in blocks:
                if block.sequence != first or first > last:  # others are asked for what lacks
                    break
                first += 1
                yield block

    async def _next(self, stream: str, first: int, most: int, timeout_s: float) -> list[StreamMessage]:
        """Message `first`, and some that follow; where no copy of the stream has that one, the next that there is."""
        nearest = await self._some(stream, first, most, timeout_s)  # of the copy nearest to the connection
        asked = set[str]()
        while not nearest or nearest[0].sequence != first:
            found = await self._from_leader(stream, first, timeout_s)
            if found is not None and (not nearest or found.sequence < nearest[0].sequence):
                nearest = [found]
            elif not await self._other_leads(stream, first, asked):
                break
        return nearest

    async def _other_leads(self, stream: str, lacking: int, asked: set[str]) -> bool:
        """Lets a server lead that has not been asked yet, since the files of who leads may be damaged. False: there is
        none, or that message has been purged."""
        with suppress(NatsError):
            found = await self._api(f"STREAM.INFO.{stream}", {}, CALL_S)
            group = found.get("cluster") or {}
            if lacking < found["state"]["first_seq"]:
                return False
            asked.add(group.get("leader", ""))
            for one in group.get("replicas") or ():
                if one["name"] in asked or one.get("offline"):
                    continue
                asked.add(one["name"])
                log.warning("a copy of stream %s seems to be damaged; server %s is to lead it", stream, one["name"])
                which = {"placement": {"preferred": one["name"]}}
                await self._api(f"STREAM.LEADER.STEPDOWN.{stream}", which, CALL_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LEADS_S):
                        while (await self.info(stream)).leader != one["name"]:  # noqa: ASYNC110 (nobody tells)
                            await asyncio.sleep(PAUSE_S)
                return True
        return False

    async def _some(self, stream: str, first: int, most: int, timeout_s: float) -> list[StreamMessage]:
        which = {"seq": first, "batch": most, "max_bytes": BATCH_BYTES}
        found = await self._again(timeout_s, lambda seconds: self._batch(stream, which, seconds))
        return [StreamMessage(int(one.headers["Nats-Sequence"]), one.data) for one in found]

    async def _from_leader(self, stream: str, first: int, timeout_s: float) -> StreamMessage | None:
        """The next one from there on; None: there is none."""
        with suppress(NotThere):
            which = {"seq": first, "next_by_subj": ">"}
            message = (await self._api(f"STREAM.MSG.GET.{stream}", which, timeout_s))["message"]
            return StreamMessage(message["seq"], _unbase64(message.get("data", "")))
        return None

    async def _batch(self, stream: str, which: Mapping[str, Any], timeout_s: float) -> list[_Answer]:
        """Messages that a replica has. Raises NoQuorum: not all of them came."""
        found = list[_Answer]()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        came = asyncio.Event()

        def tell(one: _Answer | NatsError) -> None:
            came.set()
            if done.done():
                return
            if isinstance(one, NatsError):
                done.set_exception(one)
            elif one.status == "503":
                done.set_exception(NoQuorum(f"no server answers for stream {stream}"))
            elif one.status in ("204", "404"):
                done.set_result(None)
            elif one.status:
                said = one.headers.get("Description", one.status)
                done.set_exception(NatsRefusal(f"stream {stream} cannot be read: {said}"))
            else:
                found.append(one)

        key = await self._send(f"$JS.API.DIRECT.GET.{stream}", json.dumps(which).encode(), None, tell)
        try:
            while not done.done():
                came.clear()
                try:
                    await asyncio.wait_for(came.wait(), timeout_s)
                except TimeoutError:
                    raise NoQuorum(f"stream {stream} is not read to its end within {timeout_s:.1f} s") from None
            await done
        finally:
            self._open.pop(key, None)
            if not done.cancel() and not done.cancelled():
                done.exception()  # it is heard
        return found

    # -- buckets

    def bucket(self, name: str) -> Bucket:
        return Bucket(self, f"zonemta-{self._section.name}-{name}")

    # -- requests

    async def request(self, subject: str, data: bytes, timeout_s: float = CALL_S) -> bytes:
        """Asks who serves that subject. Raises NotThere if nobody does: then nothing has happened; NoQuorum: nothing
        was sent; NoAnswer; NatsRefusal with what the other side says."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        presence = loop.time() + min(timeout_s, PRESENCE_S)
        while True:
            try:
                return await self._requested(subject, data, end)
            except NotThere:
                if loop.time() + AGAIN_S > presence:
                    raise
            except NoQuorum:
                if loop.time() + AGAIN_S > end:
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._there.wait(), max(0.0, end - loop.time() - AGAIN_S))
            await asyncio.sleep(AGAIN_S)

    async def _requested(self, subject: str, data: bytes, end: float) -> bytes:
        loop = asyncio.get_running_loop()
        parts, heard = list[bytes](), loop.time()
        answer: asyncio.Future[bytes] = loop.create_future()

        def tell(came: _Answer | NatsError) -> None:
            nonlocal heard
            if answer.done():
                return
            heard = loop.time()
            if isinstance(came, NatsError):
                answer.set_exception(NoAnswer(f"no answer from {subject}: {came}"))
            elif came.status == "503":
                answer.set_exception(NotThere(f"nobody listens to {subject}"))
            elif FAILED in came.headers:
                answer.set_exception(NatsRefusal(came.data.decode(errors="replace")))
            elif WORKING not in came.headers:
                parts.append(came.data)
                if PART not in came.headers:
                    answer.set_result(b"".join(parts))

        pieces = _pieces(data)
        key = await self._send(subject, pieces[0], _part_of(pieces, 0), tell)
        try:
            client = self._client
            for number, piece in enumerate(pieces[1:], 1):
                if client is None or client is not self._client:
                    raise NoQuorum("the connection to NATS broke")
                await client.publish(subject, piece, f"{self._inbox}.{key}", _part_of(pieces, number))
            while not answer.done():
                if loop.time() >= min(end, heard + SILENT_S):
                    await asyncio.sleep(AGAIN_S)  # this process may have stood still, and what has come waits
                    if not answer.done() and loop.time() >= min(end, heard + SILENT_S):
                        raise NoAnswer(f"no answer from {subject} in time")
                    continue
                await asyncio.wait({answer}, timeout=max(0.0, min(end, heard + SILENT_S) - loop.time()))
            return answer.result()
        except (errors.Error, OSError) as error:
            raise NoQuorum(f"NATS cannot be reached: {_said(error)}") from None
        finally:
            self._open.pop(key, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # it is heard

    async def serve(self, subject: str, handler: Handler) -> None:
        """Answers requests from now on, several at once. An exception of the handler is the other side's
        NatsRefusal."""

        async def take(message: Msg) -> None:
            headers = message.headers or {}
            if PART in headers:
                self._parts.setdefault(message.reply, []).append(message.data)
                if len(self._parts) > PARTS_MOST:  # the oldest one's sender has gone
                    del self._parts[next(iter(self._parts))]
                if headers[PART] != "last":
                    return
                data = b"".join(self._parts.pop(message.reply))
            else:
                data = message.data
            self._later(self._answer(message.reply, data, handler))

        await self._listen(subject, take)

    async def listen(self, subject: str, handler: Callable[[bytes], None]) -> None:
        """What is published there from now on, as far as it comes through."""

        async def take(message: Msg) -> None:
            handler(message.data)

        await self._listen(subject, take)

    async def _listen(self, subject: str, take: Callable[[Msg], Awaitable[None]]) -> None:
        self._served[subject] = take
        if self._client is not None:
            with suppress(errors.Error, OSError):  # else with the next connection
                await self._client.subscribe(subject, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
                await _answers(self._client, CONNECT_S)

    async def tell(self, subject: str, data: bytes = b"") -> None:
        """Publishes it for those who listen just now."""
        if self._client is not None:
            with suppress(errors.Error, OSError):
                await self._client.publish(subject, data)

    async def _answer(self, reply: str, data: bytes, handler: Handler) -> None:
        headers: dict[str, str] | None = None
        try:
            answer = await self._worked(reply, handler(data))
        except NatsError as error:
            answer, headers = str(error).encode(), {FAILED: "1"}
        except Exception as error:
            log.exception("a request from another node failed")
            answer, headers = f"{type(error).__name__}: {error}".encode()[:PART_BYTES], {FAILED: "1"}
        client = self._client
        if client is None or not reply:
            return
        with suppress(errors.Error, OSError):
            *most, last = _pieces(answer)
            for piece in most:
                await client.publish(reply, piece, "", {PART: "more"})
            await client.publish(reply, last, "", headers)

    async def _worked(self, reply: str, work: Awaitable[bytes]) -> bytes:
        """Its result; whoever has asked hears meanwhile that it lasts."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=WORKING_S))[0]:
                if reply and self._client is not None:
                    with suppress(errors.Error, OSError):
                        await self._client.publish(reply, b"", "", {WORKING: "1"})
            return task.result()
        finally:
            task.cancel()

    async def ask_all(self, subject: str, data: bytes, quiet_s: float, timeout_s: float) -> list[bytes]:
        """The answers of all who listen, until there was none for `quiet_s`."""
        found = list[bytes]()
        loop = asyncio.get_running_loop()
        end, came, broken = loop.time() + timeout_s, asyncio.Event(), list[NatsError]()

        def tell(one: _Answer | NatsError) -> None:
            came.set()
            if isinstance(one, NatsError):
                broken.append(one)
            elif one.status == "503":
                broken.append(NotThere(f"nobody listens to {subject}"))
            else:
                found.append(one.data)

        key = await self._send(subject, data, None, tell)
        try:
            while not broken:
                came.clear()
                wait_s = min(quiet_s if found else timeout_s, end - loop.time())
                try:
                    await asyncio.wait_for(came.wait(), max(0.0, wait_s))
                except TimeoutError:
                    return found
            raise broken[0]
        finally:
            self._open.pop(key, None)


class Bucket:
    """A key-value bucket: the last value of each key, and its revision."""

    def __init__(self, nats: Nats, name: str) -> None:
        self._nats, self._name, self._stream = nats, name, f"KV_{name}"

    @property
    def stream(self) -> str:
        """Its name."""
        return self._stream

    async def make(self, timeout_s: float = CALL_S) -> None:
        """If it is not there yet."""
        await self._nats.make_stream(
            self._stream, f"$KV.{self._name}.>", timeout_s, max_msgs_per_subject=1, allow_rollup_hdrs=True,
            deny_delete=True,
        )  # fmt: skip

    async def get(self, key: str, timeout_s: float = CALL_S) -> KeyEntry:
        """As the bucket's leader has it. Raises NotThere."""
        which = {"last_by_subj": f"$KV.{self._name}.{key}"}
        message = (await self._nats._api(f"STREAM.MSG.GET.{self._stream}", which, timeout_s))["message"]
        if _headers(message).get("KV-Operation"):
            raise NotThere(f"{key} has been deleted")
        return KeyEntry(key, _unbase64(message.get("data", "")), message["seq"])

    async def put(self, key: str, value: bytes, timeout_s: float = CALL_S) -> int:
        """The new revision."""
        return await self._put(key, value, None, timeout_s)

    async def create(self, key: str, value: bytes, timeout_s: float = CALL_S) -> int:
        """Raises WrongSequence if it is there."""
        try:
            return await self._put(key, value, 0, timeout_s)
        except WrongSequence as error:
            try:
                deleted = await self._deleted(key, timeout_s)
            except NotThere:  # another one's is on its way
                raise error from None
            if deleted is None:
                raise error
            return await self._put(key, value, deleted, timeout_s)

    async def _deleted(self, key: str, timeout_s: float) -> int | None:
        """The revision of that; None: it is there."""
        which = {"last_by_subj": f"$KV.{self._name}.{key}"}
        message = (await self._nats._api(f"STREAM.MSG.GET.{self._stream}", which, timeout_s))["message"]
        return int(message["seq"]) if _headers(message).get("KV-Operation") else None

    async def update(self, key: str, value: bytes, revision: int, timeout_s: float = CALL_S) -> int:
        """The new revision. Raises WrongSequence if the last one is another."""
        return await self._put(key, value, revision, timeout_s)

    async def delete(self, key: str, revision: int, timeout_s: float = CALL_S) -> int:
        """The revision of that. Raises WrongSequence."""
        return await self._put(key, b"", revision, timeout_s, {"KV-Operation": "DEL"})

    async def _put(
        self, key: str, value: bytes, expected: int | None, timeout_s: float, more: Mapping[str, str] | None = None
    ) -> int:
        async def newer(subject: str, expected: int) -> tuple[int, str]:
            found = await self._nats._marked(self._stream, {"last_by_subj": subject})
            if found[0] <= expected:
                raise NotThere("that is not to be seen yet")
            return found

        subject = f"$KV.{self._name}.{key}"
        return await self._nats._published(subject, value, EXPECTED_OF_SUBJECT, expected, timeout_s, newer, more)

    async def all(self, timeout_s: float = CALL_S) -> list[KeyEntry]:
        """Every key's last value, as one of the replicas has them: perhaps not the newest."""
        start = f"$KV.{self._name}."
        which = {"multi_last": [f"{start}>"], "batch": 10_000}

        async def one(seconds: float) -> list[_Answer]:
            return await self._nats._batch(self._stream, which, seconds)

        return [
            KeyEntry(
                one.headers["Nats-Subject"].removeprefix(start),
                None if one.headers.get("KV-Operation") else one.data, int(one.headers["Nats-Sequence"]),
            )
            for one in await self._nats._again(timeout_s, one)
        ]  # fmt: skip

    async def keys(self, timeout_s: float = CALL_S) -> list[str]:
        return [one.key for one in await self.all(timeout_s) if one.value is not None]


async def _closed(client: Client) -> None:
    """Whatever its server does: what was not sent is dropped."""
    with suppress(Exception):
        transport: Any = client._transport
        if transport is not None and (writer := getattr(transport, "_io_writer", None)) is not None:
            writer.transport.abort()
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_S):
            await client.close()


def _parsed(answer: _Answer) -> dict[str, Any]:
    """JetStream's answer. Raises NatsError."""
    if answer.status == "503":
        raise NoQuorum("no server answers for it: there is no leader, or no such stream")
    found: dict[str, Any] = json.loads(answer.data)
    error = found.get("error")
    if not error:
        return found
    code, said = error.get("err_code", 0), str(error.get("description"))
    if code in _WRONG_SEQUENCE:
        raise WrongSequence(said)
    if code == _NO_STREAM:
        raise NoStream(said)
    if code == _NO_MESSAGE:
        raise NotThere(said)
    if (error.get("code") == 503 and code not in _FOR_GOOD) or code == _NO_PEERS:
        raise NoQuorum(said)
    raise NatsRefusal(said, code)


def _headers(message: Mapping[str, Any]) -> dict[str, str]:
    lines = _unbase64(message.get("hdrs", "")).decode().split("\r\n")[1:]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines) if key}


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text)


def _too_large(data: bytes) -> NatsRefusal:
    return NatsRefusal(f"{len(data):,} bytes are more than NATS takes at once; raise its max_payload")


def _pieces(data: bytes) -> list[bytes]:
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)] or [b""]


def _part_of(pieces: list[bytes], number: int) -> dict[str, str] | None:
    if len(pieces) == 1:
        return None
    return {PART: "last" if number == len(pieces) - 1 else "more"}


def _login_refused(error: Exception | None) -> bool:
    return "authorization" in _said(error).lower()


def _refuses(error: Exception | None) -> bool:
    return isinstance(error, NatsRefusal) or _login_refused(error)


def _said(error: Exception | None) -> str:
    if error is None:
        return "nobody answers"
    if isinstance(error, OSError) and not isinstance(error, errors.Error):
        return cause(error)
    return str(error).removeprefix("nats: ") or type(error).__name__


def tls_context(section: ClusterSection) -> ssl.SSLContext:
    """Made anew for every connection, so that renewed files count. Raises ConfigError."""
    try:
        made = ssl.create_default_context(cafile=str(section.ca_file) if section.ca_file else None)
        key = "ca_file"
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if section.client_certificate:
            key = "client_certificate"
            made.load_cert_chain(section.client_certificate)
    except OSError as error:
        key = "client_certificate" if "made" in locals() else "ca_file"
        raise ConfigError(
            f"cluster.{key}: {getattr(section, key)} cannot be used ({cause(error)}); name a readable PEM file"
        ) from None
    return made
