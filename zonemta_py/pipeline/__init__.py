"""The journal as data: Spark reads what the queue wrote, and prepares campaigns for it to send."""
