"""`zonemta dkim …`: signing keys and their records in DNS: make one, compare them, rotate them.

Nothing here changes the configuration or DNS: the changes to make are printed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from pydantic import ValidationError

from zonemta_py.cli.config import dkim_rotation
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration, tabled
from zonemta_py.cli.terminal.output import Telling, print_aside, print_json, print_table
from zonemta_py.config import Config, ConfigError, DkimKey
from zonemta_py.disk.files import sync
from zonemta_py.mail.addresses.domain import canonical

if TYPE_CHECKING:  # DNS and cryptography are slow to load, and other commands do not need them
    from zonemta_py.delivery.dns.resolver import Resolver
    from zonemta_py.mail.dkim.signature import Key

app = typer.Typer(help="Create, check and rotate DKIM keys.", no_args_is_help=True)

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="Domain of the key, d=.")]


class Checked(NamedTuple):
    """One configured key. status: as `dkim_record.Finding`, or "no key" (file), "no answer" (DNS)."""

    settings: DkimKey
    key: Key | None
    status: str
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def good(self) -> bool:
        """A retired key may be gone from DNS, or still be there; but mail that it signed must not be broken."""
        return self.status in (("ok", "missing", "revoked") if self.settings.state == "retired" else ("ok",))


@app.command()
@tabled
def check(
    domain: Annotated[str | None, typer.Argument(metavar="DOMAIN", help="Only keys of this domain.")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Compare key files with DNS. Exit status 1: action is needed."""
    checked = examined(configuration(config), domain)
    if json:
        print_json([_row(one) for one in checked])
    else:
        from zonemta_py.mail.dkim.record import zone_line

        columns = ("domain", "selector", "state", "key", "DNS", "notes")
        print_table("DKIM keys", columns, [tuple(_row(one).values())[:6] for one in checked])
        for one in checked:
            if not one.good and one.key is not None and one.status != "no answer":
                print_aside(f"publish: {zone_line(one.name, one.key.record())}")
    if not all(one.good for one in checked):
        raise CommandError(Exit.PROBLEMS)


def examined(config: Config, domain: str | None) -> list[Checked]:
    """All keys, or those of one domain, compared with DNS. Raises CommandError if there are none."""
    wanted = canonical(domain) if domain else ""
    chosen = [settings for settings in config.dkim if wanted in ("", settings.domain)]
    if not chosen:
        of = f" for {domain}" if domain else ""
        raise CommandError(Exit.CONFIG, f"the configuration has no [[dkim]] key{of}; `zonemta dkim new` makes one")
    return asyncio.run(examine(config, chosen))


async def examine(config: Config, chosen: Sequence[DkimKey]) -> list[Checked]:
    """These keys, compared with DNS."""
    from zonemta_py.delivery.dns.resolver import Resolver

    dns = config.dns
    resolver = Resolver(dns.servers or None, dns.port, timeout_s=dns.timeout_s)
    return list(await asyncio.gather(*(_one(resolver, settings) for settings in chosen)))


async def _one(resolver: Resolver, settings: DkimKey) -> Checked:
    from zonemta_py.delivery.message import dkim_keys
    from zonemta_py.mail.classify import NoRoute
    from zonemta_py.mail.dkim.record import judge
    from zonemta_py.mail.dkim.signature import KeyUnusable

    try:
        key = dkim_keys.read(settings)
    except KeyUnusable as error:
        return Checked(settings, None, "no key", (str(error),))
    try:
        texts = await resolver.texts(settings.name)
    except NoRoute as error:
        return Checked(settings, key, "no answer", (error.reply.text,))
    return Checked(settings, key, *judge(texts, key))


def _row(one: Checked) -> dict[str, object]:
    key = one.key
    return {
        "domain": one.settings.domain,
        "selector": one.settings.selector,
        "state": one.settings.state,
        "key": f"{key.algorithm.partition('-')[0]} {key.bits}" if key else "",
        "dns": one.status,
        "notes": "; ".join(one.notes),
        "name": one.name,
        "record": key.record() if key else "",
    }


