"""What is counted of real mail in a real queue, and how it is answered."""

from pathlib import Path
from typing import Any

import pytest

from zonemta_py.journal.records.mail import VERDICTS
from zonemta_py.metrics import meter as meters
from zonemta_py.metrics.meter import CountTable, Meter
from zonemta_py.metrics.quantities import QUANTITIES, WAITING, size, waiting
from zonemta_py.metrics.quantities import STATES as COUNTED_STATES
from zonemta_py.metrics.rates import DestinationRates, Rates
from zonemta_py.metrics.table import METRICS, PROVIDERS_MAX, QUEUES
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, HELD
from zonemta_py.queue.core import sizes
from zonemta_py.queue.core.tasks import STATES
from zonemta_py.queue.lifecycle.observe import zone_label
from zonemta_py.reference import metrics as table
from zonemta_py.reference import quantities
from zonemta_py.schedule.policy.standing import GROUPS


@pytest.fixture
async def home(house: Any) -> Any:
    """A queue that is open."""
    return await house()


def value(rows: list[list[Any]], *labels: str) -> Any:
    return {tuple(row[0]): row[1] for row in rows}.get(labels, 0)


async def test_mail_is_counted_from_acceptance_to_its_answer(home: Any) -> None:
    """Acceptance, lease, each answer with its verdict and stage, and the time from the one to the other."""
    await home.put("a@one.test", "b@one.test", "c@two.test")
    await home.move(7)
    for delivery, verdict in zip(await home.leases(), (DELIVERED, DEFERRED), strict=True):
        await home.settle(delivery, verdict)
    found = await home.queue.ask("metrics")
    counters, gauges = found["counters"], found["gauges"]
    assert value(counters["zonemta_messages_accepted_total"], "smtp") == 1
    assert value(counters["zonemta_recipients_accepted_total"], "default") == 3
    assert value(counters["zonemta_leases_total"], "default") == 2
    by_verdict = {row[0][1]: row[1] for row in counters["zonemta_answers_total"]}
    assert by_verdict == {"delivered": 2, "deferred": 1}
    assert value(counters["zonemta_provider_answers_total"], "other", "delivered") == 2
    assert value(gauges["zonemta_queue_recipients"], "default", "deferred") == 1
    assert value(gauges["zonemta_queue_recipients"], "default", "queued") == 0
    assert value(gauges["zonemta_accepting"]) == 1
    for name, count in (("first_attempt_delay", 3), ("delivery_delay", 2)):
        ((labels, buckets, total),) = found["histograms"][f"zonemta_{name}_seconds"]
        assert (labels, sum(buckets), total) == (["default"], count, pytest.approx(7 * count))
    assert value(counters["zonemta_in_doubt_recipients_total"], "default") == 0
    assert counters["zonemta_in_doubt_recipients_total"], "a zone is there before the first one"


async def test_tasks_are_counted_by_state(home: Any) -> None:
    """Each state has a row, so that none is missing from a chart."""
    await home.put("a@one.test")
    await home.queue.ask("task", verb="delete", where={"domain": "one.test"}, by="ann")
    rows = (await home.queue.ask("metrics"))["gauges"]["zonemta_tasks"]
    assert ({row[0][0] for row in rows}, sum(row[1] for row in rows)) == ({*STATES}, 1)


async def test_nothing_is_counted_twice_by_a_replay(home: Any) -> None:
    """Counters are those of a process: what recovery applies again has been counted before."""
    await home.put("a@one.test")
    await home.settle((await home.leases())[0])
    again = await home.crash()
    found = await again.ask("metrics")
    assert "zonemta_answers_total" not in found["counters"]
    assert value(found["counters"]["zonemta_recipients_accepted_total"], "default") == 0


