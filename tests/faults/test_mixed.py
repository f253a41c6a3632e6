"""Mail of every kind, orders and blows at once; scripts/trials/mixed strikes 200 times."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from ports import free_port, kept_port
from survival import mixed, mixture, shim
from survival.clock import MachineClock, TrueClock
from survival.letters import Letter
from survival.waits import LATE_S, Waits

from zonemta_py.sink.record import ReceivedMessage

ROOT = Path(__file__).resolve().parents[2]
needs_shim = pytest.mark.skipif(bool(shim.missing()), reason=shim.missing())


@needs_shim
async def test_kills_and_a_clock_that_is_set_break_no_promise(tmp_path: Path) -> None:
    """Nothing lost, wrong, early, late, untold or twice but those in doubt; orders and keys kept; `fsck` is content."""
    figures = await mixed.trial(tmp_path / "queue", letters=150, blows=4, clock_steps=3, seed=5)
    assert figures["broken"] == []
    assert sum(figures["blows"].values()) == 7
    assert figures["acknowledged"] > 100
    assert figures["held"] > 0


# -- the judge of time itself


def _letter(kind: str, domain: str = "") -> Letter:
    """The first of the mixture whose recipients are all of that kind."""
    letters = (mixture.letter(number) for number in range(10_000))
    return next(one for one in letters if all(to.startswith(kind) and domain in to for to in one.recipients))


def _judged(one: Letter, after_s: float, body: bytes | None = None, clock: MachineClock | None = None) -> list[str]:
    """What is reported if a message, or the notification in its place, comes so long after its submission."""
    waits = Waits(clock or TrueClock())
    waits.open(one)
    waits.acknowledge(one)
    waits.calm()
    sender, recipients = (one.sender, one.recipients) if body is None else ("", [one.sender])
    data = b"Received: from here by there;\r\n\tnow\r\n" + one.data if body is None else body
    waits.arrived(ReceivedMessage(sender, recipients, body=data, time=time.time() + after_s))
    return [line.partition(":")[0] for line in waits.untimely()]


def _failure(one: Letter) -> bytes:
    fields = "".join(f"Final-Recipient: rfc822; {to}\r\nAction: failed\r\n\r\n" for to in one.recipients)
    return f"Subject: returned\r\n\r\n{fields}".encode()


def test_what_is_held_comes_after_its_hold_and_not_for_ever_after() -> None:
    """A held message that comes at once is seen, one that comes in time is well, one that comes much later is seen."""
    held = _letter("wait-", "one.test")
    assert _judged(held, 0.0) == ["before its time"]
    assert _judged(held, mixture.HOLD_S + 0.1) == []
    assert _judged(held, mixture.HOLD_S + LATE_S + 1) == ["long after its time"]


def test_a_deadline_is_neither_early_nor_forgotten() -> None:
    """The same of the notification that says a deadline has passed."""
    never = _letter("never-", "one.test")
    for after_s, said in ((1.0, ["before its time"]), (21.0, []), (20 + LATE_S + 1, ["long after its time"])):
        assert _judged(never, after_s, _failure(never)) == said


def test_nobody_is_given_up_whom_nobody_refused() -> None:
    """A notification of failure for somebody who was only put off means that his time was cut short."""
    later = _letter("later-", "one.test")
    assert _judged(later, 1.0, _failure(later)) == ["given up though nobody refused it"]


def test_what_waits_while_blows_fall_waits_for_them() -> None:
    """However long; but the clock runs from the last of them on, and for what was handed in later from then on."""
    one, now = _letter("plain-", "one.test"), time.time()
    for before, said in ((True, 0), (False, 1)):
        waits = Waits(TrueClock())
        waits.open(one)
        waits.acknowledge(one)
        if not before:
            waits.calm()
        waits.arrived(ReceivedMessage(one.sender, one.recipients, body=one.data, time=now + 2 * LATE_S))
        assert len(waits.untimely()) == said


def test_mail_out_of_a_stopped_zone_is_seen() -> None:
    """What was handed in and came while its zone was stopped, and nothing else."""
    one, waits = _letter("plain-", "stopped.test"), Waits(TrueClock())
    waits.open(one)
    waits.arrived(ReceivedMessage(one.sender, one.recipients, body=one.data, time=time.time()))
    assert waits.sent_while(lambda since, at: since <= at, "@stopped.test") == [to.lower() for to in one.recipients]
    assert waits.sent_while(lambda since, at: False, "@stopped.test") == []


@needs_shim
def test_the_clock_of_other_processes_can_be_set(tmp_path: Path) -> None:
    """As time.time, datetime and the boot's id tell it; the steady clock goes on, and so does our own time."""
    clock = MachineClock(tmp_path)
    code = (
        "import time, datetime as d\n"
        "print(time.time(), d.datetime.now(d.UTC).timestamp(), time.monotonic(),"
        " open('/proc/sys/kernel/random/boot_id').read().strip())"
    )

    def told() -> tuple[list[float], str]:
        environment = clock.environment
        said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        *times, boot = said.stdout.split()
        return [float(row) for row in times], boot

    before, boot = told()
    by_s = clock.step(Random(1))
    clock.start_machine()
    after, other_boot = told()
    assert abs(by_s) >= 60
    for index in (0, 1):
        assert after[index] - before[index] == pytest.approx(by_s, abs=30)
    assert 0 < after[2] - before[2] < 30
    assert other_boot != boot
    assert abs(datetime.now(UTC).timestamp() - before[0]) < 60


def test_the_port_of_an_mta_that_is_down_stays_its_own() -> None:
    """Else another trial on this machine takes it, and each gets the other's mail."""
    with kept_port() as kept, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(kept.getsockname())
        assert free_port() != kept.getsockname()[1]
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(kept.getsockname())
            server.listen()
            socket.create_connection(kept.getsockname(), timeout=60).close()
