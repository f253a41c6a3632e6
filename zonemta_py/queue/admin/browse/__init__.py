"""What operators ask about the queue: sizes, lists, one message, ages, stories. Each answer is bounded."""
