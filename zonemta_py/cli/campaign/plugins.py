"""Which hooks of the enabled plugins merged mail meets, and what they make of a template (`campaign check`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Telling
from zonemta_py.config import Config
from zonemta_py.mail.envelope import Envelope
from zonemta_py.merge.source import TemplateSource
from zonemta_py.plugin import templates
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.plugin.verdicts import PluginFailed

_WHY = "not called for merged mail, which comes by HTTP in batches (api_mail is, for each of them)"


def look(settings: Config, template: Path, source: TemplateSource, tell: Telling) -> None:
    """Says what does not apply, and runs the content hooks on the template. Raises CommandError for what a plugin
    refuses, or spoils."""
    host = Host.load(settings.plugins, Configured.of(settings)).at("http")
    never = _never(host)
    tell(plugins_not_called=never)
    for plugin, hooks in never.items():
        verb = "is" if len(hooks) == 1 else "are"
        tell(f"plugin {plugin}: {', '.join(hooks)} {verb} {_WHY}")
    if not templates.looked_at(host):
        return
    ran = {hook: [call.plugin for call in host.calls(hook)] for hook in templates.CONTENT if host.listens(hook)}
    tell(plugins_called=ran)
    for hook, names in ran.items():
        tell(f"{hook}: called once for the template, of {', '.join(names)}")
    given = source.pack()
    try:
        made = asyncio.run(templates.shown(host, _envelope(source), None, given))
    except templates.TemplateStopped as stopped:
        if isinstance(stopped.verdict, PluginFailed):
            tell(f"it cannot be said here what plugins make of the template: {stopped}", plugins_failed=str(stopped))
            return
        raise CommandError(Exit.DATA, f"{template}: {stopped}") from None
    changed = _changed(source, TemplateSource.unpack(made))
    if made != given:
        _check(made)
    tell(f"plugins change {', '.join(changed)} of the template" if changed else "", plugins_change=changed)


def _never(host: Host) -> dict[str, list[str]]:
    """Plugin → its hooks that merged mail does not meet."""
    found: dict[str, list[str]] = {}
    for hook in HOOKS:
        for call in host.calls(hook) if hook in templates.NEVER else ():
            found.setdefault(call.plugin, []).append(hook)
    return found


def _envelope(source: TemplateSource) -> Envelope:
    address = source.sender.content.rpartition("<")[2].rstrip("> \n").strip()
    return Envelope("" if "{" in address else address, [], campaign="check")


def _changed(before: TemplateSource, after: TemplateSource) -> list[str]:
    names = ("text", "html", "images", "attachments")
    return [name for name in names if getattr(before, name) != getattr(after, name)]


def _check(made: bytes) -> None:
    """As the server does. Raises CommandError."""
    from zonemta_py.merge.compile import compile
    from zonemta_py.merge.html.markup import protect
    from zonemta_py.merge.problems import TemplateRefused

    source = TemplateSource.unpack(made)
    try:
        if source.html is not None:
            protect(source.html)
        compile(source)
    except TemplateRefused as refused:
        wrong = [f"as plugins leave it: {problem}" for problem in refused.problems]
        raise CommandError(Exit.DATA, "\n".join(wrong)) from None
