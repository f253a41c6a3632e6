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


def kept_port() -> socket.socket:
    """Has a free port that nobody else finds free while it is open, though nothing listens there for the moment.

    A server that sets SO_REUSEPORT can listen there, again and again. Raises OSError.
    """
    kept = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        kept.setsockopt(socket.SOL_SOCKET, option, 1)
    kept.bind(("127.0.0.1", free_port()))
    return kept
