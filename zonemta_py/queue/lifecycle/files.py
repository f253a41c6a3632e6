"""The files that a queue's configuration names besides itself: rules for replies, texts of notices. Read once; child
processes inherit them by fork."""

from __future__ import annotations

from zonemta_py.config import Config
from zonemta_py.queue.lifecycle import classification, notices


def load(config: Config) -> None:
    """Reads and checks them. Raises ConfigError."""
    classification.load(config)
    notices.load(config)
