"""`zonemta lake`, `report`, `archive`, `whatif`."""
