"""Other MTAs that receive: Debian's Postfix as installed, and Exim, OpenSMTPD and sendmail, which cannot be beside it.

`scripts/prepare --dev` unpacks those three; each runs in a root of its own (chroot) with what it needs and the users
it insists on, so that nothing of the system is changed. All take mail for their domain, NAME.test, refuse recipients
called gone.* for good and later.* for now, take no more than RECIPIENTS_MAX for one message, offer STARTTLS with a
certificate of their own making, and keep each recipient's copy in a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from benchmark import roots
from benchmark.contenders import Postfix as Bench
from benchmark.contenders import banner
from ports import free_port

from zonemta_py.sink.server import self_made

SIZE_MAX, RECIPIENTS_MAX = 1_000_000, 12
PATIENCE_S = 60.0


class Receiver(ABC):
    """name: as in its domain. folder: everything it writes is below. connected: in its log, once a connection."""

    name: str
    offers: frozenset[str]
    """Keywords in EHLO on which our dialogue depends, besides those that all offer."""
    connected: str
    encrypts = True
    """Whether the STARTTLS that it offers works."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mail, self.log_file = folder, folder / "mail", folder / "log"
        self.port = free_port()
        folder.mkdir()
        folder.chmod(0o755)  # most of its processes are not root's

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why it cannot run here; "" where it can."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes everything below `folder`."""

    @abstractmethod
    def command(self) -> list[str]:
        """What runs it in the foreground."""

    @property
    def domain(self) -> str:
        return f"{self.name}.test"

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    def start(self) -> None:
        self.mail.mkdir()
        shutil.chown(self.mail, "nobody", "nogroup")
        self.certificate.write_bytes(self_made(self.domain))
        self.certificate.chmod(0o600)
        self.prepare()
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def wait(self) -> None:
        """Until it greets, and has that in its log."""
        end = time.monotonic() + PATIENCE_S
        for ready in (lambda: banner(self.port), self.connections):
            while not ready():
                assert self._process.poll() is None, f"{self.name} has ended: {self.log()}"
                assert time.monotonic() < end, f"{self.name} does not greet: {self.log()}"
                time.sleep(0.05)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(60)

    def log(self) -> str:
        files = [path for path in (self.folder / "output", self.log_file) if path.exists()]
        return "\n".join(path.read_text(errors="replace") for path in files)

    def connections(self) -> int:
        """How many it has taken."""
        return len(re.findall(self.connected, self.log()))

    def copies(self) -> list[bytes]:
        """Every copy that has arrived, whole; lines end with LF."""
        return [path.read_bytes() for path in self.mail.glob("**/new/*")]


