"""HTTPS requests to one host at addresses that were looked up separately: the only module of delivery that imports
httpx.

The name is controlled by a third party: addresses that mail may not go to are not used here either (`reachability`).
Certificates are validated for the host's name, redirects are not followed, proxies from the environment are ignored,
and the size of the answer is bounded. The library is loaded with the first request.

Failures: HttpsFailed, which says whether the certificate was the cause.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zonemta_py.config import Config
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.logs.causes import cause

if TYPE_CHECKING:
    import httpx

Barred = Callable[[str], str]
"""Address → why it must not be connected to, in words, or ""."""
ALL_S = 30.0
"""Time limit for a whole request."""
STEP_S = 10.0
"""Time limit for one step of it."""


class HttpsFailed(Exception):
    """One sentence. untrusted: the certificate is not valid for this host."""

    def __init__(self, sentence: str, untrusted: bool = False) -> None:
        super().__init__(sentence)
        self.untrusted = untrusted


async def get(
    host: str, port: int, path: str, addresses: Sequence[str], context: ssl.SSLContext, *, kind: str, bytes_max: int,
    barred: Barred = refusal,
) -> bytes:  # fmt: skip
    """The body of a 200 with the expected media type. Raises HttpsFailed."""
    return await _first(host, port, _permitted(host, addresses, barred), context, "GET", path, b"", {}, kind, bytes_max)


async def post(
    host: str, port: int, path: str, addresses: Sequence[str], context: ssl.SSLContext, *, kind: str, data: bytes,
    barred: Barred = refusal,
) -> None:  # fmt: skip
    """Any 2xx is a success. Raises HttpsFailed."""
    sent = {"Content-Type": kind}
    await _first(host, port, _permitted(host, addresses, barred), context, "POST", path, data, sent, "", 64 * 1024)


def _permitted(host: str, addresses: Sequence[str], barred: Barred) -> list[str]:
    """Raises HttpsFailed if no address is allowed."""
    found = [address for address in addresses if not barred(address)]
    if addresses and not found:
        raise HttpsFailed(f"{host} is at {addresses[0]}, {barred(addresses[0])}")
    return found


def barred_by(config: Config) -> Barred:
    """As for mail: nothing is barred if a zone has allow_private."""
    return (lambda _: "") if any(zone.allow_private for zone in config.zones) else refusal


async def _first(
    host: str, port: int, addresses: Sequence[str], context: ssl.SSLContext, method: str, path: str, data: bytes,
    headers: dict[str, str], kind: str, bytes_max: int,
) -> bytes:  # fmt: skip
    """The answer from the first address that can be reached."""
    import httpx

    last = HttpsFailed(f"{host} has no address")
    try:
        async with (
            asyncio.timeout(ALL_S),
            httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=STEP_S) as client,
        ):
            for address in addresses:
                named = host if port == 443 else f"{host}:{port}"
                where = f"[{address}]" if ":" in address else address
                request = client.build_request(
                    method, f"https://{where}:{port}{path}", content=data or None,
                    headers={"Host": named, "Accept-Encoding": "identity"} | headers,
                    extensions={"sni_hostname": host},
                )  # fmt: skip
                try:
                    return await _read(client, request, kind, bytes_max)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    last = _failed(host, error)
                    if last.untrusted:
                        break
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    raise _failed(host, error) from error
    except TimeoutError:
        raise HttpsFailed(f"{host} took too long") from None
    raise last


async def _read(client: httpx.AsyncClient, request: httpx.Request, kind: str, bytes_max: int) -> bytes:
    response = await client.send(request, stream=True)
    try:
        if not 200 <= response.status_code < 300 or (kind and response.status_code != 200):
            raise HttpsFailed(f"{request.headers['host']} answered {response.status_code}")
        if kind and response.headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
            raise HttpsFailed(f"{request.headers['host']} sent something else than {kind}")
        body = b""
        async for part in response.aiter_raw():  # undecoded: decompressed, it may be a thousand times larger
            body += part
            if len(body) > bytes_max:
                raise HttpsFailed(f"{request.headers['host']} sent more than {bytes_max} bytes")
        return body
    finally:
        await response.aclose()


def _failed(host: str, error: BaseException) -> HttpsFailed:
    beneath: BaseException | None = error
    while beneath is not None and not isinstance(beneath, ssl.SSLCertVerificationError):
        beneath = beneath.__cause__ or beneath.__context__
    if isinstance(beneath, ssl.SSLCertVerificationError):
        return HttpsFailed(f"the certificate of {host} is not valid: {beneath.verify_message}", untrusted=True)
    return HttpsFailed(f"{host} cannot be reached: {cause(error)}")
