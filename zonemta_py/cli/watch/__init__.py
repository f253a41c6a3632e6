"""What is going on: for a person at the terminal, and for programs that watch servers."""
