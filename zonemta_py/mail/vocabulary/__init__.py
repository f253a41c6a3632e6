"""Words that tell what replies and returned mail mean, as data, and how they are found in a text."""
