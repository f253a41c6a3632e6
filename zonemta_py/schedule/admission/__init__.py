"""What may go now: connections, rates, shares."""
