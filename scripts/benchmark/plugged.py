"""What plugins cost: this MTA with N plugins on all hooks, or with rspamd in the way, beside Haraka with as many.

A plugin is on each hook that mail meets, and does nothing there but read: `plugins=N` and `haraka=N`, `plugins-rspamd`
and `haraka-rspamd`. Haraka's are on all hooks that its mail meets, too; it relays all to one address, with as many
processes as there are processors. Haraka comes from npm (npm install Haraka haraka-plugin-rspamd; HARAKA: its folder
of node_modules), rspamd from Debian; where one is missing, that is said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from ports import free_port

from benchmark.contenders import BenchError, Contender, Zonemta
from benchmark.processes import Group
from zonemta_py.plugin.spec import HOOKS

RSPAMD = "rspamd"
_WAIT_S = 30.0
_NOT_MAIL = ("start", "stop", "smtp_init", "smtp_sni", "log_entry", "event", "api_mail", "smtp_auth", "queue_bounce")
"""Hooks that are not met by text mail that is delivered at once, and those of other things."""
_NOT_MAIL += ("queue_delayed", "queue_retry", "queue_deferred", "sender_tls_error", "sender_response_error")
_HARAKA_HOOKS = (
    "lookup_rdns", "connect", "helo", "ehlo", "mail", "rcpt", "rcpt_ok", "data", "data_post", "max_data_exceeded",
    "reset_transaction", "queue_ok", "pre_send_trans_email", "delivered", "quit", "disconnect",
)  # fmt: skip
_RSPAMD = {
    "worker-normal.inc": 'bind_socket = "127.0.0.1:{port}"; count = 1;',
    "worker-controller.inc": "enabled = false; count = 0;",
    "worker-proxy.inc": "enabled = false; count = 0;",
    "options.inc": 'filters = "regexp"; dns {{ nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }} '
    'task_timeout = 3s; control_socket = "{folder}/control mode=0600";',
    "logging.inc": 'type = "console"; level = "error";',
    "actions.conf": "reject = 1000; add_header = 900; rewrite_subject = null; greylist = null;",
}


def is_one(name: str) -> bool:
    """Whether a contender's name is one of these."""
    kind, _, much = name.partition("=")
    return name in ("plugins-rspamd", "haraka-rspamd") or (kind in ("plugins", "haraka") and much.isdecimal())


def missing(name: str) -> str:
    """Why it cannot be measured here; "" where it can."""
    if name.endswith(RSPAMD) and shutil.which(RSPAMD) is None:
        return "rspamd is not installed (apt-get install rspamd)"
    if name.startswith("haraka"):
        if shutil.which("node") is None:
            return "Node is not installed"
        if not (_modules() / "Haraka" / "bin" / "haraka").exists():
            return "Haraka is not there (npm install Haraka haraka-plugin-rspamd, and HARAKA=…/node_modules)"
    return ""


def make(name: str, folder: Path, sink_port: int) -> Contender:
    kind, _, much = name.partition("=")
    count = int(much) if much else 0
    made = Plugged if kind.startswith("plugins") else Haraka
    return made(name, folder, sink_port, count, name.endswith(RSPAMD))


def _modules() -> Path:
    return Path(os.environ.get("HARAKA", "node_modules")).absolute()


