"""What came back is recorded whatever it is made of: one that the queue could not take would come again for days."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from tests.reception.back import PATH, complaint, leaving_path, report, verp_path
from zonemta_py.config import Config
from zonemta_py.mail.addresses.ours import Ours
from zonemta_py.reception.feedback.proof import SentBy
from zonemta_py.reception.feedback.returns import Returns

PIECES = (
    b"\xff\xfe", b"\x00", b"=?utf-8?b?/////w==?=", b"\xed\xa0\x80", b"\r\n", b"--X", b":", b"<>", b"\xc3\xbc",
    b"=?x?q?=ED=A0=80?=", b"Content-Transfer-Encoding: base64\r\n", b"charset=utf-7", b"\xf0\x9f\x98\x80",
)  # fmt: skip
LETTERS = (report(), complaint(f"Return-Path: <{verp_path()}>\r\n"), complaint(), b"From: x@y.test\r\n\r\nhi\r\n")


async def test_mutated_reports_are_recorded(house: Callable[..., Any], front: Callable[..., Any]) -> None:
    """To each kind of address, here and over the socket: bytes that are no text, cut words, other structure."""
    home, dice = await house(return_path={"verp": "b.test", "secret": PATH["secret"]}), random.Random(22)
    config = Config.model_validate({"return_path": PATH, "listeners": [{"feedback": True}]})
    returns = Returns(config, await front(home), None, lambda: time.time_ns() // 1_000_000, time.monotonic)
    ours = [returns.find(one) for one in (verp_path(), leaving_path(), "fbl@ours.test", "bounce@ours.test")]
    for _ in range(150):
        letter = bytearray(dice.choice(LETTERS))
        for _ in range(dice.randrange(1, 12)):
            at = dice.randrange(len(letter))
            letter[at : at + dice.randrange(2)] = dice.choice((*PIECES, dice.randbytes(1)))
        address = dice.choice([*ours, Ours("postmaster", "postmaster")])
        assert address is not None
        await returns.take([address], bytes(letter), True, SentBy("192.0.2.1", "x", dice.choice(("", "a@b.test"))))
    await home.sound()
