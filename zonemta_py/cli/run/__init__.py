"""`zonemta run`."""