class Rspamd:
    """One, with Debian's rules and without DNS."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises BenchError."""
        folder = self.folder
        for name in ("db", "run", "log", "local.d", "override.d"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, text in _RSPAMD.items():
            (folder / "override.d" / name).write_text(text.format(port=self.port, folder=folder))
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        command = [RSPAMD, "-f", "-i", "-u", "nobody", "-g", "nogroup", "-c", "/etc/rspamd/rspamd.conf"]
        command += [
            f"--var={name}={folder / at}" for name, at in (("DBDIR", "db"), ("RUNDIR", "run"), ("LOGDIR", "log"))
        ]
        with (folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [*command, f"--var=LOCAL_CONFDIR={folder}"], stdout=output, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + _WAIT_S
        while time.monotonic() < end and self._process.poll() is None:
            if (
                subprocess.run(["curl", "-fs", f"http://127.0.0.1:{self.port}/ping"], capture_output=True).returncode
                == 0
            ):
                return
            time.sleep(0.1)
        raise BenchError(f"rspamd did not start: {(folder / 'output').read_text(errors='replace')[-300:]}")

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


class _Judged(Contender):
    """With rspamd beside it, which is not counted with it."""

    rspamd: Rspamd | None = None

    def start(self, group: Group, prefix: Any = ()) -> float:
        if self.rspamd is not None:
            self.rspamd.start()
        return super().start(group, prefix)

    def ended(self) -> None:
        if self.rspamd is not None:
            self.rspamd.end()


def plugin_text() -> str:
    """A plugin on all hooks that mail meets, which reads what there is to read."""
    parts = ['"""On all hooks, and does nothing."""', "from zonemta_py.plugin import *", "seen = 0"]
    for name, hook in HOOKS.items():
        if name in _NOT_MAIL:
            continue
        head = f"async def {name}({', '.join(hook.arguments)}):\n    global seen\n"
        if name == "message_rewrite":
            body = "    return None\n"
        elif hook.streams:
            body = "    async for block in stream:\n        seen += len(block)\n"
        else:
            body = "    seen += 1\n"
        parts.append(head + body)
    return "\n\n".join(parts)


class Plugged(_Judged, Zonemta):
    """This MTA with so many plugins, or with rspamd."""

    def __init__(self, name: str, folder: Path, sink_port: int, count: int, judged: bool) -> None:
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        enabled = []
        for number in range(count):
            enabled.append(str(folder / f"plugin{number}.py"))
            Path(enabled[-1]).write_text(plugin_text())
        sections: dict[str, Any] = {"plugins": {"enabled": enabled}} if enabled else {}
        if judged:
            self.rspamd = Rspamd(folder / RSPAMD)
            sections = {
                "plugins": {"enabled": [RSPAMD], "timeout_s": 30},
                "plugins.options.rspamd": {"url": f"http://127.0.0.1:{self.rspamd.port}", "timeout_s": 20},
            }
        super().__init__(folder, sink_port, None, sections)


_RELAY = """\
exports.hook_connect = (next, connection) => { connection.relaying = true; next(); };
exports.hook_rcpt = (next) => next(OK);
exports.hook_get_mx = (next) => next(OK, { priority: 0, exchange: '127.0.0.1', port: %d });
"""


class Haraka(_Judged):
    """As its operator would set it up as a relay: a process for each processor, no limits, one destination."""

    def __init__(self, name: str, folder: Path, sink_port: int, count: int, judged: bool) -> None:
        super().__init__(folder, sink_port)
        self.name = name
        if judged:
            self.rspamd = Rspamd(folder / RSPAMD)
        shutil.copytree(_modules() / "Haraka" / "config", folder / "config")
        self._write("plugins/bench_relay.js", _RELAY % sink_port)
        names = [f"plugin{number}" for number in range(count)]
        text = "let seen = 0;\n" + "".join(
            f"exports.hook_{hook} = (next) => {{ seen += 1; next(); }};\n" for hook in _HARAKA_HOOKS
        )
        for one in names:
            self._write(f"plugins/{one}.js", text)
        used = [*names, *(["haraka-plugin-rspamd"] if judged else []), "bench_relay"]
        self._write("config/plugins", "\n".join(used) + "\n")
        self._write("config/smtp.ini", f"listen=127.0.0.1:{self.port}\nnodes=cpus\n")
        self._write("config/outbound.ini", "concurrency_max=100\nenable_tls=false\n")
        self._write("config/me", "haraka.bench\n")
        self._write("config/log.ini", "level=error\n")
        self._write("config/loglevel", "ERROR\n")
        self._write("config/host_list", "\n")  # nothing is delivered here
        if self.rspamd is not None:
            checks = "[check]\nauthenticated=true\nprivate_ip=true\nlocal_ip=true\nrelay=true\n"
            self._write("config/rspamd.ini", f"host=127.0.0.1\nport={self.rspamd.port}\nadd_headers=always\n{checks}")
        self._write("package.json", "{}\n")
        (folder / "node_modules").symlink_to(_modules())

    def _write(self, place: str, text: str) -> None:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def wipe(self) -> None:
        shutil.rmtree(self.folder / "queue", ignore_errors=True)
        (self.folder / "queue").mkdir()

    def command(self) -> list[str]:
        return ["node", str(_modules() / "Haraka" / "bin" / "haraka"), "-c", str(self.folder)]

    def version(self) -> str:
        import json

        return str(json.loads((_modules() / "Haraka" / "package.json").read_text())["version"])
