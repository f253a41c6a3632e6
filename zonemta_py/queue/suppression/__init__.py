"""Who gets no mail."""
