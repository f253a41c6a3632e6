"""Lists as people have them: files, dialects, damage."""
