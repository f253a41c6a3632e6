"""What the rules make of a reply, for whoever asks: the command `rules explain` and the HTTP API say the same."""

from __future__ import annotations

from typing import NamedTuple

from zonemta_py.config.suppression import Tolerance, Tolerances
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED
from zonemta_py.mail import classify
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.check import disagreeing
from zonemta_py.mail.rules.classes import SUBJECTS
from zonemta_py.mail.rules.rule import OPINION, Classified, Rule
from zonemta_py.mail.rules.rules import Rules, rule_row
from zonemta_py.queue.suppression.evidence import COUNTED, OF_CLASS


class ExplainedReply(NamedTuple):
    """matching: the deciding rule first. barred: rules whose conditions hold, and why they have no say. about: of whom
    the reply speaks, in words, "" if of nobody. because: what of it speaks for the class, to a second opinion.
    suppresses: when such replies put the recipient on the suppression list."""

    matching: list[Rule]
    barred: list[tuple[Rule, str]]
    about: str
    judged: Classified
    because: tuple[str, ...]
    suppresses: str

    def rows(self) -> list[dict[str, object]]:
        """Those that match, then those that have no say; the first has what comes of it all."""
        every = [rule_row(rule) for rule in self.matching]
        if every:
            every[0] |= {"judged": self.judged.kind, "about": self.about, "suppresses": self.suppresses}
            every[0]["opinion"] = self.opinion
            every[0]["disagree"] = [rule.name for rule in self.disagree]
        return every + [rule_row(rule) | {"barred": why} for rule, why in self.barred]

    @property
    def disagree(self) -> list[Rule]:
        """Rules that match too, and mean something else."""
        return list(disagreeing(self.matching))

    @property
    def opinion(self) -> str:
        """Why another class than the rule's, "" if it is the rule's."""
        if not self.judged.rule.endswith(OPINION):
            return ""
        because = f", by {', '.join(map(repr, self.because))}" if self.because else ""
        return f"most like replies of {self.judged.kind}{because}; recorded as {self.judged.rule}, and never suppresses"


def explained(rules: Rules, reply: Reply, stage: str, provider: str, tolerances: Tolerances) -> ExplainedReply:
    """stage, provider: as of `Rules.judge`."""
    candidates = rules.candidates(reply, stage, provider)
    said = classify.judge(reply, stage)
    judged = rules.judge(said.reply, stage, provider)
    bounced = judged.action.verdict == "bounce" or (said.permanent and not judged.action.verdict)
    return ExplainedReply(
        [rule for rule, why in candidates if not why],
        [(rule, why) for rule, why in candidates if why],
        SUBJECTS.get(rules.reading(reply, stage).about, ""),
        judged,
        rules.because(reply, stage, judged.kind),
        _suppresses(tolerances, judged.kind, judged.agreed, BOUNCED if bounced else DEFERRED),
    )


def _suppresses(tolerances: Tolerances, kind: str, agreed: bool, verdict: int) -> str:
    """When such replies put the recipient on the suppression list: such as "after one reply" or "never". kind, agreed:
    as of `mail.rules.rule.Classified`. verdict: BOUNCED or DEFERRED."""
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
