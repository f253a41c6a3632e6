"""Has rspamd judge each message while it arrives: spam is refused, marked by header fields and subject, or sent through
a zone of its own.

    [plugins]
    enabled = ["rspamd"]
    timeout_s = 10

    [plugins.options.rspamd]
    url = "http://127.0.0.1:11333"
    timeout_s = 8
    zone = "suspect"
    tenant_zones = { shop = "shop-suspect" }
    failing = "closed"

rspamd's action decides: "reject" refuses with 554 5.7.1 and rspamd's text (`reject = false`: it is marked instead),
"soft reject" defers, "discard" drops, "add header", "rewrite subject" and "quarantine" mark and choose the zone. The
score of all mail goes into a field when it is sent, before it is signed. rspamd hears the client's address, HELO and
user, sender and recipients (the first 100), and the session's id as Queue-Id. A message is read as it arrives; 256 KB
at most are in memory, what is longer streams. Mail of campaigns is made only when it is sent, and not judged.

When rspamd is down, slower than `timeout_s` after the last byte, or answers nonsense, mail is deferred with 451
(`failing = "closed"`), or goes on without a judgement, which is counted and logged (`failing = "open"`). timeout_s must
be below plugins.timeout_s.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from zonemta_py.plugin import Delivery, Drop, Envelope, Headers, PluginApi, Reject, Session, Stream

HELD_BYTES_MAX = 262_144
"""Of a message in memory; longer ones are sent on as they arrive."""
ANSWER_BYTES_MAX = 1_048_576
RECIPIENTS_MAX = 100
SYMBOLS_MAX = 40
NOTE = "rspamd"
"""Where `envelope.notes` has the judgement."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_SYMBOL = re.compile(r"[!-~]{1,60}")
_SPAM = frozenset(("add header", "rewrite subject", "quarantine", "reject"))


class Options(BaseModel):
    """[plugins.options.rspamd]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: str = "http://127.0.0.1:11333"
    """Of a normal worker, or a proxy."""
    password: SecretStr = SecretStr("")
    """rspamd's, if it asks for one."""
    timeout_s: float = Field(4, gt=0)
    """For whatever it is waited for between two pieces of a message, and after the last; below plugins.timeout_s."""
    failing: Literal["open", "closed"] = "closed"
    """open: mail goes on without a judgement; closed: it is deferred."""
    bytes_max: int = Field(20_000_000, gt=0)
    """Longer messages are not judged."""
    connections: int = Field(50, ge=1, le=1000)
    """At the same time, of each receiver."""
    reject: bool = True
    """Refuse what rspamd rejects; false: only mark it."""
    zone: str = ""
    """Sending zone of what is marked; empty: the usual one."""
    tenant_zones: dict[str, str] = {}
    """The same by tenant."""
    score_field: str = "X-Spam-Score"
    """Field with the score of all mail; empty: none."""
    flag_field: str = "X-Spam"
    """Field with "Yes" in what is marked; empty: none."""
    symbols_field: str = ""
    """Field with the names of rspamd's symbols; empty: none."""
    subject: str = "[SPAM]"
    """In front of the subject where rspamd says "rewrite subject"; empty: it stays."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        url = httpx.URL(value)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("is not a URL such as http://127.0.0.1:11333")
        return value.rstrip("/")


class RspamdFailed(Exception):
    """It cannot be asked, or does not answer as it should. One sentence."""


class _TooLarge(Exception):
    """Than what is judged."""


_api: PluginApi
_options: Options
_client: httpx.AsyncClient | None = None


def setup(api: PluginApi, options: Options) -> None:
    """Checks what can be checked without rspamd."""
    global _api, _options
    _api, _options = api, options
    if options.timeout_s >= api.timeout_s:
        raise ValueError(
            f"timeout_s = {options.timeout_s:g} must be below plugins.timeout_s, which is {api.timeout_s:g}"
        )
    for zone in (options.zone, *options.tenant_zones.values()):
        if zone and api.zones and zone not in api.zones:
            raise ValueError(f"there is no zone {zone!r}; there are {', '.join(sorted(api.zones))}")


async def smtp_data(envelope: Envelope, session: Session) -> None:
    """Only here the session's id is known."""
    envelope.scratch[NOTE] = session.id


async def api_mail(envelope: Envelope, session: Session) -> None:
    """The same by HTTP; a batch of a campaign is not judged."""
    if not envelope.merged:
        envelope.scratch[NOTE] = session.id


async def message_analyze(envelope: Envelope, stream: Stream) -> None:
    """Asks, and does what the answer says."""
    session = str(envelope.scratch.pop(NOTE, ""))
    try:
        answer = await _asked(envelope, session, stream)
    except _TooLarge:
        _api.count("too_large")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError, RspamdFailed) as error:
        late = f"it does not answer within {_options.timeout_s:g} s"
        said = late if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        sentence = f"{_options.url}: {said}; start rspamd, or correct url and timeout_s"
        if _options.failing == "closed":
            raise RspamdFailed(f'{sentence}, or let mail pass meanwhile by failing = "open"') from error
        _api.count("passed_unjudged")
        _api.log.warning("%s; a message passes without its judgement", sentence)
    else:
        _judge(envelope, answer)


