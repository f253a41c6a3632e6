"""`zonemta config`, `dkim`, `rules`, `route`, `tls`, `api-key`."""
