"""Every metric there is, in one table: name, kind, labels, and what it means; where it is one of the quantities that
others show too, in their words. docs/METRICS.md, the dashboard and the alert rules are compared with it by tests.

Names and units are Prometheus's conventions: counters end in _total, times are seconds, sizes bytes. Every label is
bounded: zones, sinks, listeners and limits by the configuration, campaigns by its `http.metrics_campaigns`, verdicts,
classes and stages by the code, providers by config/providers.toml and PROVIDERS_MAX; whatever else may come is "other"
(`meter.SETS_MAX`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from zonemta_py.metrics.quantities import means

Kind = Literal["counter", "gauge", "histogram"]
OTHER = "other"
PROVIDERS_MAX = 50
"""Providers with a label of their own: the first ones that mail goes to."""
QUEUES = "queue/*"
"""The zone of all named queues that have no table of their own."""

_AGE_S = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200, 432_000)
_DIALOGUE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LOOP_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metric(NamedTuple):
    """buckets: upper bounds, of a histogram; none: each set of labels has its own. least: what several processes report
    of a gauge is not added up, but the least of it holds."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    least: bool = False


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"zonemta_{name}_total", "counter", labels, help)


def _gauge(name: str, help: str, *labels: str, least: bool = False) -> Metric:
    return Metric(f"zonemta_{name}", "gauge", labels, help, least=least)


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"zonemta_{name}_seconds", "histogram", labels, help, buckets)


