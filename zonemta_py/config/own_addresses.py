"""Which addresses our mail is seen to come from: the source addresses of zones and pools, and
`return_path.own_networks`."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network

from zonemta_py.config.root import Config


def own_addresses(config: Config) -> Callable[[str], bool]:
    """Whether an IP address is one; of what is no address False."""
    networks = [ip_network(one) for one in config.return_path.own_networks]
    own = {ip_address(one) for one in config.source_addresses}

    def is_own(text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        return address in own or any(address in network for network in networks)

    return is_own
