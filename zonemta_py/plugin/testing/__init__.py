"""For tests of plugins: called without a server, as the server does it; and in a real one.

    from zonemta_py.plugin.testing import delivery, envelope, load, received, running, session

    host = load("links.py", {"domain": "news.example.com"})
    await host.call("queue_route", envelope=envelope("anna@example.com"), routing=routing)
    stored = await received(host, b"Subject: x\\r\\n\\r\\nHello\\r\\n")

    async with running("links.py", options={"domain": "news.example.com"}) as mta:
        answer = await mta.send("anna@example.com", message=b"Subject: x\\r\\n\\r\\nHello\\r\\n")
        assert b"news.example.com" in (await mta.arrived("anna@example.com")).body

`zonemta_py.plugin.testing.fixtures` has the same as a fixture of pytest.
"""

from zonemta_py.plugin.testing.builders import delivery, envelope, session
from zonemta_py.plugin.testing.host import load, received
from zonemta_py.plugin.testing.mta import Arrived, HttpReply, Mta, MtaNotStarted, Submitted, running
from zonemta_py.sink import Sink

__all__ = [
    "Arrived", "HttpReply", "Mta", "MtaNotStarted", "Sink", "Submitted", "delivery", "envelope", "load", "received",
    "running", "session",
]  # fmt: skip
