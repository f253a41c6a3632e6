"""The only place that knows LevelDB."""
