"""Named queues over plain TCP: one command a connection (docs/QUEUES.md)."""
