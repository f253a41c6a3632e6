"""`zonemta send`."""
