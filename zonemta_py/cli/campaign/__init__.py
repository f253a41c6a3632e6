"""`zonemta campaign`."""
