"""What a queue keeps: lines to both disks, ledger, counters, keys, messages and their bodies."""
