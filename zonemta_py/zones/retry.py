"""When a temporary failure is tried again (RFC 5321 4.5.4.1); `queue/core/lifetime.py` says when it expires.

Pure: the clock and the randomness are arguments. The schedule, its jitter and the life of a message are `config.Retry`.
"""

from __future__ import annotations

from zonemta_py.config import Retry


def delay_s(attempts: int, retry: Retry, random: float) -> float:
    """Seconds until the next try after `attempts` (≥ 1) failed ones; the schedule's last entry repeats.

    random: in [0, 1); 0.5 means no jitter. Jitter keeps mail that failed together from coming back together.
    """
    minutes = retry.schedule_min[min(max(attempts, 1), len(retry.schedule_min)) - 1]
    return minutes * 60 * (1 + retry.jitter * (2 * random - 1))
