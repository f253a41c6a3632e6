"""Ports for programs under test."""

from __future__ import annotations

import random
import socket

PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Below the range from which connections take theirs, so that it is still free when a program starts again.

    Raises OSError.
    """
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken
                continue
            return port
    raise OSError(f"no port from {PORTS[0]} to {PORTS[-1]} is free; end what listens there")
