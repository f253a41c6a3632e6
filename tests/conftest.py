"""For all tests: properties are judged by what they find, never by how long the machine took to look.

A run looks at the same examples every time, so that what fails has been broken by a change and not by chance;
`pytest --hypothesis-profile=search` looks at others.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("search"), derandomize=True)
settings.load_profile("steady")
