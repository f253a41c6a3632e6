"""Statistical models of replies and of mail that comes back, as `scripts/learn` makes them, and what reads them."""
