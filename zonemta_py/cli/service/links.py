"""Whether the world reaches the listener for links in mail, as mailbox providers do: over https, by its name."""

from __future__ import annotations

import asyncio
import socket
import ssl
from urllib.parse import urlsplit

from zonemta_py.cli.service.diagnosis import Diagnosis, ok, problem
from zonemta_py.config import Config

HELLO = b"zonemta links\n"


async def reached(config: Config) -> Diagnosis:
    """Of a configuration that has links."""
    from zonemta_py.delivery.tls.https import HttpsFailed, get

    about, url = f"links {config.links.url}", urlsplit(config.links.url)
    host, port = url.hostname or "", url.port or 443
    try:
        loop = asyncio.get_running_loop()
        rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return problem(about, f"{host} cannot be looked up ({error.strerror})", "publish its address in DNS")
    context = ssl.create_default_context(cafile=str(config.tls.ca_file) if config.tls.ca_file else None)
    addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
    try:
        said = await get(
            host, port, f"{url.path}/health", addresses, context, kind="text/plain", bytes_max=1_000,
            barred=lambda _: "",
        )  # fmt: skip
    except HttpsFailed as failed:
        remedy = "start the MTA, let the proxy pass it on, or renew the certificate; providers give up on what fails"
        return problem(about, str(failed), remedy)
    if said != HELLO:
        return problem(about, "another program answers there", f"pass {url.path}/ on to links.address and links.port")
    return ok(about, "is answered by this program")
