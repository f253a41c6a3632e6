"""What the tables say that somebody should act on."""
