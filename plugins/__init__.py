"""Bundled plugins: one file each, importing zonemta_py.plugin only."""
