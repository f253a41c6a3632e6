"""The beginning of a plugin: a file with the hooks that are wanted, and a test of it (`zonemta plugin new`)."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable

import zonemta_py.plugin as offered
from zonemta_py.plugin import spec
from zonemta_py.plugin.catalogue import hook_says

NAME = re.compile(r"[a-z][a-z0-9_]*")
_TYPE = re.compile(r"\b[A-Z]\w+")
_LINE = 88
_EXAMPLES = {
    "Address": 'Address("anna@example.com")', "Attempts": "Attempts(0, 0, 0)", "Auth": 'Auth("anna", "secret")',
    "Bounce": 'Bounce("1", "shop@example.com", [Recipient("anna@example.com")], Reply(550, "5.1.1", "No such user"))',
    "ConnectOptions": 'ConnectOptions("mx.example.com")', "Envelope": "envelope()",
    "Headers": 'Headers.parse(b"Subject: hello\\r\\n")', "Info": "Info()",
    "PluginApi": 'PluginApi("test")', "Process": 'Process("receiver", 1)',
    "Deferral": 'Deferral(Reply(452, "4.2.2", "Mailbox full"), 1, 0, 0)',
    "Ending": 'Ending("quit", None, 1, 1, 0, 0.5)',
    "Refusal": 'Refusal("RCPT", Reply(550, "5.1.1", "No such user"), "anna@example.com")',
    "NextTry": 'NextTry(300, Reply(452, "4.2.2", "Mailbox full"), 1, 0)', "StoredMessage": 'StoredMessage("1")',
    "Routing": 'Routing("anna@example.com", "default")', "Server": "Server()", "Session": "session()",
    "Notice": "Notice()", "Sni": "Sni()",
    "Delivery": "delivery()",
    "str": '"example.com"', "dict[str, Any]": '{"level": "info", "logger": "mail", "message": "hello"}',
}  # fmt: skip
"""An argument of each kind that a test can make without a server."""
_BUILDERS = {"envelope", "delivery", "session"}
"""Of `zonemta_py.plugin.testing`."""


def plugin(name: str, hooks: Iterable[str]) -> str:
    """The text of NAME.py."""
    functions = [inspect.signature(getattr(spec, hook)) for hook in hooks]
    types = {word for one in functions for word in _TYPE.findall(str(one))}
    ours = {"PluginApi"} | types & set(offered.__all__)
    lines = [f'"""{name}: say here what it does, and for whom."""', ""]
    if "AsyncIterator" in types:
        lines.append("from collections.abc import AsyncIterator")
    if "Any" in types:
        lines.append("from typing import Any")
    if lines[-1]:
        lines.append("")
    lines += ["from pydantic import BaseModel", _import(ours), "", ""]
    lines += [
        "class Options(BaseModel):", f'    """What [plugins.options.{name}] may say."""', "",
        "    enabled: bool = True",
        "", "", "_api: PluginApi", "_options: Options", "", "", "def setup(api: PluginApi, options: Options) -> None:",
        '    """Called once, before the processes are started."""', "    global _api, _options",
        "    _api, _options = api, options",
    ]  # fmt: skip
    for hook, signature in zip(hooks, functions, strict=True):
        said = hook_says(hook)
        lines += ["", "", f"async def {hook}{_plain(signature)}:", *_docstring(said), "    if not _options.enabled:"]
        last = ["    return None"] if signature.return_annotation != "None" else []
        lines += ["        return None" if last else "        return", f'    _api.count("{hook}")', *last]
    return "\n".join(lines) + "\n"


def test(name: str, hooks: Iterable[str]) -> str:
    """The text of test_NAME.py."""
    calls, ours, builders = list[str](), set[str](), {"load", "running"}
    for hook in hooks:
        parameters = inspect.signature(getattr(spec, hook)).parameters.values()
        kinds = [(one.name, str(one.annotation)) for one in parameters]
        if not all(kind in _EXAMPLES for _, kind in kinds):
            continue
        made = [f"{argument}={_EXAMPLES[kind]}" for argument, kind in kinds]
        ours |= {word for one in made for word in _TYPE.findall(one.split('"')[0] + one) if word in offered.__all__}
        builders |= {kind.lower() for _, kind in kinds} & _BUILDERS
        arguments = "".join(f"        {one},\n" for one in made)
        call = "host.call_now" if not spec.HOOKS[hook].waits else "await host.call"
        calls.append(
            f"@pytest.mark.asyncio\nasync def test_{hook}_is_counted() -> None:\n    host = load(PLUGIN)\n"
            f'    {call}(\n        "{hook}",\n{arguments}    )\n'
            f'    assert [row["value"] for row in host.statistics() if row.get("counter") == "{hook}"] == [1]\n'
        )
    mail = (
        "@pytest.mark.asyncio\nasync def test_mail_arrives() -> None:\n"
        '    """In a real server, with a sink as the destination."""\n'
        "    async with running(PLUGIN) as mta:\n"
        '        assert (await mta.send("anna@example.com")).code == 250\n'
        '        assert (await mta.arrived("anna@example.com")).sender == "shop@example.com"\n'
    )
    needed = f"import pytest\n{_import(ours)}\n" if ours else "import pytest\n"
    first = f'PLUGIN = Path(__file__).with_name("{name}.py")\n'
    loads = (
        'def test_it_loads() -> None:\n    """Hooks, arguments and options are checked."""\n    assert load(PLUGIN)\n'
    )
    head = f'"""{name}, called as the server does it, and in a real one."""\n\nfrom pathlib import Path\n\n{needed}'
    return "\n\n".join([f"{head}{_import(builders, 'zonemta_py.plugin.testing')}\n\n{first}", loads, *calls, mail])


def _import(names: Iterable[str], module: str = "zonemta_py.plugin") -> str:
    """As formatters write it."""
    names = sorted(names, key=str.lower)
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _LINE:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


def _plain(signature: inspect.Signature) -> str:
    """As it is written: its annotations are texts."""
    parameters = ", ".join(f"{one.name}: {one.annotation}" for one in signature.parameters.values())
    return f"({parameters}) -> {signature.return_annotation}"


def _docstring(sentence: str) -> list[str]:
    lines = textwrap.wrap(f'"""{sentence}."""', _LINE - 4)
    return [f"    {line}" for line in lines]
