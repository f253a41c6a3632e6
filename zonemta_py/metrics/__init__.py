"""What is counted and measured: the table of all metrics, and the counters of each process."""
