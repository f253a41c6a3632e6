"""What stands beside SMTP: HTTP, queues to take mail from, sinks of events; and what each is configured by."""
