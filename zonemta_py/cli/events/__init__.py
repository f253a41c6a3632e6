"""`zonemta events …`: what happens to mail, as it happens."""
