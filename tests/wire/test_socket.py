"""The unix socket: what travels, what is garbage, and what happens when the queue's process goes."""

import asyncio
import stat
from functools import partial
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.disk.bodies import MAGIC
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.reply import Reply
from zonemta_py.queue import questions
from zonemta_py.queue.admin import answers
from zonemta_py.queue.api import DELIVERED, Delivery, Outcome, QueueFault, QueueRefusal, Result
from zonemta_py.queue.questions.question import AnsweredBy
from zonemta_py.schedule.time import pace
from zonemta_py.wire import blocking_client
from zonemta_py.wire.blocking_client import ask
from zonemta_py.wire.client import PATIENCE_S, RemoteQueue
from zonemta_py.wire.frames import (
    CHUNKS_AT_ONCE,
    OK,
    REFUSED,
    WRONG,
    Operation,
    delivery_of,
    delivery_row,
    pack,
    result_of,
    result_row,
)
from zonemta_py.wire.server import ClientConnection

BODY = b"Subject: x\r\n\r\nHi\r\n"


def mail(address: str = "bob@x.test", size: int = len(BODY)) -> Envelope:
    return Envelope("ann@src.test", [Recipient(address)], size)


def done(delivery: Delivery) -> Result:
    indices = list(range(len(delivery.recipients)))
    return Result(delivery.lease, [Outcome(DELIVERED, Reply(250, "2.0.0", "ok"), "dot", indices)])


@given(
    st.builds(
        Delivery,
        st.integers(0, 2**40), st.text(), st.text(), st.text(), st.text(),
        st.lists(st.builds(Recipient, st.text(), st.integers(0, 15), st.none() | st.text())),
        st.integers(0, 2**40), st.integers(0, 999_999), st.none() | st.binary(),
        attempts=st.lists(st.integers(0, 100)), routing=st.dictionaries(st.text(), st.text()),
    )
)  # fmt: skip
def test_a_delivery_travels_whole(delivery: Delivery) -> None:
    """Every field, through msgpack and back."""
    assert delivery_of(blocking_client.msgpack.unpackb(pack(delivery_row(delivery)))) == delivery


@given(
    st.builds(
        Result,
        st.integers(0, 2**40),
        st.lists(
            st.builds(
                Outcome, st.integers(1, 5), st.builds(Reply, st.integers(200, 599), st.text(), st.text()), st.text(),
                st.lists(st.integers(0, 100)), st.none() | st.floats(0, 1e6), st.booleans(), st.text(),
            )
        ),
        st.none() | st.floats(0, 1e6), st.text(), st.text(), st.text(), st.integers(0, 2**44), st.integers(0, 2**40),
    )
)  # fmt: skip
def test_a_result_travels_whole(result: Result) -> None:
    """Every field, through msgpack and back."""
    assert result_of(blocking_client.msgpack.unpackb(pack(result_row(result)))) == result


async def test_only_this_user_may_connect(service: Any) -> None:
    """The socket is readable and writable by its owner alone."""
    assert stat.S_IMODE((service.folder / "socket").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xc1" * 10,
        b"\x07" * 3000,
        pack([99, 1]),
        pack([]),
        pack(7),
        pack({}),
        pack([[1], 2]),
        pack([int(Operation.PUT), 1, [{}, []], b"x"]),
        pack([int(Operation.PUT), 1, [{"sender": ""}, []], b"x"]),
        pack([int(Operation.PUT), 1, [[], []], b"x"]),
        pack([int(Operation.PUT), 1, [{"sender": ""}, [["a@b.test", 0, None]]], "text"]),
        pack([int(Operation.PUT), 1, [{"sender": ""}, [[5, 0, None]]], b"x"]),
        pack([int(Operation.CHUNK), 1, 1, "text"]),
        pack([int(Operation.CHUNK), 1, 1, [b"x", 5]]),
        pack([int(Operation.COMMIT), 1, 1, None, [], b""]),
        pack([int(Operation.SETTLE), 1, [1, "x"]]),
        pack([int(Operation.SETTLE), 1, []]),
        pack([int(Operation.LEASE)]),
        pack([int(Operation.LEASE), 1, "many"]),
        pack([int(Operation.LEASE), 1, None]),
        pack([int(Operation.LEASE), 1, 0]),
    ],
)
async def test_garbage_closes_only_its_own_connection(service: Any, garbage: bytes) -> None:
    """Whoever else is connected does not notice; nothing of it reaches the disk."""
    good = await service.connect()
    reader, writer = await asyncio.open_unix_connection(str(service.folder / "socket"))
    writer.write(garbage)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    await good.accept(mail(), BODY)
    assert (await good.ask("size"))["total"]["messages"] == 1
    assert service.queue.core.disk.lines.trouble is None


