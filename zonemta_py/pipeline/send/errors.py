"""Errors that end a campaign's handing-in early."""


class InjectionFailed(Exception):
    """Not all chunks are in; one sentence that says which, and that repeating it is safe."""


class InjectionStopped(Exception):
    """An operator, or the campaign's bounds, stopped it; the sentence says which."""
