"""From a domain to hosts and addresses."""
