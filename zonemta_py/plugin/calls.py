"""One plugin's function for one hook: called within its time limit, measured, its failures contained and attributed.

A call runs at once, inside the caller, until the plugin first waits; only then is a timer set (`asyncio.timeout`), as a
timer costs twenty times as much as the call, and most calls never wait. A plugin that computes or blocks instead of
awaiting cannot be interrupted from within its process: `watchdog` names it meanwhile and may skip it; the call is still
measured, counted as an overrun and logged.

Failures: `run` and `run_now` raise the verdicts that the hook accepts, `PluginFailed` for everything else a plugin does
wrong (sys.exit() included), and pass on what the plugin did not cause: cancellation from outside, Ctrl-C.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import re
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NoReturn

from zonemta_py.logs.causes import from_outside
from zonemta_py.plugin import assignment, values
from zonemta_py.plugin.api import log
from zonemta_py.plugin.arguments import WITH_HOST, Notice, there_is
from zonemta_py.plugin.configured import ANYTHING, Configured
from zonemta_py.plugin.spec import Hook
from zonemta_py.plugin.verdicts import Defer, Hold, PluginFailed, Verdict
from zonemta_py.plugin.watchdog import UNFILTERED, WATCH, Watched
from zonemta_py.queue.poison import NOTHING, UNDER_WAY, Subject

_SET = re.compile(r"set (\w+)\.(\w+) to ")
"""How `values` names a field: its argument, and itself."""
GRACE_S = 1.0
"""What a call that is cut off has to clean up."""
_left = list[Coroutine[Any, Any, Any]]()
"""Calls that did not end when they were told to. Kept for good: to be collected a coroutine has to be closed, and one
that goes on regardless would not end then, either."""


class Misbehaved(Exception):
    """What the host found a plugin doing wrong: too slow, bad return value, waiting where it must not. One sentence."""


class CutOff(Misbehaved):
    """It awaited for longer than the limit."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What the operator has said of a plugin's calls. listeners, zones: where it is called at all; empty: everywhere.
    open: mail goes on when it fails."""

    listeners: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    open: bool = False


NO_LIMITS = CallLimits()


@dataclass(slots=True)
class CallCounts:
    """Of one plugin and hook. seconds: all calls, without the time that streams waited for data. worst_s: the longest
    call.

    overruns: calls that took longer than the limit, whether they could be cut off or not, or too much of their process.
    """

    calls: int = 0
    seconds: float = 0.0
    worst_s: float = 0.0
    verdicts: int = 0
    failures: int = 0
    overruns: int = 0


class Call(Watched):
    """Bound at load."""

    __slots__ = (
        "_all", "_configured", "_unknown", "_zoned", "checked", "function", "listeners", "only", "opens", "tally",
    )  # fmt: skip

    def __init__(
        self, plugin: str, file: str, hook: Hook, function: Callable[..., Any], limit_s: float,
        configured: Configured = ANYTHING, unknown: str = "default", limits: CallLimits = NO_LIMITS,
    ) -> None:  # fmt: skip
        """configured: what queue_route may choose by name. unknown: what becomes of a recipient that it sends to a zone
        that is not there, as of `plugins.unknown_zone`."""
        super().__init__(plugin, file, hook, limit_s)
        self.listeners = limits.listeners if hook.process == "receiver" else frozenset()
        self.only = limits.zones if hook.process in ("queue", "sender") else frozenset()
        """Zones of recipients for which it is called; empty: all."""
        self.opens = limits.open and not self.passes
        """Mail goes on when it fails, by the operator's word."""
        self.passes = self.passes or limits.open
        self._zoned = next((name for name in ("routing", "delivery", "bounce") if name in hook.arguments), "")
        self.function, self.tally = function, CallCounts()
        self._configured, self._unknown = configured, unknown
        self.checked = values.checked(hook.name, hook.arguments)
        taken = inspect.signature(function).parameters.values()
        whole = any(p.kind is p.VAR_KEYWORD for p in taken) or {p.name for p in taken} >= set(hook.arguments)
        self._all = None if whole else frozenset(p.name for p in taken)

    def concerns(self, arguments: dict[str, Any]) -> bool:
        """Whether it is called for this recipient. Ask only if `only` is set: mostly it is empty."""
        return arguments[self._zoned].zone in self.only

    def within(self, limit_s: float) -> Call:
        """The same with another limit; both count as one."""
        other = copy.copy(self)
        other.limit_s = limit_s
        return other

    def begin(self, arguments: dict[str, Any], subject: Subject = NOTHING) -> Any:
        """The plugin's coroutine (or async generator), given those of the arguments that it declares.

        Raises PluginFailed while it is skipped.
        """
        if self.out_until and self.suppressed_by():
            raise PluginFailed(self.plugin, self.hook.name, f"is skipped because it {self.why_out}")
        about = subject.about
        senders = self.hook.process == "sender"  # the queue holds what a sender dies of
        if about and not senders and UNDER_WAY.deadly(self.plugin, self.hook.name, about):
            problem = f"has ended its process twice at this ({about})"
            raise PluginFailed(self.plugin, self.hook.name, problem, named=True)
        if self._all is not None:
            arguments = {name: value for name, value in arguments.items() if name in self._all}
        return self.function(**arguments)

    async def run(self, arguments: dict[str, Any], round_: Round | None = None) -> None:
        """One whole call. round_: with those of other plugins."""
        started = perf_counter()
        if round_ is None:
            round_ = Round(self, arguments)
        fields, subject = round_.fields, round_.subject
        sections = values.sections(arguments) if self.opens else []
        try:
            self.expect_nothing(await limited(self.begin(arguments, subject), self, subject))
            self.expect_values(fields)
            fields.renew()
        except BaseException as raised:
            error = self._after(raised, fields)
            if not isinstance(error, self.hook.verdicts):
                values.put_sections_back(sections)
            self.fail(error, perf_counter() - started, _about(arguments), arguments)
        self.measure(perf_counter() - started)

    def run_now(self, arguments: dict[str, Any], round_: Round) -> None:
        """The same for hooks that must not wait; needs no event loop."""
        started, fields, subject = perf_counter(), round_.fields, round_.subject
        try:
            self.expect_nothing(_without_waiting(self.begin(arguments, subject), self, subject))
            self.expect_values(fields)
            fields.renew()
        except BaseException as raised:
            error = self._after(raised, fields)
            self.fail(error, perf_counter() - started)
        self.measure(perf_counter() - started)

    def _after(self, error: BaseException, fields: values.KnownFields) -> BaseException:
        """What ends a call: an error, or a verdict if what was set beside it can be used. All else is taken back."""
        if isinstance(error, self.hook.verdicts):
            try:
                self.expect_values(fields)
            except (Misbehaved, Hold) as other:
                error = other
        if not isinstance(error, self.hook.verdicts):
            fields.put_back()
        return error

    def fail(
        self, error: BaseException, seconds: float, about: str = "", arguments: dict[str, Any] | None = None
    ) -> NoReturn:  # fmt: skip
        """Ends a call that raised `error` after `seconds`. about: the message, for the log."""
        self.measure(seconds, cut_off=isinstance(error, CutOff))
        verdict = self.judge(error, about)
        if verdict is error:
            if arguments is not None and self.hook.process in ("receiver", "queue"):  # a sender's is in the journal
                said = str(verdict)
                what = subject_of(self.hook.name, arguments).about
                log.info("plugin %s, hook %s: %s: %s", self.plugin, self.hook.name, what or "a client", said)
            raise error
        raise verdict from error

    def measure(self, seconds: float, cut_off: bool = False) -> None:
        """Records one call. What blocked the process, and could not be cut off, `watchdog` names."""
        tally = self.tally
        tally.calls += 1
        tally.seconds += seconds
        if seconds > tally.worst_s:
            tally.worst_s = seconds
        tally.overruns += cut_off if self.hook.streams else seconds > self.limit_s

    def exceeds(self, problem: str, counted: bool = False) -> None:
        self.tally.overruns += not counted
        self._tell(logging.WARNING, problem, self._line(None), filtered=False)

    def cut_off(self) -> PluginFailed:
        """Cuts off a stream's plugin that has been waited for too long."""
        self.tally.overruns += 1
        return self.blame(CutOff(_too_long(self.limit_s)))

    def judge(self, error: BaseException, about: str = "") -> BaseException:
        """What to raise for what a plugin raised; counts it, and logs it if it is a failure."""
        if isinstance(error, self.hook.verdicts):
            if error.plugin not in ("", self.plugin):  # of a plugin before this one in a chain of rewriters
                return error
            if isinstance(error, Defer) and error.rest_s and self.hook.process != "sender":
                return self.blame(Misbehaved("asks for a rest of the site, which only hooks of a sender know"), about)
            self.tally.verdicts += 1
            error.plugin, error.hook = self.plugin, self.hook.name
            if self.hook.streams:
                log.info("plugin %s, hook %s: %s", self.plugin, self.hook.name, error)
            return error.with_traceback(None)  # a plugin may raise the same object repeatedly
        if isinstance(error, Escaping):
            return self.blame(error.error, about)
        if isinstance(error, (KeyboardInterrupt, GeneratorExit, PluginFailed)) or from_outside(error):
            return error
        return self.blame(error, about)

    def blame(self, error: BaseException, about: str = "") -> PluginFailed:
        """Counts and logs a failure."""
        self.tally.failures += 1
        problem = self._problem(error)
        goes_on = "; mail goes on without it" if self.opens and self.hook.name != "message_rewrite" else ""
        self._tell(logging.ERROR, problem + about + goes_on, self._line(error), error)
        return PluginFailed(self.plugin, self.hook.name, problem)

    def _problem(self, error: BaseException) -> str:
        if isinstance(error, Misbehaved):
            return str(error)
        if isinstance(error, Verdict):
            accepted = ", ".join(kind.__name__ for kind in self.hook.verdicts) or "no verdicts"
            return f"raised {type(error).__name__}, but this hook accepts {accepted}"
        return f"raised {type(error).__name__}: {_text(error)}"

    def _line(self, error: BaseException | None) -> int:
        if not inspect.isfunction(self.function):
            return line_in(self.file, error)
        code, found = self.function.__code__, line_in(self.file, error)
        if isinstance(error, Misbehaved) and not found and (field := _SET.match(str(error))) is not None:
            found = assignment.line(code.co_filename, code.co_firstlineno, field[1], field[2])
        return found or code.co_firstlineno

    def _tell(
        self, level: int, problem: str, line: int, error: BaseException | None = None, filtered: bool = True
    ) -> None:  # fmt: skip
        trace = error if log.isEnabledFor(logging.DEBUG) and not isinstance(error, Misbehaved) else None
        log.log(
            level,
            "plugin %s, hook %s, %s:%d: %s",
            self.plugin,
            self.hook.name,
            self.file,
            line,
            problem,
            exc_info=trace,
            extra=None if filtered else UNFILTERED,
        )

    def expect_nothing(self, value: Any) -> None:
        """Raises Misbehaved: every hook but message_rewrite acts by changing its arguments or raising."""
        if value is not None:
            remedy = "; change its arguments" if self.hook.arguments else ""
            raise Misbehaved(f"returned {type(value).__name__}, but this hook returns nothing{remedy}")

    def _expect_zone(self, notice: Notice) -> None:
        if notice.zone and notice.zone not in self._configured.zones:
            raise Misbehaved(f"set notice.zone to {notice.zone!r}, which the configuration does not have")

    def expect_values(self, fields: values.KnownFields) -> None:
        """Raises Misbehaved: what it has set an argument's field to cannot be used."""
        if sentence := fields.wrong():
            raise Misbehaved(sentence)
        if self._zoned == "routing":
            for field in fields.set_first(WITH_HOST):
                fields.first._by[field] = self.plugin
        if self._configured.zones and self.hook.name in ("queue_bounce", "queue_delayed"):
            self._expect_zone(fields.last)
        if self._configured is not ANYTHING and self.hook.name == "queue_route":
            routing = fields.first
            if sentence := values.not_configured(routing, self._configured):
                raise Misbehaved(sentence)
            zone, zones = fields.first_field, self._configured.zones
            if zones and routing.zone not in zones:
                sentence = f"set routing.zone to {routing.zone!r}, which the configuration does not have"
                if self._unknown == "refuse":
                    raise Misbehaved(f"{sentence}; add it there, or correct the plugin")
                routing.zone = zone
                if self._unknown == "hold":
                    raise Hold(sentence)
                self._tell(
                    logging.WARNING,
                    f"{sentence}; {routing.recipient} stays in {zone}",
                    self._line(Misbehaved(sentence)),
                )


