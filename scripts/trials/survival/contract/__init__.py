"""The contract of the queue, case by case, kept by a cluster that is struck in the middle of each."""
