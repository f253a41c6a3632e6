"""DKIM signatures of deliveries: made once per message, however many destinations and recipients it has.

Signatures are cached by message, header section and keys: only a changed header section is signed again. The body's
hash comes with the delivery; if it does not (notifications, mail stored before keys were configured), the body is read
once and its hash cached. A merged message has no name for that: it is made anew each time. Both caches are bounded, and
signatures are renewed after AGAIN_S, so that t= and x= stay meaningful on later attempts.

Failures: an unusable key raises Unsigned, with the reply that defers; nothing leaves without a signature it should
have.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from zonemta_py.config import Config
from zonemta_py.mail.addresses.authors import author_domain
from zonemta_py.mail.dkim.canonical import Form
from zonemta_py.mail.reply import Reply

if TYPE_CHECKING:
    from zonemta_py.mail.dkim.signature import Key

UNSIGNED = "none"
"""In the place of a key's name: no signature."""
KEPT_MAX = 2_000
AGAIN_S = 3_600.0
_DAY_S = 86_400

K = TypeVar("K")
V = TypeVar("V")
Ask = Callable[[], Coroutine[None, None, bytes]]


class Unsigned(Exception):
    """The message cannot be signed now. `reply` defers it."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.reply = Reply(451, "4.7.0", f"a DKIM key cannot be used: {detail}")


class _Signed(NamedTuple):
    """The signature fields, the keys that made them, when, and for which message."""

    domain: str
    keys: tuple[Key, ...]
    made: float
    fields: bytes


class Signer:
    """Signs for one process."""

    def __init__(self, config: Config) -> None:
        from zonemta_py.delivery.message.dkim_keys import DkimKeys  # here: cryptography, where there are keys alone
        from zonemta_py.mail.dkim.signature import Fields

        signing = config.signing
        self.form: Form = signing.body_canonicalization
        self._keys = DkimKeys(config)
        self._fields = Fields(signing.canonicalization, signing.headers, signing.oversign)
        self._life_s = int(signing.expire_days * _DAY_S)
        self._signed: OrderedDict[tuple[str, bytes], _Signed] = OrderedDict()
        self._hashes: OrderedDict[str, bytes] = OrderedDict()
        self._hashing: dict[str, asyncio.Task[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    async def sign(
        self, message_id: str, section: bytes, body_hash: bytes | None, ask: Ask,
        now: float, unix_s: int, own: bool = True, key: str = "", tenant: str = "",
    ) -> bytes:  # fmt: skip
        """The DKIM-Signature fields, b"" if no key signs for that author. Raises Unsigned, and whatever `ask` raises.

        message_id: "" for bytes that are made for this attempt alone. section: the raw header section. body_hash: if
        known; otherwise `ask` computes it, once per message. now: of a steady clock. unix_s: for t=. own: the key of
        the author's domain may sign; otherwise only the third party's. key: name of the one that signs, whoever the
        author is. tenant: whose mail it is.
        """
        place = (message_id, hashlib.blake2b(section, digest_size=16).digest())
        kept = self._signed.get(place) if message_id else None
        if kept is not None and now < kept.made + AGAIN_S and kept.keys == self._of(kept.domain, now, own, key, tenant):
            return kept.fields
        selection = self._fields.of(section)
        domain = author_domain(selection.author)
        keys = self._of(domain, now, own, key, tenant)
        if not keys:
            return b""
        body_hash = body_hash or await (self._hash(message_id, ask) if message_id else ask())
        expires = unix_s + self._life_s if self._life_s else 0
        fields = b"".join([key.sign(selection, self.form, body_hash, unix_s, expires) for key in keys])
        if message_id:
            _keep(self._signed, place, _Signed(domain, keys, now, fields))
        return fields

    def _of(self, domain: str, now: float, own: bool, key: str, tenant: str) -> tuple[Key, ...]:
        from zonemta_py.mail.dkim.signature import KeyUnusable

        try:
            return (self._keys.named(key, now),) if key else self._keys.of(domain, now, own, tenant)
        except KeyUnusable as error:
            raise Unsigned(str(error)) from None

    async def _hash(self, message_id: str, ask: Ask) -> bytes:
        known = self._hashes.get(message_id)
        if known is not None:
            return known
        task = self._hashing.get(message_id)
        if task is None:
            task = asyncio.ensure_future(ask())
            self._hashing[message_id] = task
            task.add_done_callback(lambda _: self._hashing.pop(message_id, None))
        hashed = await asyncio.shield(task)
        _keep(self._hashes, message_id, hashed)
        return hashed


def _keep(memory: OrderedDict[K, V], key: K, value: V) -> None:
    """Evicts the oldest entry when full."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > KEPT_MAX:
        memory.popitem(last=False)
