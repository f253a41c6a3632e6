"""Webhooks that prove themselves: where [[http.webhooks]] names a provider, its signature is needed, and no key.

What is posted is read within 1 MB, then checked (`mail.feedback.providers.signatures`). The certificate of Amazon SNS
is fetched once for each address, of configured topics only, at most one at a time, or not at all where files are
configured.

Failures: RequestProblem, 403 for what is not proven, 503 while a certificate cannot be had.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.services.webhooks import Webhook
from zonemta_py.logs.causes import cause
from zonemta_py.reception.scope import KeyScope
from zonemta_py.web.documents.problem import RequestProblem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from zonemta_py.mail.feedback.providers.signatures import SnsKey

log = logging.getLogger(__name__)

Fetch = Callable[[str, str], Awaitable[bytes]]
"""(host, path) → what is there, 64 KB at most, by https. Raises FetchFailed."""
BODY_BYTES_MAX = 1_000_000
"""More than any of them posts at once."""
PATH = "/v1/feedback/"
FAILURE_S = 60
"""So long a certificate that could not be had is not tried again."""
CERTIFICATES_MAX = 32
TOKENS_MAX = 20_000
SIGNATURE, TIMESTAMP = "x-twilio-email-event-webhook-signature", "x-twilio-email-event-webhook-timestamp"


class FetchFailed(Exception):
    """One sentence."""


class Proven(NamedTuple):
    """hook: whose signature it has. token: what must not come again with another event, "" if all was signed. topic: of
    Amazon SNS."""

    hook: Webhook
    token: str = ""
    topic: str = ""

    @property
    def scope(self) -> KeyScope:
        return KeyScope(frozenset(self.hook.tenants))


class SignedWebhooks:
    """Of one process. now_s: UNIX time."""

    def __init__(self, config: Config, now_s: Callable[[], float], fetch: Fetch | None) -> None:
        """Raises ConfigError: a certificate's file cannot be read."""
        self._hooks: dict[str, list[Webhook]] = {}
        self._keys: dict[str, list[EllipticCurvePublicKey]] = {}
        self._files: dict[str, list[SnsKey]] = {}
        self._now_s, self._tokens = now_s, OrderedDict[str, bytes]()
        self._certificates = _Certificates(fetch)
        for hook in config.http.webhooks:
            self._hooks.setdefault(hook.provider, []).append(hook)
            if hook.public_keys:
                from zonemta_py.mail.feedback.providers import signatures  # only where one is configured

                self._keys[hook.name] = [signatures.sendgrid_key(key) for key in hook.public_keys]
            if hook.certificates:
                self._files[hook.name] = read_certificates(hook)

    def signed(self, path: str) -> bool:
        """Whether what is posted there needs a signature, and no key."""
        return path.startswith(PATH) and path[len(PATH) :] in self._hooks

    def check_sendgrid(self, headers: Mapping[str, str], body: bytes) -> Proven:
        """body: as it came. Raises RequestProblem."""
        from zonemta_py.mail.feedback.providers import signatures

        said = headers.get(SIGNATURE, ""), headers.get(TIMESTAMP, "")
        return self._first(
            "sendgrid",
            lambda hook: signatures.sendgrid(body, *said, self._keys[hook.name], self._now_s(), hook.age_s),
        )

    def check_mailgun(self, content: Any) -> Proven:
        """A token may come again, since an answer was lost, but only with the same event. Raises RequestProblem."""
        from zonemta_py.mail.feedback.providers import signatures

        tokens = list[str]()
        proven = self._first(
            "mailgun",
            lambda hook: tokens.append(signatures.mailgun(content, hook.secrets, self._now_s(), hook.age_s)),
        )
        token, event = tokens[-1], content.get("event-data")
        digest = hashlib.sha256(json.dumps(event, sort_keys=True).encode()).digest()
        if self._tokens.setdefault(token, digest) != digest:
            raise _refused(proven.hook, "this signature has come before, with another event; post each event once")
        while len(self._tokens) > TOKENS_MAX:
            self._tokens.popitem(last=False)
        return proven._replace(token=token)

    async def check_ses(self, content: Any) -> Proven:
        """Raises RequestProblem."""
        from zonemta_py.mail.feedback.providers import signatures

        topics = {topic: hook for hook in self._hooks["ses"] for topic in hook.topics}
        hook = self._hooks["ses"][0]
        try:
            topic = signatures.sns_topic(content, topics)
            hook = topics[topic]
            keys = self._files.get(hook.name)
            if keys is None:
                path = signatures.certificate_path(content, topic)
                keys = await self._certificates.of(signatures.topic_host(topic), path)
            signatures.sns(content, keys, self._now_s(), hook.age_s)
        except signatures.SignatureRefused as error:
            raise _refused(hook, str(error)) from None
        return Proven(hook, topic=topic)

    async def confirm(self, content: Any, proven: Proven) -> None:
        """Amazon SNS asks whether it may post: it may, since the topic is configured and the message signed. Raises
        RequestProblem."""
        from zonemta_py.mail.feedback.providers import signatures

        host, hook = signatures.topic_host(proven.topic), proven.hook
        try:
            path = signatures.subscribe_path(content, proven.topic)
        except signatures.SignatureRefused as error:
            raise _refused(hook, str(error)) from None
        if hook.certificates:
            log.warning(
                "Amazon SNS asks whether %s may post to %sses: open https://%s%s once to confirm it",
                proven.topic, PATH, host, path,
            )  # fmt: skip
            return
        await self._certificates.get(host, path)
        log.info("Amazon SNS may post to %sses for %s: confirmed", PATH, proven.topic)

    def _first(self, provider: str, check: Callable[[Webhook], None]) -> Proven:
        """The first whose check does not refuse it. Raises RequestProblem."""
        refused = list[RequestProblem]()
        for hook in self._hooks[provider]:
            try:
                check(hook)
            except ValueError as error:
                refused.append(_refused(hook, str(error)))
            else:
                return Proven(hook)
        raise refused[0]


