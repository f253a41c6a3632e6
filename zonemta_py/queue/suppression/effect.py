"""What a reply has to do with the suppression list, as a phrase: for people who ask about a rule."""

from __future__ import annotations

from zonemta_py.config.people.suppression import Tolerance, Tolerances
from zonemta_py.queue.suppression.evidence import COUNTED, OF_CLASS


def effect(tolerances: Tolerances, kind: str, agreed: bool, verdict: int) -> str:
    """Such as "after one reply" or "never". kind, agreed: as of `mail.rules.rule.Classified`. verdict: BOUNCED or
    DEFERRED."""
    group = OF_CLASS.get(kind)
    if group is None or not tolerances.automatic or verdict not in COUNTED[group]:
        return "never"
    tolerance = tolerances.tolerance(group)
    if agreed and tolerance.agreed:
        return "after one reply" if tolerance.agreed == 1 else f"after {tolerance.agreed} such replies"
    return _several(tolerance)


def _several(tolerance: Tolerance) -> str:
    if not tolerance.after:
        return "never"
    over = f", over {tolerance.over_days:g} or more" if tolerance.over_days else ""
    return f"after {tolerance.after} on different days within {tolerance.within_days:g} days{over}"