class Round:
    """Calls of one hook in one plugin after another, with the same arguments. subject: what all of them are about; it
    is noted only where that is read. fields: what each may change."""

    __slots__ = ("fields", "subject")

    def __init__(self, call: Call, arguments: dict[str, Any]) -> None:
        """call: the first of them."""
        self.subject = NOTHING
        if UNDER_WAY.active:
            self.subject = subject_of(call.hook.name, arguments)
            UNDER_WAY.look()
        self.fields = values.KnownFields(call.checked, arguments)


def _about(arguments: dict[str, Any]) -> str:
    """The message and its recipients: what a hook that is only notified (a webhook, say) has missed."""
    for value in arguments.values():
        id = getattr(value, "id", "") if hasattr(type(value), "recipients") else ""
        if id:
            names = ", ".join(recipient.address for recipient in value.recipients[:3])
            more = f" and {len(value.recipients) - 3} more" if len(value.recipients) > 3 else ""
            return f" (message {id}{' to ' if names else ''}{names}{more})"
    return ""


def subject_of(hook: str, arguments: dict[str, Any]) -> Subject:
    """What a call is about: the message, else the transaction, else the client. It is the same when they come again."""
    if (delivery := arguments.get("delivery")) is not None:
        people = delivery.recipients
        address = people[0].address if len(people) == 1 else ""
        return Subject(f"message {delivery.id}{' to ' + address if address else ''}", delivery.lease, address)
    if (bounce := arguments.get("bounce")) is not None:
        return Subject(f"message {bounce.id}")
    session = arguments.get("session")
    client = f" from {session.client}" if session is not None else ""
    if (envelope := arguments.get("envelope")) is not None:
        routing, people = arguments.get("routing"), envelope.recipients
        to = routing.recipient if routing is not None else people[0].address if people else ""
        return Subject(f"mail of <{envelope.sender}> to <{to}>")
    if (address := arguments.get("address")) is not None:
        return Subject(f"<{address.address}>{client}")
    if (auth := arguments.get("auth")) is not None:
        return Subject(f"the login of {auth.username!r}{client}")
    if session is not None:
        return Subject(f"a client{client}")
    if (name := arguments.get("server_name")) is not None:
        return Subject(f"TLS for {name!r}")
    return NOTHING