async def test_what_is_leased_counts_as_leased_alone(home: Any) -> None:
    """And what a dead sender had is in doubt: as many as are listed, after a restart too, until it is acknowledged."""
    await home.put("a@one.test", "b@one.test")
    await home.lease()
    found = await home.queue.ask("metrics")
    rows = found["gauges"]["zonemta_queue_recipients"]
    assert {state: value(rows, "default", state) for state in ("queued", "leased")} == {"queued": 0, "leased": 2}
    home.queue.lost("")
    found = await home.queue.ask("metrics")
    assert value(found["counters"]["zonemta_in_doubt_recipients_total"], "default") == 2
    await home.rest()
    again = await home.crash()
    await home.rest()
    assert value((await again.ask("metrics"))["gauges"]["zonemta_in_doubt"], "default") == 2
    assert len(listed := await again.ask("in-doubt")) == 2
    assert await again.ask("in-doubt-acknowledge", ids=["0" * 16]) == 0
    assert await again.ask("in-doubt-acknowledge", until_ms=listed[0]["since_ms"] - 1) == 0
    with pytest.raises(ValueError, match="name 1 to 1,000 messages"):
        await again.ask("in-doubt-acknowledge", ids=[])
    assert await again.ask("in-doubt-acknowledge", ids=[listed[0]["id"]]) == 2
    assert await again.ask("in-doubt") == []
    assert value((await again.ask("metrics"))["gauges"]["zonemta_in_doubt"], "default") == 0


async def test_who_is_in_doubt_is_forgotten_when_the_message_has_long_ended(home: Any) -> None:
    """Seven days after; while it waits it stays listed."""
    ended, waits = await home.put("a@one.test"), await home.put("b@two.test")
    await home.leases()
    home.queue.lost("")
    for delivery in await home.leases():
        await home.settle(delivery, DELIVERED if delivery.recipients[0].address == "a@one.test" else HELD)
    await home.rest()
    for days, left in ((6.9, {ended, waits}), (0.2, {waits}), (10, {waits})):
        await home.move(days * 86_400)
        await home.queue.maintenance.sweep()
        await home.rest()
        assert {row["id"] for row in await home.queue.ask("in-doubt")} == left


async def test_what_is_suspended_rests_or_was_learned_is_counted_apart(home: Any) -> None:
    """By the order, the rest and the lesson; each as many as the list has."""
    core = home.queue.core
    await home.queue.ask("stop", kind="zone", name="default", seconds=None, cause="by me")
    core.schedule.policy.stop("rest", "192.0.2.1 one.test", 600, "blocked")
    core.schedule.policy.stop("destination", "two.test", 600, "its reply says so")
    core.schedule.policy.stop("no-tls", "three.test", 600, "TLS fails")
    core.schedule.policy.stop("guard", "giant", 600, "very many")
    rows = await home.queue.ask("standing")
    found = (await home.queue.ask("metrics"))["gauges"]
    kinds = {group: {row["kind"] for row in rows if row["group"] == group} for group in GROUPS}
    assert kinds == {
        "suspended": {"zone"}, "resting": {"rest", "destination"}, "learned": {"no-tls"}, "noted": {"guard"},
    }  # fmt: skip
    for group in GROUPS[:3]:
        assert {labels[0]: n for labels, n in found[f"zonemta_{group}"]} == dict.fromkeys(kinds[group], 1)
    assert found["zonemta_suppression_guards_up"] == [[[], 1]]


async def test_bounces_and_orders_are_counted(home: Any) -> None:
    """By the class of the reply; what an operator drops has a reason."""
    await home.put("a@one.test")
    await home.settle((await home.leases())[0], BOUNCED)
    found = await home.queue.ask("metrics")
    ((labels, n),) = [row for row in found["counters"]["zonemta_answers_total"] if row[0][1] == "bounced"]
    assert (labels[0], labels[2], n) == ("default", "user-unknown", 1)


async def test_the_largest_campaigns_are_told_by_name(house: Any) -> None:
    """Those of which most wait, as many as are configured; then those that were tried last."""
    home = await house(http={"metrics_campaigns": 2})
    for name, count in (("small", 1), ("large", 3), ("middle", 2)):
        await home.put(*(f"u{number}@{name}.test" for number in range(count)), campaign=name)
    for delivery in await home.leases():
        if delivery.recipients[0].address.endswith("@middle.test"):
            await home.settle(delivery, BOUNCED)
    rows = (await home.queue.ask("metrics"))["gauges"]
    found = rows["zonemta_campaign_recipients"]
    assert {row[0][0] for row in found} == {"large", "small"}
    assert value(found, "large", "waiting") == value(found, "large", "accepted") == 3
    assert {row[0][0] for row in rows["zonemta_campaign_attempts"]} == {"large", "small"}


