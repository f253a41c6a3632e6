"""Letters of every kind at once, made from their number alone as `letters` are, and the rules of the sink they go to.

The first word of a recipient's local part says what becomes of it: plain and slow ones are taken, later and drop ones
after some tries, gone ones are refused, never ones are put off until their deadline has passed, wait ones are held for
a while, shy ones are on the suppression list before their letter is handed in. The domain says which zone it takes.
"""

from __future__ import annotations

import base64
import random

from survival.letters import Letter, _body

KINDS = {"plain": 60, "later": 10, "drop": 8, "slow": 6, "gone": 8, "shy": 4}
NEVER = 0.04
"""Letters whose recipients are all put off until the deadline, which holds for a whole letter."""
WAIT = 0.04
"""Letters that are held as a whole."""
DOMAINS = {"one.test": 40, "two.test": 20, "bulk.test": 20, "careful.test": 10, "stopped.test": 10}
REFUSED = ("gone-", "never-")
SILENT = ("shy-",)
DEADLINE_S, HOLD_S = 20, 8
HUGE_BYTES = 3_000_000

RULES = (
    "rcpt:/^later-/ 450 4.2.1 not now, 50%",
    "rcpt:/^never-/ 450 4.2.1 not ever",
    "rcpt:/^drop-/ close, 30%",
    "rcpt:/^gone-/ 550 5.1.1 nobody here",
    "rcpt:/^slow-/ 250 2.1.5 taken, after 0.3s",
)

CONFIG = """
[http]
enabled = true
port = {http}
[[zones]]
name = "careful"
recipient_domains = ["careful.test"]
host = "127.0.0.1"
port = {sink}
in_doubt = "hold"
[[zones]]
name = "stopped"
recipient_domains = ["stopped.test"]
host = "127.0.0.1"
port = {sink}
pool = "young"
[[pools]]
name = "young"
[[pools.sources]]
address = "127.0.0.1"
warmup = "long"
[[warmups]]
name = "long"
caps = [1000000]
[[throttles]]
name = "bulk"
per = ["zone"]
only = {{ zone = "bulk" }}
messages = "400/s"
"""


def letter(number: int, attempt: int = 0) -> Letter:
    """One recipient mostly, up to 60 in every eighth; 1 byte to 3 MB, a part of which does not compress."""
    dice = random.Random(f"mixture {number}")
    name = f"{number}.{attempt}"
    count = dice.choice((2, 5, 20, 60)) if dice.random() < 0.125 else 1
    fate = dice.random()
    whole = "never" if fate < NEVER else "wait" if fate < NEVER + WAIT else ""
    kinds = [whole or _one(dice, KINDS) for _ in range(count)]
    recipients = [f"{kind}-{name}.{index}@{_one(dice, DOMAINS)}" for index, kind in enumerate(kinds)]
    size = dice.choices((1, dice.randint(200, 6_000), dice.randint(65_536, 400_000), HUGE_BYTES), (10, 84, 5, 1))[0]
    head = (
        f"Message-ID: <{name}@letters.test>\r\nDate: Sat, 21 Nov 2026 04:00:00 +0000\r\nFrom: writer@letters.test\r\n"
    )
    if whole == "never":
        head += "Subject: not for long\r\n"
    return Letter(name, f"writer-{name}@letters.test", recipients, head.encode() + b"\r\n" + _text(dice, name, size))


def parameters(message: Letter) -> str:
    """What MAIL asks of the schedule (RFC 2852, RFC 4865), with a space in front."""
    fate = message.recipients[0].partition("-")[0]
    return {"never": f" BY={DEADLINE_S};R", "wait": f" HOLDFOR={HOLD_S}"}.get(fate, "")


def again(name: str) -> Letter:
    number, _, attempt = name.partition(".")
    return letter(int(number), int(attempt))


def _one(dice: random.Random, weights: dict[str, int]) -> str:
    return dice.choices(list(weights), list(weights.values()))[0]


def _text(dice: random.Random, name: str, size: int) -> bytes:
    if size == 1:
        return b"x\r\n"
    if size < 10_000 or dice.random() < 0.3:
        return _body(dice, name, min(size, 400_000))
    return base64.encodebytes(dice.randbytes(size * 3 // 4)).replace(b"\n", b"\r\n")
