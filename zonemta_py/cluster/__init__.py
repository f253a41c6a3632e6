"""Several machines as one MTA, over NATS JetStream: membership, election, orders, and the log of each queue. Nothing of
it is imported where `[cluster]` is not set."""

REPLACED = 86
"""Exit status of a process that has found out that other nodes have taken its queue over: the whole node begins anew,
with another queue."""
