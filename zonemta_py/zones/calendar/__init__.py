"""Times in time zones: which one a text names, and when a campaign's mail may go in it."""
