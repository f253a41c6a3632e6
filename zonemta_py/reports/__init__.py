"""Reports on campaigns that have ended, made by themselves: which are due, who makes them, where they lie."""