async def test_wrong_arguments_of_a_question_are_answered(service: Any) -> None:
    """A person may have typed them: the connection stays."""
    good = await service.connect()
    with pytest.raises(ValueError, match="there is no state"):
        await good.ask("list", state="nonsense")
    assert (await good.ask("size"))["total"]["messages"] == 0


@pytest.mark.parametrize(
    "said",
    [
        ("size", 7), ("size", None), ("size", []), ("size", {7: 1}), (["size"], {}), (None, {}), ({}, {}),
        (b"size", {}),
        ("size", {"junk": 1}), ("list", {"zone": 7}), ("list", {"limit": "many"}), ("list", {"state": ["queued"]}),
        ("show", {"id": 7}), ("show", {}), ("campaign", {"name": 7}), ("campaign", {"name": ["x"]}),
        ("campaign-put", {"name": None}), ("no such", {}),
    ],
)  # fmt: skip
async def test_a_malformed_question_gets_an_answer(service: Any, said: tuple[Any, Any]) -> None:
    """Whoever asks must not wait for ever; neither does he take the queue with him."""
    reader, writer = await asyncio.open_unix_connection(str(service.folder / "socket"))
    writer.write(pack([int(Operation.ASK), 1, *said]))
    number, status, sentence = blocking_client.msgpack.unpackb(await asyncio.wait_for(reader.read(65_536), 60))
    assert (number, status) == (1, WRONG) or said[0] in ("list", "show")
    assert sentence or status == OK
    writer.write(pack([int(Operation.ASK), 2, "size", {}]))
    assert blocking_client.msgpack.unpackb(await asyncio.wait_for(reader.read(65_536), 60))[:2] == [2, OK]
    writer.close()


async def test_the_largest_body_of_http_fits_through_the_socket(service: Any) -> None:
    """One of more than 32 MB, which http.body_bytes may allow, cut the connection."""
    good = await service.connect()
    with pytest.raises(ValueError, match="junk"):
        await good.ask("size", junk=b"x" * 64 * 1024 * 1024)
    assert (await good.ask("size"))["total"]["messages"] == 0


async def test_a_receiver_outlives_the_queue(service: Any) -> None:
    """451 for what was half handed over, and for the rest if it stays away; afterwards everything works again."""
    receiver = await service.connect()
    receiver._patience_s = 0.05
    first = (await receiver.accept(mail(), BODY)).id
    half, little = receiver.begin(), receiver.begin()
    for _ in range(CHUNKS_AT_ONCE):
        await half.write(bytes(65_536))
    await little.write(bytes(65_536))  # none of it has left yet
    await service.stop()
    await asyncio.sleep(0)
    for attempt in (receiver.accept(mail(), BODY), half.accept(mail(), b"x"), receiver.ask("size")):
        with pytest.raises(QueueRefusal) as caught:
            await attempt
        assert caught.value.reply.code == 451
    await service.start()
    while receiver._protocol is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    with pytest.raises(QueueRefusal):
        await half.accept(mail(), b"x")
    half.abort()
    second = (await receiver.accept(mail(), BODY)).id
    third = (await little.accept(mail(), b"x")).id
    assert third > second > first
    assert (await receiver.ask("size"))["total"]["messages"] == 3


async def test_what_comes_while_the_queue_starts_waits_for_it(service: Any) -> None:
    """A receiver is there before the queue, and after it: no client hears of a start."""
    await service.stop()
    receiver = RemoteQueue.lasting(service.folder, "receiver")
    service.remotes.append(receiver)
    large = receiver.begin()
    waiting = [asyncio.ensure_future(receiver.accept(mail(), BODY)), asyncio.ensure_future(receiver.ask("size"))]
    waiting.append(asyncio.ensure_future(_whole(large)))
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting)
    await service.start()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert (await receiver.ask("size"))["total"]["messages"] == 2


async def _whole(incoming: Any) -> str:
    for _ in range(2 * CHUNKS_AT_ONCE):
        await incoming.write(bytes(65_536))
    return str((await incoming.accept(mail(), b"x")).id)


