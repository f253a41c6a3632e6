"""Several queues on one machine: which takes a message, what they share, and their answers as one."""
