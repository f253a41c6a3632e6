"""Sums of sizes: by tenant and campaign, by provider."""
