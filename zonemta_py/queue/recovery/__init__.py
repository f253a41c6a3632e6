"""Recovery: from the files of a queue to a running queue."""
