"""Several machines as one MTA, over NATS JetStream: membership, election, orders. Nothing of it is imported where
`[cluster]` is not set."""
