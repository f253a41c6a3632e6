"""A fast SMTP server that accepts everything and keeps nothing, for tests, benchmarks and the quickstart.

    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True)) as sink:
        ...                       # send to sink.port
        sink.messages[0].body     # what came, byte for byte

`run_sink(options)` is the same as a process of its own, until SIGTERM or SIGINT.
"""

from zonemta_py.sink.options import SinkError, SinkOptions
from zonemta_py.sink.record import ReceivedMessage
from zonemta_py.sink.server import Sink, run_sink
from zonemta_py.sink.timeline import depth

__all__ = ["ReceivedMessage", "Sink", "SinkError", "SinkOptions", "depth", "run_sink"]
