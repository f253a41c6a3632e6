"""Named queues under fire, and beside others: `scripts/pull trial`, `scripts/pull benchmark`."""
