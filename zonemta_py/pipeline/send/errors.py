"""How handing a campaign in ends before all of it is in."""


class InjectionFailed(Exception):
    """Not all chunks are in; one sentence that says which, and that doing it again is safe."""


class InjectionStopped(Exception):
    """Somebody, or the campaign's bounds, said stop; the sentence says who."""
