"""The journal as data: Spark reads what the queue wrote, and prepares what it is to send."""
