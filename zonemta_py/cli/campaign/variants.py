"""`zonemta campaign send --variant`, `zonemta campaign winner`: templates that are tried on a part of the list, and the
choice between them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from zonemta_py.cli.campaign.nodes import Ca, KeyFile, Nodes
from zonemta_py.cli.campaign.orders import CampaignDoor, Cause, Name
from zonemta_py.cli.campaign.settings import share
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder
from zonemta_py.cli.terminal.output import print_json

FIRST = "a"
"""The variant that is the campaign's own template."""
_NAME = re.compile(r"[a-z0-9]{1,10}")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(m|h|d)?")
_HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0, None: 1.0}
Metric = Literal["clicks", "opens", "unsubscribes", "complaints", "bounced"]
Winner = Annotated[str, typer.Argument(metavar="[VARIANT]", help="Variant; default: the best so far.")]


class Variants(NamedTuple):
    """names: of the variants, the campaign's own template first. templates: of the others. share: of the list, for all
    of them together. choice: as nodes take it, without the names of campaigns."""

    names: tuple[str, ...] = ()
    templates: tuple[Path, ...] = ()
    share: float = 0.0
    choice: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    def campaigns(self, campaign: str) -> list[str]:
        """What the variants are called."""
        from zonemta_py.pipeline.prepare.settings import variant_name

        return [variant_name(campaign, name) for name in self.names]


def asked(given: list[str], share_: str, metric: Metric, decide_after: str, nodes: int) -> Variants:
    """nodes: how many there are. Raises CommandError."""
    if not given:
        return Variants()
    pairs = [one.partition("=")[::2] for one in given]
    for name, template in pairs:
        if not _NAME.fullmatch(name) or not template:
            raise CommandError(Exit.USAGE, f"--variant {name!r} is not NAME=TEMPLATE; write, for instance, b=spring-b")
    names = (FIRST, *(name for name, _ in pairs))
    if len(set(names)) < len(names):
        raise CommandError(
            Exit.USAGE, f"--variant: two are named alike ({FIRST} is --template); give each its own name"
        )
    found = _SPAN.fullmatch(decide_after)
    if found is None and decide_after != "never":
        raise CommandError(Exit.USAGE, f"--decide-after {decide_after!r}: write 4h, 90m, 2d, or never")
    after_h = float(found[1]) * _HOURS[found[2]] if found else 0.0
    if after_h and nodes > 1:
        sentence = f"each of {nodes} nodes knows only its own figures; write --decide-after never, and choose with"
        raise CommandError(Exit.USAGE, f"--decide-after: {sentence} `zonemta campaign winner`")
    part = share("--share", share_)
    if not 0 < part < 1:
        raise CommandError(Exit.USAGE, f"--share {share_!r} leaves nothing to try or to choose for; write 10%")
    return Variants(names, tuple(Path(one) for _, one in pairs), part, {"metric": metric, "after_h": after_h})


def winner(
    name: Name, variant: Winner = "", because: Cause = "chosen by an operator", nodes: Nodes = "",
    key_file: KeyFile = None, ca: Ca = None, config: ConfigFile = None, folder: Folder = None, json: AsJson = False,
) -> None:  # fmt: skip
    """Choose the variant whose template the rest of a campaign gets, and send it at once. This cannot be undone."""
    variant = variant if not variant or variant.startswith(f"{name}.") else f"{name}.{variant}"
    asked = CampaignDoor(nodes, key_file, ca, config, folder)
    asked.decide(name, variant, because)
    row = asked.status(name)
    if json:
        print_json(row)
        return
    print(f"{name}: {(row['variants'] or {}).get('winner') or variant} was chosen; the rest goes with its template")
