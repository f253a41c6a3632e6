__version__ = "0.2.0"

USUAL_CONFIG = "/etc/zonemta/zonemta.toml"
"""The configuration file of the service on a machine."""
