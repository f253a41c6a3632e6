"""What HTTP requests and answers are made of."""
