"""One spelling for each domain (IDNA 2008: RFC 5891, with the mapping of UTS 46). The only module that imports
`idna`."""

from __future__ import annotations

from functools import lru_cache

import idna


def canonical(domain: str) -> str:
    """Lower case, without a final dot, in A-labels: the same domain always looks the same (RFC 5890 2.3.2.1).

    What IDNA does not allow is given back lower-cased; it cannot be looked up, and a lookup will say so.
    """
    if domain.isascii():
        return domain.lower().rstrip(".")
    return _encoded(domain)


@lru_cache(4096)
def _encoded(domain: str) -> str:
    try:
        mapped = idna.uts46_remap(domain, std3_rules=False).rstrip(".")
        # Labels in ASCII stay: IDNA would refuse underscores, which do stand in front of international domains.
        labels = [label if label.isascii() else idna.alabel(label).decode() for label in mapped.split(".")]
    except idna.IDNAError:
        return domain.lower().rstrip(".")
    return ".".join(labels)