async def test_the_oldest_mail_of_each_zone_is_known(house: Any) -> None:
    """Whether it was never tried, was deferred or is due; what is held or was delivered does not count."""
    home = await house(zones=[{"name": "default", "default": True}, {"name": "b", "recipient_domains": ["b.test"]}])

    async def ages() -> dict[str, float]:
        rows = (await home.queue.ask("metrics"))["gauges"]["zonemta_oldest_recipient_age_seconds"]
        return {row[0][0]: row[1] for row in rows}

    assert await ages() == {"default": 0, "b": 0}
    await home.put("one@a.test")
    await home.move(100)
    await home.put("two@b.test")
    await home.move(10)
    assert await ages() == {"default": 110, "b": 10}
    for delivery in await home.leases():
        await home.settle(delivery, DEFERRED)
    await home.put("three@a.test")
    await home.rest()
    assert await ages() == {"default": 110, "b": 10}
    for _ in range(2):
        await home.move(7200)
        for delivery in await home.leases():
            await home.settle(delivery, DELIVERED if delivery.recipients[0].address == "one@a.test" else DEFERRED)
        await home.rest()
    assert await ages() == {"default": 14400, "b": 14410}
    await home.move(7200)
    for delivery in await home.leases():
        await home.settle(delivery, HELD)
    await home.rest()
    assert await ages() == {"default": 0, "b": 0}


async def test_the_answer_names_only_what_is_in_the_table(home: Any) -> None:
    """With as many labels as the table has."""
    await home.put("a@one.test")
    await home.settle((await home.leases())[0])
    found = await home.queue.ask("metrics")
    for kind in ("counter", "gauge", "histogram"):
        for name, rows in found[f"{kind}s"].items():
            assert METRICS[name].kind == kind
            assert {len(row[0]) for row in rows} <= {len(METRICS[name].labels)}, name


async def test_other_processes_report_what_they_count(home: Any) -> None:
    """Counters are added up over all of their lives; what they measure is forgotten when they end."""
    for process in ("receiver 1", "receiver 1", "receiver 2"):
        counts = [
            ["zonemta_smtp_sessions_total", ["smtp"], 5],
            ["nothing_known", [], 1],
            ["zonemta_smtp_sessions_total", [], 1],
        ]
        await home.queue.ask(
            "report", process=process, counts=counts, gauges=[["zonemta_smtp_sessions_open", ["smtp"], 3]]
        )
    found = await home.queue.ask("metrics")
    assert found["counters"]["zonemta_smtp_sessions_total"] == [[["smtp"], 15]]
    assert found["gauges"]["zonemta_smtp_sessions_open"] == [[["smtp"], 6]]
    home.clock.now_s += 60
    found = await home.queue.ask("metrics")
    assert "zonemta_smtp_sessions_open" not in found["gauges"]
    assert found["counters"]["zonemta_smtp_sessions_total"] == [[["smtp"], 15]]


async def test_now_says_how_much_happens_a_second(home: Any) -> None:
    """Over the last minute, and for each second of it."""
    assert (await home.queue.ask("now"))["in"] == 0
    rates = home.queue.core.counters.rates
    rates.note(0.0)
    await home.put("a@one.test", "b@one.test")
    rates.note(1.0)
    await home.settle((await home.leases())[0])
    rates.note(2.0)
    found = await home.queue.ask("now")
    assert (found["in"], found["out"], found["window_s"]) == (1.0, 1.0, 2.0)
    assert (found["history"]["in"], found["history"]["out"]) == ([2, 0], [0, 2])