_ROWS = (
    # what comes in
    _counter("messages_accepted", "Messages that were stored, by origin: SMTP, HTTP, push, plugin, notice.", "by"),
    _counter("message_bytes_accepted", "Bytes of these messages."),
    _counter("recipients_accepted", means("accepted"), "zone"),
    _counter("recipients_suppressed", means("suppressed"), "zone"),
    _counter("smtp_sessions", "Connections that clients have made to the SMTP listeners.", "listener"),
    _gauge("smtp_sessions_open", "Connections of clients that are open now.", "listener"),
    _gauge("account_sessions_open", "Sessions that are open now: SMTP connections, HTTP requests in progress.",
           "account"),
    _counter("smtp_refusals", "Refusals of the SMTP listeners, by the code of the reply.", "listener", "code"),
    _counter("returns", "Reports received by SMTP, by kind (bounce, complaint …) and proof: token, dkim, spf, "
             "unproven; or repeated, if it was known.", "kind", "proof"),
    _counter("sender_checks", "Messages that were not fit to be sent, by zone, check (signed, aligned, spf, reverse, "
             "unsubscribe) and what came of it (warn, hold, refuse).", "zone", "check", "action"),
    _counter("auth_failures", "Logins that failed: wrong name or password, or too many tries.", "listener"),
    _counter("http_requests", "Requests over HTTP, by the status of the answer.", "status"),
    _counter("pull_sessions", "Connections that clients have made to the listener for named queues."),
    _gauge("pull_sessions_open", "Connections of clients for named queues that are open now."),
    _counter("pull_commands", "Commands on these connections, by how they ended: done, refused, cut (the client had "
             "gone or was too slow), failed.", "command", "result"),
    _gauge("pull_waiting", "Clients that wait for something to take, by any protocol."),
    _gauge("pull_reservations", "Messages that are taken and reserved until they are acknowledged."),
    # what goes out
    _counter("leases", "Deliveries given to senders.", "zone"),
    _counter("answers", "Results of recipients whose turn came, with or without an attempt.", "zone", "verdict",
             "class", "stage"),
    _counter("provider_answers", "The same by provider of the destination.", "provider", "verdict"),
    _counter("feedback", "Feedback about mail that was sent, by kind and by proof that it is genuine: token, dkim, "
             "spf, key, none.", "kind", "genuine"),
    _counter("dmarc_reported", "Messages that signed DMARC reports tell of, from our sources and from others, by "
             "whether DMARC passed.", "from", "result"),
    _counter("tls_reported", "Sessions to our own mail servers that signed TLS reports tell of: succeeded, failed.",
             "result"),
    _counter("recipients_removed", means("removed"), "zone", "reason"),
    _counter("in_doubt_recipients", "Recipients that have come onto the list of those in doubt (zonemta_in_doubt) "
             "since the queue's process started; those found at a start are among them.", "zone"),
    _counter("limits_reached", "How often mail began to wait because a limit was reached.", "limit"),
    _counter("connections_opened", "Connections opened to other servers.", "zone"),
    _counter("connections_reused", "Deliveries over a connection that was open already.", "zone"),
    _gauge("connections_idle", "Open connections that wait for the next message."),
    _histogram("first_attempt_delay", "From acceptance until a message is first given to a sender.", _AGE_S, "zone"),
    _histogram("delivery_delay", "From acceptance until the recipient's server has taken it.", _AGE_S, "zone"),
    _histogram("attempt_duration", "How long attempts took, from the first lookup to the last answer.", _DIALOGUE_S,
               "zone"),
    _counter("people_suppressed", "People put on the suppression list because of replies, bounces and complaints.",
             "kind"),
    _counter("suppression_guards", "How often a provider reported very many recipients as unknown at once, so that "
             "none was suppressed for it."),
    # what waits
    _gauge("queue_recipients", "Recipients in the queue, each in one state: queued, leased, deferred, held, deleted, "
           "bounced (and kept).", "zone", "state"),
    _gauge("in_doubt", means("in doubt"), "zone"),
    _gauge("queue_messages", means("messages")),
    _gauge("queue_bytes", "Bytes of these messages."),
    _gauge("spooled_messages", "Messages that this node has accepted (durability = \"node\"), and most NATS servers of "
           "its cluster do not have yet."),
    _gauge("spooled_bytes", "Bytes of these messages, as stored."),
    _gauge("oldest_recipient_age_seconds", "How long ago the oldest mail was accepted that waits and is not held; 0: "
           "none waits.", "zone"),
    _gauge("campaign_recipients", "Recipients of the campaigns with most waiting mail, and of those tried last, by "
           "state: accepted, waiting, delivered, bounced, deleted, removed, suppressed, complaints, "
           "bounced_later, unsubscribes, auto_replies, opens, clicks.",
           "campaign", "what"),
    _gauge("campaign_attempts", "Attempts for these campaigns: delivered, deferred, bounced; and blocked, those that "
           "were refused because of reputation or content.", "campaign", "what"),
    _gauge("leases_out", "Deliveries that senders have now; each may hold a connection.", "zone"),
    _gauge("suspended", means("suspended"), "kind"),
    _gauge("resting", means("resting"), "kind"),
    _gauge("learned", means("learned"), "kind"),
    _gauge("source_resting", "1 while a configured source address rests because it, or its proxy, cannot be used; else "
           "0.", "source"),
    _counter("source_failures", "Deliveries that could not go by a configured source address because of itself or its "
             "proxy.", "source"),
    _gauge("damage", "Cases of damage that no operator has acknowledged yet (zonemta standing, kind lost)."),
    _gauge("suppression_guards_up", "Providers whose refusals do not suppress now, since there were very many."),
    _gauge("tasks", "Tasks of operators that are kept, by state: running, undoable, done, canceled, undoing, undone, "
           "ending.", "state"),
    _gauge("accepting", "1 while mail is accepted; 0: the disk is full or has errors."),
    # the queue's process and its disk
    _histogram("loop_delay", "Delay of the event loop of the queue's process, measured ten times a second.",
               _LOOP_S),
    _gauge("disk_free_bytes", means("free")),
    _gauge("disk_reserve_bytes", means("reserve")),
    _counter("journal_bytes", "Bytes written to the journal."),
    _counter("journal_records", "Records written to the journal."),
    _counter("journal_syncs", "Times that the journal was synced."),
    _counter("store_syncs", "Times that the store was synced."),
    _counter("clock_steps", "Times that the machine's clock was set by more than two seconds."),
    # processes
    _counter("process_starts", "Starts of each process since `zonemta run`; a reload starts it again.", "process"),
    _counter("process_failures", "Unexpected ends of processes; those of a reload are not counted.", "process"),
    _gauge("process_failure_time_seconds", "When that last happened, as UNIX time; absent if it never did.",
           "process"),
    _counter("process_cpu_seconds", "Time on a processor of the process that runs now.", "process"),
    _gauge("process_resident_memory_bytes", "Memory of the process that runs now.", "process"),
    _gauge("process_start_time_seconds", "When it was started, as UNIX time.", "process"),
    _counter("log_lines_dropped", "Log lines lost because standard error was not read.", "process"),
    _counter("links_requests", "Requests by links in mail, by result: unsubscribed, repeated, rejoined, "
             "page, nothing (a POST that is no click), wrong, old, limited, unavailable; open, click, untold (either).",
             "result"),
    # around it
    _counter("event_sink_events", "Events of each sink, by result: sent, dropped, missed, dead.", "sink",
             "what"),
    _gauge("event_sink_lag_records", "Journal records whose events the sink is not done with.", "sink"),
    _gauge("event_sink_lag_seconds", "Age of the oldest event that waits for the sink.", "sink"),
    _gauge("event_sink_up", "1 while the sink takes events.", "sink"),
    _counter("plugin_calls", "Calls of plugins.", "plugin", "hook"),
    _counter("plugin_seconds", "Time spent in plugins.", "plugin", "hook"),
    _counter("plugin_failures", "Calls that failed, or took too much time, memory or threads.", "plugin", "hook"),
    _gauge("plugin_recent_failures", "Failures of plugins within 5 minutes, deaths of processes included.", "plugin"),
    _counter("plugin_verdicts", "Verdicts of plugins.", "plugin", "hook"),
    _counter("plugin_count", "Counters of plugins: `api.count(counter, n, label)`.", "plugin", "counter", "label"),
    _gauge("plugin_value", "Gauges of plugins: `api.gauge(gauge, value, label)`, as each process has them.", "plugin",
           "gauge", "label", "process"),
    Metric("zonemta_plugin_observed", "histogram", ("plugin", "histogram", "label"),
           "Histograms of plugins: `api.observe(histogram, value, label, buckets)`."),
    _gauge("plugin_tasks", "Background tasks of plugins that run now: in how many processes.", "plugin", "task"),
    _gauge("certificate_expiry_timestamp_seconds", "When the certificate of a listener expires, as UNIX time; of "
           "several processes the earliest.", "listener", least=True),
    _gauge("build_info", "Always 1; its label is the version.", "version"),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}
