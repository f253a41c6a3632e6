"""From the files of a queue to a queue that serves."""
