"""Where events go to: one module for each kind of sink."""
