"""Named queues under fire, and beside others: `scripts/trials/pull trial`, `scripts/trials/pull benchmark`."""