@app.command()
def new(
    domain: Domain,
    selector: Annotated[str, typer.Argument(metavar="SELECTOR", help="Name under _domainkey, s=, such as 2026a.")],
    kind: Annotated[Literal["rsa", "ed25519"], typer.Option("--type", help="Kind of key.")] = "rsa",
    bits: Annotated[int, typer.Option(min=1024, max=4096, help="Size of an RSA key.")] = 2048,
    file: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="File; default: DOMAIN.SELECTOR.pem.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create a key file that only you can read; print its DNS record and configuration table."""
    from zonemta_py.mail.dkim.record import zone_line
    from zonemta_py.mail.dkim.signature import Key

    path = (file or Path(f"{domain}.{selector}.pem")).absolute()
    try:
        settings = DkimKey(domain=domain, selector=selector, key=path, state="published")
    except ValidationError as error:
        raise CommandError(Exit.DATA, error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    pem = make(kind, bits)
    write(path, pem)
    key = Key(settings.domain, settings.selector, pem)
    name, table = settings.name, dkim_rotation.table(settings)
    with Telling(json) as tell:
        tell(f"The key is in {path}. Publish:\n\n{zone_line(name, key.record())}\n", file=path)
        tell(f"and add to the configuration:\n\n{table}\n", name=name, record=key.record(), table=table)
        tell(f'Then `zonemta dkim rotate {settings.domain}` shows the next step; state = "active" signs at once.')


def make(kind: str, bits: int) -> bytes:
    """A new private key as PEM."""
    from zonemta_py.mail.dkim.making import pem

    return pem(kind, bits)


def write(path: Path, pem: bytes) -> None:
    """For its owner only. Raises CommandError: a file that is there is never overwritten."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CommandError(
            Exit.CANT_CREATE, f"{path}: already exists; name another with --key, or move it away"
        ) from None
    with os.fdopen(descriptor, "wb") as out:
        out.write(pem)
        out.flush()
        os.fsync(out.fileno())
    sync(path.parent)


@app.command()
def rotate(domain: Domain, config: ConfigFile = None, json: AsJson = False) -> None:
    """Show a key rotation's state, and the next step: publish, dual-sign, switch, retire."""
    if config is None:
        raise CommandError(Exit.USAGE, "rotate needs the configuration's file; give it with --config")
    settings = configuration(config)
    checked = examined(settings, domain)
    for one in checked:
        if one.status in ("no key", "no answer"):
            raise CommandError(Exit.CONFIG if one.key is None else Exit.TEMPORARY, f"{one.name}: {one.notes[0]}")
    text = _text(config)
    rows = []
    for kind in sorted({one.key.algorithm for one in checked if one.key is not None}):
        of_kind = [one for one in checked if one.key is not None and one.key.algorithm == kind]
        rows.append(_next(kind, of_kind, settings, text, config))
    if json:
        return print_json(rows)
    for row in rows:
        _show(row)
    return None


def _next(kind: str, checked: list[Checked], settings: Config, text: str, file: Path) -> dict[str, Any]:
    """How far the keys of one algorithm are, and what to do."""
    from zonemta_py.mail.dkim.record import zone_line

    states = [dkim_rotation.RotationState(one.settings, one.status) for one in checked]
    step = dkim_rotation.next_step(states, settings.retry.life_h)
    return {
        "algorithm": kind, "step": step.number, "name": step.name,
        "keys": [{"selector": one.settings.selector, "state": one.settings.state, "dns": one.dns} for one in states],
        "todo": step.todo,
        "publish": [
            zone_line(one.name, one.key.record())
            for one in checked
            if one.settings.selector in step.publish and one.key is not None
        ],
        "change": dkim_rotation.diff(text, str(file), *step.change) if step.change is not None else "",
    }  # fmt: skip


def _show(row: dict[str, Any]) -> None:
    print(f"{row['algorithm']}: step {row['step']} of 5, {row['name']}")
    for key in row["keys"]:
        print(f"  {key['selector']}: {key['state']}, DNS {key['dns']}")
    print(f"  next: {row['todo']}")
    for text in (*row["publish"], *([row["change"]] if row["change"] else ())):
        print(f"\n{text}")
    print()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
