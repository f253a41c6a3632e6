"""Sums: of sizes by tenant and campaign, and by provider; of what accounts have handed in."""
