"""What a queue keeps: the disk's two lines, ledger, counters, keys, messages and their bodies."""