async def test_mail_is_taken_before_recovery_is_over(service: Any) -> None:
    """What comes is stored at once; questions are answered, and mail leaves, when recovery is over."""
    opening = await service.stop_and_begin()
    receiver = await service.connect()
    first = await asyncio.wait_for(receiver.accept(mail(), BODY), 60)
    question, lease = asyncio.ensure_future(receiver.ask("size")), asyncio.ensure_future(receiver.lease(1))
    second = await asyncio.wait_for(receiver.accept(mail(), BODY), 60)
    assert not question.done()
    assert not lease.done()
    await opening.finish()
    assert (await asyncio.wait_for(question, 60))["total"]["messages"] == 2
    (delivery,) = await asyncio.wait_for(lease, 60)
    assert first.id < second.id
    assert delivery.id == first.id


async def test_a_sender_learns_that_the_queue_is_gone(service: Any) -> None:
    """What it waited for fails, and `gone` tells it to end."""
    sender = await service.connect("sender", reconnect=False)
    waiting = asyncio.ensure_future(sender.lease(1))
    await asyncio.sleep(0.01)
    await service.stop()
    with pytest.raises(QueueRefusal):
        await waiting
    await asyncio.wait_for(sender.gone, 60)
    await service.start()


async def test_two_senders_of_one_name_are_two(service: Any) -> None:
    """The end of one does not put the other's leases in doubt, in whatever order they said hello."""
    one, two = await asyncio.gather(service.connect("sender", False), service.connect("sender", False))
    for address in ("a@x.test", "b@x.test"):
        await one.accept(mail(address), BODY)
    (lost,), (kept,) = await one.lease(1), await two.lease(1)
    one._protocol._transport.abort()
    (again,) = await two.lease(1)
    assert again.id == lost.id
    await two.settle(done(kept))
    await two.settle(done(again))
    assert (await two.ask("size"))["total"]["messages"] == 0
    await service.queue.core.disk.lines.stable()
    assert len(await two.ask("in-doubt")) == 1


async def test_a_client_that_goes_between_chunks_and_commit(service: Any) -> None:
    """A commit that is on its way is done whole or not at all: never a message without its chunks."""
    for turns in range(12):
        receiver = await service.connect("receiver", reconnect=False)
        incoming = receiver.begin()
        await incoming.write(bytes(65_536))
        await incoming.write(bytes(65_536))
        commit = asyncio.ensure_future(incoming.accept(mail(size=131_073), b"x"))
        for _ in range(turns):
            await asyncio.sleep(0)
        receiver._protocol._transport.abort()
        await asyncio.wait([commit])
        assert commit.exception() is None or isinstance(commit.exception(), QueueRefusal)
    sender = await service.connect("sender", reconnect=False)
    await service.queue.core.disk.lines.stable()
    count = (await sender.ask("size"))["total"]["messages"]
    assert service.queue.core.arriving == set()
    keys = list(service.queue.core.disk.store.keys(b"message ", b"message!"))
    assert len(keys) == 5 * count
    for _ in range(count):
        (delivery,) = await sender.lease(1)
        assert [len(await sender.chunk(delivery.id, number)) for number in (1, 2, 3)] == [65_536, 65_536, 1]
        await sender.settle(done(delivery))


async def test_large_bodies_side_by_side(service: Any) -> None:
    """Several messages of several chunks on one connection do not mix, be they smaller in the store or not, and even
    where they look as if they had been."""

    def text(number: int) -> bytes:
        return (MAGIC + Random(number).randbytes(65_532), bytes([number]) * 65_536)[number % 2]

    receiver = await service.connect()

    async def send(number: int) -> str:
        incoming = receiver.begin()
        for _ in range(number):
            await incoming.write(text(number))
        return (await incoming.accept(mail(f"r{number}@x.test", number * 65_536), b"")).id

    ids = await asyncio.gather(*(send(number) for number in range(2, 12)))
    left = set(ids)
    while left:
        for delivery in await receiver.lease(10):
            left.remove(delivery.id)
            number = ids.index(delivery.id) + 2
            for part in range(1, number + 1):
                assert await receiver.chunk(delivery.id, part) == text(number)
            await receiver.settle(done(delivery))


