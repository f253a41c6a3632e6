"""HTML and CSS of templates."""