class _Certificates:
    """Of Amazon SNS, by their addresses."""

    def __init__(self, fetch: Fetch | None) -> None:
        self._fetch, self._one = fetch, asyncio.Lock()
        self._known = OrderedDict[str, list["SnsKey"]]()
        self._failed = OrderedDict[str, float]()

    async def of(self, host: str, path: str) -> list[SnsKey]:
        """Raises RequestProblem."""
        from zonemta_py.mail.feedback.providers import signatures

        url, now = f"{host}{path}", asyncio.get_running_loop().time()
        async with self._one:
            if url in self._known:
                return self._known[url]
            if now - self._failed.get(url, -FAILURE_S) < FAILURE_S:
                raise _away(host, "could not be had a moment ago")
            try:
                self._known[url] = signatures.sns_keys(await self.get(host, path))
            except (RequestProblem, ValueError) as error:
                self._failed[url] = now
                _bound(self._failed)
                raise error if isinstance(error, RequestProblem) else _away(host, str(error)) from None
            _bound(self._known)
            return self._known[url]

    async def get(self, host: str, path: str) -> bytes:
        """Raises RequestProblem."""
        if self._fetch is None:
            raise _away(host, "nothing is fetched here")
        try:
            return await self._fetch(host, path)
        except FetchFailed as error:
            raise _away(host, str(error)) from None


def read_certificates(hook: Webhook) -> list[SnsKey]:
    """Of its files. Raises ConfigError."""
    from zonemta_py.mail.feedback.providers import signatures

    found = list["SnsKey"]()
    for file in hook.certificates:
        try:
            found += signatures.sns_keys(file.read_bytes())
        except OSError as error:
            raise ConfigError(f"http.webhooks.{hook.name}: certificates: {cause(error)}; correct it") from None
        except ValueError as error:
            raise ConfigError(f"http.webhooks.{hook.name}: certificates: {file}: {error}") from None
    return found


def _bound(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > CERTIFICATES_MAX:
        kept.popitem(last=False)


def _refused(hook: Webhook, sentence: str) -> RequestProblem:
    return RequestProblem("no-signature", f"the webhook {hook.name!r}: {sentence}")


def _away(host: str, reason: str) -> RequestProblem:
    log.warning("what %s has about a webhook cannot be had: %s", host, reason)
    return RequestProblem("unavailable", f"{host}: {reason[:200]}; send it again later", retry_s=FAILURE_S)
