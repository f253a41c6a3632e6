"""The ladder of TLS, and what is remembered of a host."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.delivery.tls import ladder as tls_memory
from zonemta_py.delivery.tls.failures import CERTIFICATE, HANDSHAKE, POLICY, STARTTLS, TlsTrouble
from zonemta_py.delivery.tls.ladder import PLAIN, Ladder, Step, TlsMemory
from zonemta_py.delivery.tls.plan import TlsPlan

PLACE = ("mx.test", 25)


def trouble(kind: str) -> TlsTrouble:
    return TlsTrouble(kind, "validation-failure", "test")


def climb(plan: TlsPlan, memory: TlsMemory, *kinds: str, now: float = 0.0) -> list[Step]:
    """Fails at one step after the other for these reasons, and then works."""
    ladder = Ladder(plan, memory, PLACE, now)
    steps = [ladder.step]
    for kind in kinds:
        if not ladder.failed(trouble(kind)):
            return steps
        steps.append(ladder.step)
    ladder.worked()
    return steps


def test_handshakes() -> None:
    """1.3, then 1.2, then plain."""
    assert climb(TlsPlan(), TlsMemory(0), HANDSHAKE, HANDSHAKE) == [Step("1.3"), Step("1.2"), PLAIN]


def test_least() -> None:
    """tls_min = 1.3 leaves 1.2 out."""
    assert climb(TlsPlan(least="1.3"), TlsMemory(0), HANDSHAKE) == [Step("1.3"), PLAIN]


def test_starttls() -> None:
    """Where STARTTLS itself fails no version of TLS helps."""
    assert climb(TlsPlan(), TlsMemory(0), STARTTLS) == [Step("1.3"), PLAIN]


@pytest.mark.parametrize("kind", [STARTTLS, HANDSHAKE, CERTIFICATE])
@pytest.mark.parametrize("mode", ["required", "implicit"])
def test_never_plain(mode: str, kind: str) -> None:
    """A plan that forbids it never ends in plain, and never unvalidated."""
    steps = climb(TlsPlan(mode, "pkix"), TlsMemory(9), *[kind] * 5)
    assert steps
    assert all(step.version and step.verify == "pkix" for step in steps)


def test_testing() -> None:
    """A policy that is only tested: not validated is better than nothing, with the versions that work."""
    plan = TlsPlan(verify="mta-sts", soft=True)
    assert climb(plan, TlsMemory(0), CERTIFICATE) == [Step("1.3", "mta-sts"), Step("1.3")]
    assert climb(plan, TlsMemory(0), HANDSHAKE, CERTIFICATE) == [
        Step("1.3", "mta-sts"),
        Step("1.2", "mta-sts"),
        Step("1.2"),
    ]


def test_remembered() -> None:
    """The next connection begins where the last one ended, for a time."""
    memory = TlsMemory(3600)
    climb(TlsPlan(), memory, HANDSHAKE, HANDSHAKE)
    assert climb(TlsPlan(), memory, now=3599) == [PLAIN]
    assert climb(TlsPlan(), memory, now=3600) == [Step("1.3")]


def test_only_what_works_is_remembered() -> None:
    """A host that took no step at all was down, and teaches nothing."""
    memory = TlsMemory(3600)
    ladder = Ladder(TlsPlan("required", "pkix"), memory, PLACE, 0)
    while ladder.failed(trouble(HANDSHAKE)):
        pass
    assert memory.cannot(PLACE, 0) == frozenset()


def test_memory_binds_no_policy() -> None:
    """A host remembered as plain is tried from the top by a plan that forbids plain."""
    memory = TlsMemory(3600)
    climb(TlsPlan(), memory, STARTTLS)
    assert climb(TlsPlan("required", "dane"), memory) == [Step("1.3", "dane")]


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many hosts and no more; the oldest knowledge goes."""
    monkeypatch.setattr(tls_memory, "HOSTS_MAX", 3)
    memory = TlsMemory(3600)
    for number in range(5):
        memory.learn((f"h{number}", 25), frozenset({"1.3"}), 0)
    assert len(memory) == 3
    assert not memory.cannot(("h1", 25), 0)


plans = st.builds(
    TlsPlan, st.sampled_from(["opportunistic", "required", "implicit"]), st.sampled_from(["none", "pkix", "dane"]),
    st.booleans(), st.sampled_from(["1.2", "1.3"]),
)  # fmt: skip


@given(plans, st.lists(st.lists(st.sampled_from([STARTTLS, HANDSHAKE, CERTIFICATE, POLICY]), max_size=7), max_size=4))
@settings(max_examples=200)
def test_always_within_the_plan(plan: TlsPlan, climbs: list[list[str]]) -> None:
    """Whatever failed before, the ladder ends, never repeats a step, and never leaves the plan."""
    memory = TlsMemory(3600)
    for kinds in climbs:
        steps = climb(plan, memory, *kinds)
        assert len(steps) == len(set(steps)) <= 5
        for step in steps:
            assert step.version or plan.mode == "opportunistic"
            assert step.verify == plan.verify or plan.soft or step == PLAIN
            assert not step.version or step.version >= plan.least
