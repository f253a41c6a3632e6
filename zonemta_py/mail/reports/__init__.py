"""Reports that others make about our mail: DMARC aggregate reports, TLS reports, and reputation as tables."""
