"""What came back, told over HTTP: by programs with a key, and by webhooks that prove themselves."""