async def test_ask_without_a_loop(service: Any) -> None:
    """The command line's client: an answer, a ValueError, or QueueGone with the remedy."""
    loop = asyncio.get_running_loop()
    answer = await loop.run_in_executor(None, lambda: blocking_client.ask(service.folder, "size"))
    assert answer["total"]["messages"] == 0
    with pytest.raises(ValueError, match="it knows"):
        await loop.run_in_executor(None, lambda: blocking_client.ask(service.folder, "nonsense"))
    with pytest.raises(blocking_client.QueueGone, match="start it with `zonemta run`"):
        blocking_client.ask(service.folder / "elsewhere", "size")


async def test_a_long_answer(service: Any) -> None:
    """Larger than one read of a socket."""
    receiver = await service.connect()
    envelope = Envelope("ann@src.test", [Recipient(f"r{n}@x.test") for n in range(3000)], len(BODY))
    await receiver.accept(envelope, BODY)
    loop = asyncio.get_running_loop()
    rows, after = [], ""
    while after is not None:  # a page has as much as can be found in a moment
        ask = partial(blocking_client.ask, service.folder, "list", limit=5000, after=after)
        answer = await loop.run_in_executor(None, ask)
        rows, after = rows + answer["rows"], answer["next"]
    assert len(rows) == 3000


@pytest.mark.parametrize(("question", "counts"), [("size", True), ("stable", False)])
async def test_packing_an_answer_is_the_questions_work(
    service: Any, monkeypatch: pytest.MonkeyPatch, question: str, counts: bool
) -> None:
    """Of those that operators ask: a long answer takes its time from the others of them, not from mail."""
    usual, accounted = ClientConnection._answer, list[float]()

    def answer(self: ClientConnection, *about: Any) -> None:
        end = thread_time() + 0.02
        while thread_time() < end:
            pass
        usual(self, *about)

    monkeypatch.setattr(ClientConnection, "_answer", answer)
    monkeypatch.setattr(pace._loop, "own", lambda worked, behind=False: accounted.append(worked))
    await asyncio.to_thread(ask, service.folder, question)
    assert (sum(accounted) > 0.02) == counts


async def test_an_order_is_carried_out_when_its_client_hangs_up(service: Any) -> None:
    """It was given: half done it would be neither there nor not."""
    operator = await service.connect("operator", reconnect=False)
    task = asyncio.ensure_future(operator.ask("suppress", rows=[["bob@x.test", "manual"]]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    operator._protocol._transport.close()  # type: ignore[union-attr]
    with pytest.raises(QueueRefusal):
        await task
    other = await service.connect("other")
    while await other.ask("suppression", address="bob@x.test") is None:  # noqa: ASYNC110 (nobody says when)
        await asyncio.sleep(0.01)


async def test_a_fault_of_the_queue_is_told_as_one(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to a command, and to one of an earlier version, which takes it for a refusal; the connection goes on."""

    async def fails(_: object) -> Any:
        raise KeyError("x")

    monkeypatch.setitem(answers.OF_QUEUE, "accounts", AnsweredBy(questions.accounts, fails))
    remote = await service.connect()
    with pytest.raises(QueueFault, match=r"^451 4\.3\.0 accounts: the queue failed to answer"):
        await remote.ask(questions.accounts)
    with pytest.raises(QueueFault, match="the queue failed to answer"):
        await asyncio.to_thread(ask, service.folder, questions.accounts)
    reader, writer = await asyncio.open_unix_connection(service.folder / "socket")
    writer.write(pack((Operation.ASK, 1, "accounts", {})))
    number, status, sentence = blocking_client.msgpack.unpackb(await reader.read(1000))
    assert (number, status not in (OK, REFUSED), isinstance(sentence, str)) == (1, True, True)
    writer.close()
    assert (await remote.ask(questions.size))["total"]["messages"] == 0


async def test_who_waits_for_a_queue_that_has_gone_elsewhere_is_told(tmp_path: Path) -> None:
    """Else it would wait for it as for one that starts, and the queue for who waits, wherever it is now."""
    queue = RemoteQueue.lasting(tmp_path, "agent")
    asking = [asyncio.ensure_future(queue.ask("size")) for _ in range(2)]
    await asyncio.wait(asking, timeout=0.05)
    assert not any(one.done() for one in asking)
    queue.end()
    for one in asking:
        with pytest.raises(QueueRefusal):
            await asyncio.wait_for(one, PATIENCE_S / 2)
    with pytest.raises(QueueRefusal):
        await asyncio.wait_for(queue.ask("size"), PATIENCE_S / 2)