class Postfix(Receiver):
    name = "postfix"
    offers = frozenset({"pipelining", "smtputf8", "chunking", "dsn", "enhancedstatuscodes"})
    connected = r"smtpd\[\d+\]: connect from"
    missing = staticmethod(Bench.missing)

    def prepare(self) -> None:
        self._postfix = _Postfix(self)
        self._postfix.wipe()

    def command(self) -> list[str]:
        return self._postfix.command()

    def end(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # it has not got that far
            master = int((self.folder / "own" / "spool" / "pid" / "master.pid").read_text())
            os.kill(master, signal.SIGTERM)  # it has a process group of its own, and outlives the script
        super().end()


class _Postfix(Bench):
    """The one that is measured, as the end of the way."""

    def __init__(self, receiver: Postfix) -> None:
        self._receiver = receiver
        super().__init__(receiver.folder / "own", 9)
        receiver.port, receiver.log_file = self.port, self.folder / "maillog"

    def _main(self) -> str:
        status = self._receiver.mail.stat()
        return super()._main() + (
            f"virtual_mailbox_domains = {self._receiver.domain}\nvirtual_mailbox_base = {self._receiver.mail}\n"
            "virtual_mailbox_maps = static:inbox/\nvirtual_minimum_uid = 1\nvirtual_mailbox_limit = 0\n"
            f"virtual_uid_maps = static:{status.st_uid}\n"
            f"virtual_gid_maps = static:{status.st_gid}\nmessage_size_limit = {SIZE_MAX}\n"
            f"smtpd_tls_chain_files = {self._receiver.certificate}\nsmtpd_tls_security_level = may\n"
            f"smtpd_tls_received_header = yes\nsmtpd_recipient_limit = {RECIPIENTS_MAX}\n"
            "smtpd_recipient_restrictions = check_recipient_access regexp:{{/^gone/ 550 5.1.1 nobody here},"
            " {/^later/ 450 4.2.1 not now}}, permit\n"
        )


class Unpacked(Receiver):
    """One of those that `scripts/prepare` unpacks. `folder` is its root; paths in its configuration begin there."""

    programs: Sequence[str]
    """Paths of what it runs: its own as in the package, others as on this machine."""

    @classmethod
    def missing(cls) -> str:
        return roots.missing(cls.name)

    def prepare(self) -> None:
        roots.make(self.folder, self.name, self.programs, self.domain)
        self.configure()

    @abstractmethod
    def configure(self) -> None:
        """Writes its configuration, and makes the folders it expects."""

    def command(self) -> list[str]:
        return ["chroot", str(self.folder), self.programs[0], *self.arguments()]

    @abstractmethod
    def arguments(self) -> list[str]:
        """Those of its first program, which stays in the foreground."""

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        roots.write(self.folder, name, text, mode)

    def _filled(self, configuration: str) -> str:
        return configuration.format(name=self.domain, port=self.port, size=SIZE_MAX, recipients=RECIPIENTS_MAX)


class Exim(Unpacked):
    name = "exim"
    offers = frozenset({"pipelining", "smtputf8", "chunking", "dsn", "prdr"})
    connected = r"SMTP connection from .* \(TCP/IP connection count"
    programs = ("/usr/sbin/exim4",)

    def configure(self) -> None:
        self.log_file = self.folder / "log" / "mainlog"
        for name in ("spool", "log"):
            (self.folder / name).mkdir()
            shutil.chown(self.folder / name, roots.USERS["Debian-exim"])
        self.certificate.chmod(0o644)  # read by processes that are no longer root's
        self._write("var/lib/exim4/config.autogenerated", self._filled(_EXIM))

    def arguments(self) -> list[str]:
        return ["-bdf"]


_EXIM = """\
primary_hostname = {name}
spool_directory = /spool
log_file_path = /log/%slog
log_selector = +smtp_connection
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
keep_environment =
host_lookup =
rfc1413_query_timeout = 0s
message_size_limit = {size}
recipients_max = {recipients}
tls_advertise_hosts = *
tls_certificate = /certificate.pem
smtputf8_advertise_hosts = *
dsn_advertise_hosts = *
prdr_enable
smtp_accept_max = 0
smtp_accept_queue_per_connection = 0
acl_smtp_rcpt = rcpt
begin acl
rcpt:
  deny local_parts = ^gone
    message = 550 5.1.1 nobody here
  defer local_parts = ^later
    message = 450 4.2.1 not now
  accept
begin routers
inbox:
  driver = accept
  transport = inbox
begin transports
inbox:
  driver = appendfile
  directory = /mail
  maildir_format
  user = nobody
  group = nogroup
"""


class OpenSmtpd(Unpacked):
    name = "opensmtpd"
    offers = frozenset({"dsn", "enhancedstatuscodes"})
    connected = r"smtp connected"
    encrypts = False
    """Debian 12's has lost its private keys to OpenSSL 3: every handshake fails, in production too."""
    programs = ("/usr/sbin/smtpd", "/usr/libexec/opensmtpd/mail.maildir", "/bin/sh")

    def configure(self) -> None:
        (self.folder / "var" / "lib" / "opensmtpd" / "empty").mkdir(parents=True)
        self._write("etc/smtpd.conf", self._filled(_OPENSMTPD))

    def arguments(self) -> list[str]:
        return ["-d", "-f", "/etc/smtpd.conf"]


_OPENSMTPD = """\
pki mine cert "/certificate.pem"
pki mine key "/certificate.pem"
smtp max-message-size {size}
smtp limit max-rcpt {recipients}
filter gone phase rcpt-to match rcpt-to regex {{ "^gone" }} reject "550 5.1.1 nobody here"
filter later phase rcpt-to match rcpt-to regex {{ "^later" }} reject "450 4.2.1 not now"
filter refusals chain {{ gone, later }}
listen on 127.0.0.1 port {port} tls pki mine hostname {name} filter refusals
table everybody {{ "@" = "nobody" }}
action "inbox" maildir "/mail" user nobody virtual <everybody>
match from any for domain "{name}" action "inbox"
"""


class Sendmail(Unpacked):
    name = "sendmail"
    offers = frozenset({"pipelining", "dsn", "enhancedstatuscodes"})
    connected = r">>> 220 \S+ ESMTP"
    programs = ("/usr/libexec/sendmail/sendmail", "/bin/sh", "/bin/cat", "/bin/mv")

    def configure(self) -> None:
        (self.folder / "spool").mkdir(mode=0o700)
        for name in ("tmp", "new"):
            (self.mail / name).mkdir()
            shutil.chown(self.mail / name, "nobody", "nogroup")
        self._write("bin/store", "#!/bin/sh\ncat >/mail/tmp/$$ && mv /mail/tmp/$$ /mail/new/$$\n", 0o755)
        self._write("etc/sendmail.cf", self._filled(_SENDMAIL))

    def arguments(self) -> list[str]:
        return ["-bD", "-C/etc/sendmail.cf", "-X/log"]


_SENDMAIL = """\
V10/Berkeley
Dj{name}
DnMAILER-DAEMON
O DaemonPortOptions=Name=MTA, Addr=127.0.0.1, Port={port}
O QueueDirectory=/spool
O PidFile=/run/sendmail.pid
O DefaultUser=nobody:nogroup
O MaxMessageSize={size}
O MaxRecipientsPerMessage={recipients}
O EightBitMode=pass8
O OperatorChars=.:%@!^/[]+
O LogLevel=0
O QueueLA=10000
O RefuseLA=10000
O Timeout.ident=0s
O ServerCertFile=/certificate.pem
O ServerKeyFile=/certificate.pem
O CACertFile=/certificate.pem
O CACertPath=/etc
O DontProbeInterfaces=True
HReceived: from $s by $j $?{{tls_version}}(version=${{tls_version}})$.; $b
Troot
Scheck_rcpt
R$* gone . $*	$#error $@ 5.1.1 $: "550 nobody here"
R$* later . $*	$#error $@ 4.2.1 $: "450 not now"
S3
R<>	$@ <@>
R$* < $+ > $*	$2
R$+ @ $+	$@ $1 <@ $2>
S4
R<@>	$@
R$+ <@ $+>	$1 @ $2
S0
R$+ <@ $+>	$#local $@ $2 $: $1 @ $2
R$+	$#local $: $1
Mlocal, P=/bin/store, F=lsn8, E=\\n, T=DNS/RFC822/X-Unix, A=store $u
Mprog, P=/bin/sh, F=ls, T=X-Unix/X-Unix/X-Unix, A=sh -c $u
"""

RECEIVERS: tuple[type[Receiver], ...] = (Postfix, Exim, OpenSmtpd, Sendmail)
