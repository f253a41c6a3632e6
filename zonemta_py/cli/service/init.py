"""`zonemta init`: a first configuration from a few answers, its keys, and the DNS records that go with it.

Nothing that exists is overwritten, and nothing is started. What is written is a whole configuration that
`zonemta config check` finds good; all it does not say is a default.
"""

from __future__ import annotations

import ipaddress
import json
import os
import pwd
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated, NamedTuple, TypeVar

import typer

from zonemta_py.cli.config import dkim, dkim_rotation
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.config import DkimKey, load
from zonemta_py.config.values import ip_address
from zonemta_py.config.zone import host_of
from zonemta_py.disk.files import sync
from zonemta_py.mail.addresses.domain import canonical

SELECTOR, NEWSLETTER = "zonemta", "newsletter"
_PORT_MAX = 65_535
T = TypeVar("T")


class Answers(NamedTuple):
    """addresses: source addresses, none: the system's choice. smarthost: and its port, "": by MX."""

    domain: str
    hostname: str
    addresses: list[str]
    smarthost: tuple[str, int]
    listen: tuple[str, int]
    user: str
    newsletter: bool = False


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the configuration and keys.")] = Path(
        "/etc/zonemta"
    ),
    domain: Annotated[str | None, typer.Option("--domain", help="Domain that mail is sent from.")] = None,
    hostname: Annotated[
        str | None, typer.Option("--hostname", help="Full name of this machine; default: mail.DOMAIN.")
    ] = None,
    address: Annotated[
        list[str] | None, typer.Option("--address", metavar="IP", help="Address to send from; may be repeated.")
    ] = None,
    smarthost: Annotated[
        str | None, typer.Option("--smarthost", metavar="HOST[:PORT]", help="Smart host that relays all mail.")
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="IP:PORT", help="Where clients submit mail.")
    ] = "127.0.0.1:2525",
    queue: Annotated[Path, typer.Option("--queue", metavar="DIR", help="Queue folder.")] = Path("/var/lib/zonemta"),
    user: Annotated[
        str | None, typer.Option("--user", help="User to run as when started as root; default: zonemta.")
    ] = None,
    newsletter: Annotated[
        bool,
        typer.Option(
            "--newsletter", help="Also a zone for campaigns, unsubscribe links, return paths and reports, with secrets."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not prompt; use the defaults.")] = False,
) -> None:
    """Write an initial configuration and a DKIM key; print the DNS records to publish.

    On a terminal, prompts for what is not given.
    """
    answers = _answers(domain, hostname, address, smarthost, listen, user, asks=not yes and sys.stdin.isatty())
    answers = answers._replace(newsletter=newsletter)
    file, keys = folder.absolute() / "zonemta.toml", folder.absolute()
    if file.exists():
        raise CommandError(Exit.CANT_CREATE, f"{file}: already exists; name another folder, or move it away")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        key = _key(keys, answers.domain)
        missing = _give(key[0].key, answers.user)
        _write(file, text(answers, queue.absolute(), key[0]), 0o600 if newsletter else 0o644)
        missing += _give(file, answers.user)[1:] if newsletter else []
    except OSError as error:
        raise from_os(error) from None
    load(file)  # what is written can be read
    print(f"The configuration is in {file}, the DKIM key in {key[0].key}.\n")
    print("Publish in DNS:\n")
    print("\n".join(records(answers, key[1])))
    if not newsletter:
        print("\nFor bounces to come back (docs/FEEDBACK.md), with the commented tables of the configuration:\n")
        print(f"bounce.{answers.domain}. IN MX 10 {answers.hostname}.")
    print(f"\nand ask the provider of the {_addresses(answers)} that the name in DNS (PTR) is {answers.hostname}.")
    if newsletter:
        print(
            f"\nA web server has to end TLS for links.{answers.domain}, and pass on what comes to 127.0.0.1 port 8526"
            " (docs/FEEDBACK.md). Pages about campaigns need Java: apt-get install openjdk-17-jre-headless"
        )
    commands = [*missing, f"zonemta doctor --config {file}", f"zonemta run --config {file}"]
    print("\nThen: " + "\n      ".join(commands))
    if newsletter:
        print(
            "\nand a newsletter (docs/CAMPAIGNS.md):\n"
            f"      zonemta campaign send LIST.csv --template DIR --name first --sender news@{answers.domain}"
            f" --zone {NEWSLETTER} --config {file}"
        )


def _answers(
    domain: str | None, hostname: str | None, addresses: list[str] | None, smarthost: str | None, listen: str,
    user: str | None, asks: bool,
) -> Answers:  # fmt: skip
    if domain is None and not asks:
        raise CommandError(Exit.USAGE, "which domain is mail sent from? give it with --domain")
    domain = _checked(domain, "Domain that mail is sent from", None, _domain, asks)
    hostname = _checked(hostname, "Full name of this machine", f"mail.{domain}", _domain, asks)
    sources, question = (
        " ".join(addresses or []),
        "Addresses to send from, with blanks or commas between (empty: as the system does)",
    )
    asked = asks and addresses is None and smarthost is None
    found = _checked(None if asked else sources, question, "", _sources, asks)
    question = "Smart host that gets everything (empty: to the recipients' own servers)"
    host = _checked(smarthost, question, "", _smart_host, asks and asked and not found)
    place = _checked(listen, "", None, _place, False)
    user = user if user is not None else ("zonemta" if os.geteuid() == 0 else "")
    return Answers(domain, hostname, found, host, place, user)


def _checked(given: str | None, question: str, default: str | None, check: Callable[[str], T], asks: bool) -> T:
    """The answer; asked again until it can be used. Raises CommandError for a wrong option."""
    if given is not None or not asks:
        try:
            return check(given if given is not None else default or "")
        except ValueError as error:
            raise CommandError(Exit.USAGE, str(error)) from None
    while True:
        try:
            return check(typer.prompt(question, default, show_default=bool(default)))
        except ValueError as error:
            print(f"zonemta: {error}", file=sys.stderr)


def _domain(text: str) -> str:
    name = _name(text)
    if "." not in name:
        raise ValueError(f"{text!r} is not a domain such as example.com")
    return name


def _name(text: str) -> str:
    """As it stands in DNS; "" if it cannot."""
    from zonemta_py.delivery.dns.resolver import ascii_name
    from zonemta_py.mail.classify import NoRoute

    try:
        return ascii_name(canonical(text.strip().rstrip(".")))
    except NoRoute:
        return ""


def _sources(text: str) -> list[str]:
    try:
        return [ip_address(one) for one in text.replace(",", " ").split()]
    except ValueError as error:
        raise ValueError(f"an address to send from: {error}") from None


def _smart_host(text: str) -> tuple[str, int]:
    found = host_of(text.strip())
    host, port = found["host"], found.get("port", 25)
    if not host:
        return "", 0
    try:
        host = ip_address(host)
    except ValueError:
        host = _name(host)
    if not host or not 1 <= port <= _PORT_MAX:
        raise ValueError(f"{text!r} is not a smart host; write it like smtp.example.net:587")
    return host, port


def _place(listen: str) -> tuple[str, int]:
    address, _, port = listen.rpartition(":")
    try:
        found = ip_address(address.strip("[]")), int(port)
    except ValueError:
        found = "", 0
    if not 1 <= found[1] <= _PORT_MAX:
        raise ValueError(f"--listen: {listen!r} is not an address and port; write it like 0.0.0.0:25")
    return found


def _key(folder: Path, domain: str) -> tuple[DkimKey, str]:
    """A new DKIM key, and its record."""
    from zonemta_py.mail.dkim.record import zone_line
    from zonemta_py.mail.dkim.signature import Key

    path = folder / f"{domain}.{SELECTOR}.pem"
    pem = path.read_bytes() if path.exists() else dkim.make("rsa", 2048)
    if not path.exists():
        dkim.write(path, pem)
    settings = DkimKey(domain=domain, selector=SELECTOR, key=path, state="active")
    return settings, zone_line(f"{SELECTOR}._domainkey.{domain}", Key(domain, SELECTOR, pem).record())


def _give(key: Path, user: str) -> list[str]:
    """The key becomes that user's, who will read it. What is left to do: as root, if there is no such user."""
    if not user or os.geteuid():
        return []
    try:
        who = pwd.getpwnam(user)
    except KeyError:
        return [f"useradd --system --shell /usr/sbin/nologin {user}", f"chown {user}: {shlex.quote(str(key))}"]
    os.chown(key, who.pw_uid, who.pw_gid)
    return []


def text(answers: Answers, queue: Path, key: DkimKey) -> str:
    """The configuration."""
    address, port = answers.listen
    lines = [
        "# Made by `zonemta init`. Every key, with its meaning: `zonemta config show`.", "",
        "[server]", f'hostname = "{answers.hostname}"', f"folder = {_quoted(str(queue))}",
        *([f"user = {_quoted(answers.user)}"] if answers.user else []), "",
        "[[listeners]]", 'name = "submission"', f'address = "{address}"', f"port = {port}", "",
        "[http]", "enabled = true    # for programs and metrics, on 127.0.0.1:8525", "dashboard = true", "",
        "[[zones]]", 'name = "default"',
    ]  # fmt: skip
    if answers.smarthost[0]:
        lines += [f"host = {_quoted(answers.smarthost[0])}", f"port = {answers.smarthost[1]}"]
    if answers.addresses:
        lines += ["sources = [" + ", ".join(f'"{one}"' for one in answers.addresses) + "]"]
    if answers.newsletter:
        return "\n".join([*lines, *_newsletter(answers), "", dkim_rotation.table(key), ""])
    lines += [
        "", "# What comes back: docs/FEEDBACK.md.", "#[[listeners]]", '#name = "mx"', '#address = "0.0.0.0"',
        "#port = 25", "#feedback = true", "#relay_networks = []", "#[return_path]",
        f'#verp = "bounce.{answers.domain}"',
        '#secret = ""         # `zonemta config secret` makes one; then make this file unreadable for others',
    ]  # fmt: skip
    return "\n".join([*lines, "", dkim_rotation.table(key), ""])


def _newsletter(answers: Answers) -> list[str]:
    """What campaigns need beside."""
    where = (
        [f"host = {_quoted(answers.smarthost[0])}", f"port = {answers.smarthost[1]}"] if answers.smarthost[0] else []
    )
    if answers.addresses:
        where += ["sources = [" + ", ".join(f'"{one}"' for one in answers.addresses) + "]"]
    return [
        "", "[[zones]]", f'name = "{NEWSLETTER}"', "campaigns = true    # whoever has unsubscribed gets nothing by it",
        *where,
        "", "# What comes back: docs/FEEDBACK.md.", "[[listeners]]", 'name = "mx"', 'address = "0.0.0.0"', "port = 25",
        "feedback = true", "relay_networks = []", "[return_path]", f'verp = "bounce.{answers.domain}"',
        f'secret = "{token_urlsafe(32)}"',
        "", "# Unsubscribe links; opens and clicks of whoever has agreed: track.", "[links]", "enabled = true",
        f'url = "https://links.{answers.domain}"', f'secrets = ["{token_urlsafe(32)}"]', 'track = "asked"',
        "", "# A page about each campaign, when it has ended.", "[reports]", 'folder = "reports"',
    ]  # fmt: skip


def _quoted(value: str) -> str:
    """As a string of TOML."""
    return json.dumps(value, ensure_ascii=False)


def records(answers: Answers, key: str) -> list[str]:
    """Lines of a zone file."""
    lines, spf = list[str](), ["v=spf1"]
    for one in answers.addresses:
        version = ipaddress.ip_address(one).version
        lines.append(f"{answers.hostname}. IN {'A' if version == 4 else 'AAAA'} {one}")
        spf.append(f"ip{version}:{one}")
    if not answers.addresses:
        lines.append(f"{answers.hostname}. IN A (the address of this machine)")
        spf.append(f"a:{answers.hostname}")
    if answers.smarthost[0]:
        spf.append(f"include:(what the owner of {answers.smarthost[0]} names for SPF)")
    lines.append(f'{answers.domain}. IN TXT "{" ".join(spf)} ~all"')
    lines.append(key)
    if answers.newsletter:
        lines += [
            f"bounce.{answers.domain}. IN MX 10 {answers.hostname}.",
            f'bounce.{answers.domain}. IN TXT "{" ".join(spf)} ~all"',
            f"links.{answers.domain}. IN A (the address of the web server)",
        ]
    lines.append(f'_dmarc.{answers.domain}. IN TXT "v=DMARC1; p=none; rua=mailto:postmaster@{answers.domain}"')
    return lines


def _addresses(answers: Answers) -> str:
    return f"address{'es' if len(answers.addresses) > 1 else ''} {', '.join(answers.addresses)}".rstrip()


def _write(file: Path, content: str, mode: int) -> None:
    """Readable for all where it holds no secret: the key has a file of its own."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    sync(file.parent)