class Escaping(Exception):
    """A plugin's own code has raised what would end the whole process (KeyboardInterrupt), or what stands for a call
    that nobody waits for any more (GeneratorExit): a failure like another."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _step(resume: Callable[[Any], Any], value: Any) -> Any:
    """Runs a plugin's code until it waits, or ends."""
    try:
        return resume(value)
    except (KeyboardInterrupt, GeneratorExit) as error:
        raise Escaping(error) from None


class _Leaving:
    """A plugin was told to end: `due` says that it has had its time for that, and its task is cancelled once more."""

    __slots__ = ("_task", "_timer", "due")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task, self.due = task, False
        self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._fall_due)

    def _fall_due(self) -> None:
        self.due = True
        self._task.cancel()

    def taken_back(self) -> bool:
        """Whether the task is not cancelled any more: a time limit within it was over, or a group of tasks; it may go
        on."""
        if self.due or self._task.cancelling():
            return False
        self.end()
        return True

    def leave(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """It is not resumed any more."""
        _left.append(coroutine)
        self._task.uncancel()  # this cancellation was ours

    def end(self) -> None:
        self._timer.cancel()


@types.coroutine
def watched(
    coroutine: Coroutine[Any, Any, Any], call: Call, subject: Subject, leaves: bool = False
) -> Generator[Any, Any, Any]:
    """Awaits what a plugin does, however long that takes. leaves: cancelled, it has GRACE_S to end, and is left behind
    then."""
    before = WATCH.enter(call, subject)
    try:
        waited_for = _step(coroutine.send, None)
    except StopIteration as end:
        return end.value
    finally:
        WATCH.leave(before)
    return (yield from _resuming(coroutine, waited_for, call, subject, lambda: leaves))


async def limited(coroutine: Coroutine[Any, Any, Any], call: Call, subject: Subject) -> Any:
    """Awaits a call's coroutine, which may wait for its limit at most. Raises CutOff when it waits for longer, whatever
    it makes of being cut off."""
    limit_s = call.limit_s
    if not isinstance(coroutine, types.CoroutineType):
        raise Misbehaved(f"returned {type(coroutine).__name__} instead of a coroutine; define the hook with async def")
    before = WATCH.enter(call, subject)
    try:
        waited_for = coroutine.send(None)  # as `_step`, which most calls end in
    except StopIteration as end:
        return end.value
    except (KeyboardInterrupt, GeneratorExit) as error:
        raise Escaping(error) from None
    finally:
        WATCH.leave(before)
    timer, task = asyncio.timeout(limit_s), asyncio.current_task()
    cancelling = task.cancelling() if task is not None else 0
    try:
        async with timer:
            value = await _resumed(coroutine, waited_for, call, subject, timer.expired)
    except TimeoutError:
        if timer.expired():
            raise CutOff(_too_long(limit_s)) from None
        raise
    if task is not None and task.cancelling() > cancelling:  # it was meant for all of the task
        raise asyncio.CancelledError
    if timer.expired():
        raise CutOff(_too_long(limit_s))
    return value


def _resuming(
    coroutine: Coroutine[Any, Any, Any], waited_for: Any, call: Call, subject: Subject, leaves: Callable[[], bool]
) -> Generator[Any, Any, Any]:
    """Continues a coroutine that was started by hand and waits for `waited_for`.

    leaves: whether a cancellation is ours; one of a time limit that the plugin has itself is its own matter, however
    long it takes to clean up. Where that is not known, it was the plugin's if the plugin has taken it back.
    """
    leaving: _Leaving | None = None
    try:
        while True:
            if leaving is not None and leaving.taken_back():
                leaving = None
            try:
                sent = yield waited_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                if leaves() and from_outside(error):
                    if leaving is not None and leaving.due:
                        leaving.leave(coroutine)
                        raise
                    if leaving is None and (task := asyncio.current_task()) is not None:
                        leaving = _Leaving(task)
                before = WATCH.enter(call, subject)
                try:
                    waited_for = _step(coroutine.throw, error)
                finally:
                    WATCH.leave(before)
            else:
                before = WATCH.enter(call, subject)
                try:
                    waited_for = _step(coroutine.send, sent)
                finally:
                    WATCH.leave(before)
    except StopIteration as end:
        return end.value
    finally:
        if leaving is not None:
            leaving.end()


_resumed = types.coroutine(_resuming)


def _too_long(limit_s: float) -> str:
    return f"took longer than {limit_s:g} s and was cut off"


def _without_waiting(coroutine: Coroutine[Any, Any, Any], call: Call, subject: Subject) -> Any:
    if not inspect.iscoroutine(coroutine):
        raise Misbehaved(f"returned {type(coroutine).__name__} instead of a coroutine; define the hook with async def")
    before = WATCH.enter(call, subject)
    try:
        _step(coroutine.send, None)
    except StopIteration as end:
        return end.value
    finally:
        WATCH.leave(before)
    coroutine.close()
    raise Misbehaved(
        "awaits something, but this hook must return at once; do the work elsewhere and only look up its result here"
    )


def line_in(file: str, error: BaseException | None) -> int:
    """The last line of `file` that the error's traceback passed through; 0 if none."""
    line, step = 0, error.__traceback__ if error is not None else None
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _text(error: BaseException) -> str:
    try:
        return str(error)[:500].replace("\n", " ") + there_is(error)
    except Exception as broken:  # __str__ is the plugin's code too
        return f"(its text cannot be read: {type(broken).__name__})"