async def test_now_says_which_destinations_are_busy(home: Any) -> None:
    """Delivered, deferred and bounced a second by domain, the busiest first; what was is forgotten within a minute."""
    rates = home.queue.core.counters.destinations
    rates.note(100.0)
    await home.put("a@one.test", "b@one.test", "c@two.test")
    for delivery, verdict in zip(await home.leases(), (DELIVERED, DEFERRED), strict=True):
        await home.settle(delivery, verdict)
    rates.note(110.0)
    assert (await home.queue.ask("now", destinations=1))["destinations"] == {"one.test": [0.2, 0, 0]}
    assert (await home.queue.ask("now", destinations=9))["destinations"]["two.test"] == [0, 0.1, 0]
    assert "destinations" not in await home.queue.ask("now")
    for second in (130, 131, 160, 161):
        rates.note(float(second))
    assert (await home.queue.ask("now", destinations=9))["destinations"] == {}


def test_destinations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zonemta_py.metrics.rates.NAMES_MAX", 3)
    rates = DestinationRates()
    for number in range(9):
        rates.add(f"x@{number}.test", "delivered")
    rates.note(1.0)
    assert len(rates.rows(100)) == 3


def test_rates_forget_what_is_older_than_a_minute() -> None:
    meter = Meter()
    rates = Rates(meter)
    for second in range(200):
        meter.add("zonemta_recipients_accepted_total", ("z",), 1 if second < 100 else 3)
        rates.note(float(second))
    assert rates.rows()["in"] == 3.0
    assert rates.rows()["window_s"] == 60.0


def test_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the bound is counted, as "other"."""
    monkeypatch.setattr(meters, "SETS_MAX", 3)
    counts, meter = CountTable(), Meter()
    for number in range(10):
        counts.add("zonemta_leases_total", (str(number),))
        meter.observe("zonemta_delivery_delay_seconds", (str(number),), 1)
    assert counts.by_name["zonemta_leases_total"] == {("0",): 1, ("1",): 1, ("2",): 1, ("other",): 7}
    assert len(meter.histograms()["zonemta_delivery_delay_seconds"]) == 4
    assert zone_label("queue/one") == QUEUES


def test_a_histogram_has_each_value_in_the_bucket_that_it_fits() -> None:
    """The bounds belong to their buckets; a clock that was set back counts as 0."""
    meter, name = Meter(), "zonemta_attempt_duration_seconds"
    first, second, *_ = bounds = METRICS[name].buckets
    for seconds in (-3, 0, first, (first + second) / 2, second, 2 * bounds[-1]):
        meter.observe(name, ("default",), seconds)
    [[labels, counts, total]] = meter.histograms()[name]
    assert (labels, counts[:2], sum(counts[2:-1]), counts[-1]) == (["default"], [3, 2], 0, 1)
    assert total == pytest.approx(first + (first + second) / 2 + second + 2 * bounds[-1])


def test_sizes_are_in_powers_of_a_thousand() -> None:
    """And named so, wherever one is written: the reserve of 64 × 1024² bytes is one number."""
    said = [size(n) for n in (0, 999, 1_000, 64 * 1024**2, 74_123_456_789, 512_000_000, 5e15)]
    assert said == ["0 bytes", "999 bytes", "1 kB", "67.1 MB", "74.1 GB", "512 MB", "5,000 TB"]


def test_every_verdict_has_a_name() -> None:
    assert sorted(VERDICTS) == [1, 2, 3, 4, 5, 6]
    assert PROVIDERS_MAX < meters.SETS_MAX


def test_the_document_has_every_metric() -> None:
    """docs/METRICS.md has the table that `python -m zonemta_py.reference --metrics` makes."""
    text = (Path(__file__).parents[2] / "docs" / "METRICS.md").read_text()
    assert table().strip() in text


def test_every_quantity_is_counted_where_it_says() -> None:
    """Its module is there, its metric is one and says the same; docs/METRICS.md has the table."""
    top = Path(__file__).parents[2]
    assert quantities().strip() in (top / "docs" / "METRICS.md").read_text()
    for one in QUANTITIES.values():
        assert (top / "zonemta_py" / one.source).is_file(), one.source
        if one.metric:
            metric = METRICS[one.metric.partition("{")[0]]
            assert "{" in one.metric or one.name == "attempts" or metric.help.startswith(one.means), one.name
    assert {*COUNTED_STATES} == {*sizes.NAMES, "leased"}
    assert waiting(dict.fromkeys(COUNTED_STATES, 1)) == len(WAITING)