async def sender_headers(delivery: Delivery, headers: Headers) -> None:
    """What was found out at reception; what others have written there goes."""
    options, found = _options, delivery.notes.get(NOTE)
    for name in (options.score_field, options.flag_field, options.symbols_field):
        if name:
            headers.remove(name)
    if not isinstance(found, dict):
        return
    if options.score_field:
        headers.add(options.score_field, f"{found['score']:.2f} / {found['required']:.2f}")
    if options.symbols_field and found["symbols"]:
        headers.add(options.symbols_field, ",\r\n ".join(found["symbols"]))
    if options.flag_field and found["action"] in _SPAM:
        headers.add(options.flag_field, "Yes")
    if options.subject and found["action"] == "rewrite subject":
        headers.replace("Subject", f"{options.subject} {headers.get('Subject')}".rstrip())


async def _asked(envelope: Envelope, session: str, stream: Stream) -> dict[str, Any]:
    """rspamd's answer, checked. Raises _TooLarge, RspamdFailed, and what httpx raises."""
    async with asyncio.timeout(None) as timer:

        def wait(for_rspamd: bool) -> None:
            """From now on, and not for the client."""
            end = asyncio.get_running_loop().time() + _options.timeout_s
            timer.reschedule(end if for_rspamd else None)

        content = await _content(stream, wait)
        url, asks = f"{_options.url}/checkv2", _metadata(envelope, session)
        async with _connected().stream("POST", url, headers=asks, content=content) as response:
            answer = bytearray()
            async for block in response.aiter_bytes():
                answer += block
                if len(answer) > ANSWER_BYTES_MAX:
                    raise RspamdFailed(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
    if response.status_code != httpx.codes.OK:
        raise RspamdFailed(f"it answers {response.status_code} {bytes(answer[:100])!r}")
    try:
        found = json.loads(answer)
        score, required = float(found["score"]), float(found["required_score"])
        if not (math.isfinite(score) and math.isfinite(required)):
            raise ValueError(score, required)
        return {
            "action": str(found["action"])[:40],
            "score": score,
            "required": required,
            "symbols": [name for name in found.get("symbols", {}) if _SYMBOL.fullmatch(name)][:SYMBOLS_MAX],
            "text": str(found.get("messages", {}).get("smtp_message", "")),
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RspamdFailed(f"it answers what is not a judgement: {bytes(answer[:100])!r}") from None


async def _content(stream: Stream, wait: Callable[[bool], None]) -> bytes | AsyncIterator[bytes]:
    """The message, if it is short; else its blocks as they come. wait: for rspamd, or not."""
    held = bytearray()
    async for block in stream:
        held += block
        if len(held) > HELD_BYTES_MAX:
            wait(True)
            return _blocks(bytes(held), stream, wait)
    if len(held) > _options.bytes_max:
        raise _TooLarge
    wait(True)
    return bytes(held)


async def _blocks(first: bytes, stream: Stream, wait: Callable[[bool], None]) -> AsyncIterator[bytes]:
    size = len(first)
    if size > _options.bytes_max:
        raise _TooLarge
    yield first
    while True:
        wait(False)
        block = await anext(stream, b"")
        wait(True)
        if not block:
            return
        size += len(block)
        if size > _options.bytes_max:
            raise _TooLarge
        yield block


def _metadata(envelope: Envelope, session: str) -> list[tuple[bytes, bytes]]:
    said = [
        ("IP", envelope.origin), ("Helo", envelope.origin_name), ("From", envelope.sender or "<>"),
        ("User", envelope.user or ""), ("Queue-Id", session), ("Password", _options.password.get_secret_value()),
        *(("Rcpt", one.address) for one in envelope.recipients[:RECIPIENTS_MAX]),
    ]  # fmt: skip
    return [
        (name.encode(), _CONTROL.sub(" ", value).strip().encode("utf-8", "replace")) for name, value in said if value
    ]


def _connected() -> httpx.AsyncClient:
    """One client for each process, made when it is first needed."""
    global _client
    if _client is None:
        limits = httpx.Limits(max_connections=_options.connections, keepalive_expiry=30)
        _client = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False, follow_redirects=False)
    return _client


def _judge(envelope: Envelope, answer: dict[str, Any]) -> None:
    """Raises verdicts; else leaves a note, and chooses the zone."""
    action = answer["action"]
    _api.count("judged", label=action)
    if action == "reject" and _options.reject:
        raise Reject(554, f"5.7.1 {answer['text'] or 'This message looks like spam'}")
    if action == "soft reject":
        raise Reject(451, f"4.7.1 {answer['text'] or 'Try again later'}")
    if action == "discard":
        raise Drop("rspamd says discard")
    if action in _SPAM:
        zone = _options.tenant_zones.get(envelope.tenant or "") or _options.zone
        envelope.sending_zone = zone or envelope.sending_zone
    envelope.notes[NOTE] = {name: answer[name] for name in ("action", "score", "required", "symbols")}
