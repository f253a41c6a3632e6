"""Examples shown below the help of a command. The tests parse each of them."""

from __future__ import annotations

import re

_COLUMNS = 78
EXAMPLES: dict[str, tuple[str, ...]] = {
    "send": (
        "zonemta send -t --file letter.eml",
        "zonemta send ann@example.com --at 'tomorrow 9:00' --by 2d --file letter.eml",
    ),
    "sendmail": (
        "zonemta sendmail -t -i < letter.eml",
        "zonemta sendmail -f news@example.org ann@example.com < letter.eml",
    ),
    "mailq": ("zonemta mailq",),
    "postqueue": ("zonemta postqueue -p", "zonemta postqueue -s example.com"),
    "postsuper": ("zonemta postsuper -d 19f3c2d8a0001f3a", "zonemta postsuper -r ALL deferred"),
    "status": ("zonemta status", "zonemta status --nagios --waiting 100000,1000000 --disk 5000,500"),
    "top": ("zonemta top", "zonemta top --every 5"),
    "trace": ("zonemta trace ann@example.com", "zonemta trace 19f3c2d8a0001f3a --all"),
    "qshape": ("zonemta qshape", "zonemta qshape -s deferred", "zonemta qshape --by provider --zone default"),
    "completion": (
        "zonemta completion bash > ~/.local/share/bash-completion/completions/zonemta",
        "zonemta completion zsh > ~/.zfunc/_zonemta",
        "zonemta completion fish > ~/.config/fish/completions/zonemta.fish",
    ),
    "init": (
        "zonemta init",
        "zonemta init /etc/zonemta --domain example.com --address 192.0.2.10 --listen 0.0.0.0:25 --yes",
        "zonemta init /etc/zonemta --domain example.com --newsletter",
    ),
    "doctor": (
        "zonemta doctor",
        "zonemta doctor --domain example.com --probe example.net",
        "zonemta doctor --no-dns --json",
    ),
    "domain list": ("zonemta domain list", "zonemta domain list --json"),
    "domain show": ("zonemta domain show example.com",),
    "domain add": (
        "zonemta domain add example.com --tenant acme",
        "zonemta domain add example.com --link links.example.com --key example.pem --selector 2026a",
    ),
    "domain check": ("zonemta domain check example.com", "zonemta domain check"),
    "domain rotate": ("zonemta domain rotate example.com",),
    "domain remove": ("zonemta domain remove example.com",),
    "route": ("zonemta route --from news@example.org --to ann@example.com --dns",),
    "accounts": ("zonemta accounts",),
    "explain": ("zonemta explain ann@example.com", "zonemta explain example.com"),
    "lanes": ("zonemta lanes --zone default", "zonemta lanes --csv > lanes.csv"),
    "standing": ("zonemta standing",),
    "suspend": (
        "zonemta suspend destination google --for 2h",
        "zonemta suspend destination example.com --for 2h --because 'they asked us to'",
        "zonemta suspend campaign spring",
    ),
    "reroute add": (
        "zonemta reroute add example.com --pool backup --for 2h",
        "zonemta reroute add google --zone bulk --to-zone slow --because 'blocked since noon'",
        "zonemta reroute add --zone bulk --host relay.example.net:587 --for 1d",
        "zonemta reroute add example.com --skip-mx mx1.example.com",
    ),
    "reroute list": ("zonemta reroute list",),
    "reroute remove": ("zonemta reroute remove example.com", "zonemta reroute remove --zone bulk"),
    "resume": ("zonemta resume destination example.com",),
    "fsck": ("zonemta fsck --folder /var/lib/zonemta", "zonemta fsck --repair"),
    "reload": ("zonemta reload", "zonemta reload --check"),
    "drain": ("zonemta drain --for 5m", "zonemta drain --cancel", "zonemta drain --to-cluster"),
    "cluster": ("zonemta cluster", "zonemta cluster --json"),
    "cluster move": (
        "zonemta cluster move 3 mx2",
        "zonemta cluster move --zone bulk --to mx2",
        "zonemta cluster move --zone bulk --to mx2 --from mx1",
    ),
    "cluster balance": ("zonemta cluster balance --dry-run", "zonemta cluster balance"),
    "cluster config": (
        "zonemta cluster config",
        "zonemta cluster config --history",
        "zonemta cluster config --diff mx2",
    ),
    "plugin list": ("zonemta plugin list", "zonemta plugin list --json"),
    "plugin order": ("zonemta plugin order", "zonemta plugin order queue_route"),
    "plugin check": ("zonemta plugin check", "zonemta plugin check /etc/zonemta/staging.py"),
    "plugin run": (
        "zonemta plugin run staging.py --reload --to anna@staging.example.com",
        "zonemta plugin run --config /etc/zonemta/zonemta.toml",
    ),
    "plugin new": (
        "zonemta plugin new staging",
        "zonemta plugin new greylist --hook smtp_rcpt_to --hook smtp_data --folder /etc/zonemta",
    ),
    "cluster verify": ("zonemta cluster verify",),
    "config history": ("zonemta config history", "zonemta config history 12"),
    "config forget": ("zonemta config forget", "zonemta config forget --before 12"),
    "config back": ("zonemta config back 12",),
    "campaign text": ("zonemta campaign text spring --template spring-corrected",),
    "campaign winner": ("zonemta campaign winner spring", "zonemta campaign winner spring b --because 'we like it'"),
    "config notice": ("zonemta config notice delayed --language de,en", "zonemta config notice --tenant shop --whole"),
    "backup": ("zonemta backup /var/backups/zonemta-monday",),
    "queue size": (
        "zonemta queue size",
        "zonemta queue size --by provider",
        "zonemta queue size --by user --younger 1h",
        "zonemta queue size --tenant acme --json",
    ),
    "queue list": (
        "zonemta queue list --state deferred --domain example.com",
        "zonemta queue list --user shop --subject 'your order'",
        "zonemta queue list --order age --limit 20",
        "zonemta queue list --limit 10000 --csv > waiting.csv",
    ),
    "queue show": (
        "zonemta queue show 19f3c2d8a0001f3a",
        "zonemta queue show 19f3c2d8a0001f3a --content > message.eml",
    ),
    "queue delete": (
        "zonemta queue delete 19f3c2d8a0001f3a",
        "zonemta queue delete --domain 'example.*' --older 2d --dry-run",
        "zonemta queue delete --campaign spring --state deferred --yes --because 'wrong link'",
        "zonemta queue delete - --yes < ids.txt",
    ),
    "queue purge": ("zonemta queue purge queue/jobs --dry-run",),
    "queue hold": ("zonemta queue hold --sender shop@example.com", "zonemta queue hold --header 'List-Id: news' --yes"),
    "queue release": ("zonemta queue release 19f3c2d8a0001f3a", "zonemta queue release --all --yes"),
    "queue flush": ("zonemta queue flush --domain example.com", "zonemta queue flush --class greylisting --yes"),
    "queue requeue": (
        "zonemta queue requeue 19f3c2d8a0001f3a",
        "zonemta queue requeue --state bounced --domain example.com --dry-run",
    ),
    "queue move": ("zonemta queue move --provider google --to bulk",),
    "queue set": (
        "zonemta queue set --tenant shop --set-priority 5",
        "zonemta queue set --domain example.com --set-source 192.0.2.11 --dry-run",
        "zonemta queue set --subject Newsletter --set-header 'Reply-To: help@example.org'",
        "zonemta queue set --campaign spring --set-at 'tomorrow 9:00' --yes",
    ),
    "task list": ("zonemta task list", "zonemta task list --columns id,state,what"),
    "task show": ("zonemta task show 17",),
    "task cancel": ("zonemta task cancel 17",),
    "task undo": ("zonemta task undo 17",),
    "task follow": ("zonemta task follow 17",),
    "journal dump": (
        "zonemta journal dump --recipient ann@example.com --since 2d --archive",
        "zonemta journal dump --type delivery --since 'yesterday 9:00' --json",
    ),
    "journal follow": ("zonemta journal follow", "zonemta journal follow --type delivery --mentions ann@example.com"),
    "log": (
        "zonemta log --follow",
        "zonemta log --since 2h --address ann@example.com --verdict bounced",
        "zonemta log --since 1d --class undefined",
        "zonemta log --since 1d --count-by user",
        "zonemta log --since 2h --provider google --verdict deferred --count-by source",
    ),
    "summary mail": (
        "zonemta summary mail --day yesterday",
        "zonemta summary mail --day yesterday --by user,sender",
        "zonemta summary mail --by hour --provider google",
        "zonemta summary mail --since 2026-12-01 --until 2026-12-08 --by tenant --csv",
    ),
    "summary replies": (
        "zonemta summary replies --day yesterday",
        "zonemta summary replies --verdict deferred --provider microsoft",
    ),
    "summary limits": ("zonemta summary limits --day yesterday",),
    "summary make": ("zonemta summary make", "zonemta summary make --discard"),
    "events tail": (
        "zonemta events tail",
        "zonemta events tail --type bounced --domain example.com --since 2h --no-follow",
    ),
    "events dead": ("zonemta events dead crm", "zonemta events dead crm --replay"),
    "events replay": (
        "zonemta events replay --sink crm --since 2h --type bounced",
        "zonemta events replay --sink crm --since yesterday --until 1h --campaign spring",
    ),
    "events forget-sink": ("zonemta events forget-sink crm",),
    "config check": ("zonemta config check zonemta.toml", "zonemta config check new.toml --folder /var/lib/zonemta"),
    "ring show": ("zonemta ring show /var/lib/zonemta/overflow.ring",),
    "warmup set": ("zonemta warmup set 192.0.2.1 google 3",),
    "campaign check": ("zonemta campaign check letter.toml --list people.csv",),
    "campaign suspend": ("zonemta campaign suspend spring --because 'too many complaints'",),
    "campaign status": ("zonemta campaign status spring",),
    "suppression add": (
        "zonemta suppression add ann@example.com --kind complaint --reason 'she called'",
        "zonemta suppression add @example.com '@*.example.com' 'noreply@*' --reason 'asked by their postmaster'",
    ),
    "suppression list": ("zonemta suppression list --kind hard-bounce --csv",),
    "suppression import": ("zonemta suppression import list.csv --kind unsubscribe",),
    "feedback list": (
        "zonemta feedback list --kind complaint --campaign spring --since 2h",
        "zonemta feedback list --unread",
        "zonemta feedback list --wishes",
    ),
    "feedback reports": ("zonemta feedback reports", "zonemta feedback reports --days 30 --domain example.com"),
    "feedback import": (
        "zonemta feedback import snds.csv",
        "zonemta feedback import spam-rate.csv --domain example.com --provider google",
    ),
    "feedback show": ("zonemta feedback show 4711",),
    "feedback leave": ("zonemta feedback leave 4711 4712",),
    "feedback forget": ("zonemta feedback forget 4711", "zonemta feedback forget --all"),
    "rules explain": ("zonemta rules explain '550 5.1.1 No such user'",),
    "dkim new": ("zonemta dkim new example.com 2026a",),
    "tls check": ("zonemta tls check example.com",),
    "lake ingest": ("zonemta lake ingest --archive /var/lib/zonemta/archive --lake lake",),
    "forget": (
        "zonemta forget ann@example.com",
        "zonemta forget ann@example.com --proof proof.json",
    ),
    "sink": (
        "zonemta sink --listen 127.0.0.1:2526",
        "zonemta sink --rule 'rcpt:/@slow/ 450 later, 30%'",
    ),
    "whatif": ("zonemta whatif new.toml --archive /var/lib/zonemta/archive",),
    "queue adopt": ("zonemta queue adopt --folder /var/backups/zonemta-monday",),
    "queue in-doubt": (
        "zonemta queue in-doubt",
        "zonemta queue in-doubt --acknowledge",
    ),
    "suppression remove": ("zonemta suppression remove ann@example.com",),
    "suppression explain": ("zonemta suppression explain ann@example.com",),
    "suppression guards": ("zonemta suppression guards --json",),
    "suppression release": ("zonemta suppression release example-provider 192.0.2.1",),
    "suppression drop": ("zonemta suppression drop example-provider",),
    "suppression show": ("zonemta suppression show ann@example.com",),
    "suppression export": ("zonemta suppression export list.csv --kind hard-bounce",),
    "journal positions": ("zonemta journal positions",),
    "journal rotate": ("zonemta journal rotate",),
    "campaign send": (
        "zonemta campaign send people.csv --template letter.toml --name spring --sender news@example.com",
        "zonemta campaign send people.csv -t letter.toml -n spring --at 09:00 --window 09:00-17:00 --time-zone DE",
    ),
    "campaign resume": ("zonemta campaign resume spring --because 'the link is right now'",),
    "campaign schedule": (
        "zonemta campaign schedule spring --at 14:00 --until 2026-12-01",
        "zonemta campaign schedule spring --window none",
    ),
    "campaign report": (
        "zonemta campaign report spring --open",
        "zonemta campaign report spring --output spring.html --lake lake",
    ),
    "campaign cancel": ("zonemta campaign cancel spring --because 'wrong list'",),
    "campaign list": (
        "zonemta campaign list",
        "zonemta campaign list --columns name,state,waiting",
    ),
    "campaign preview": ("zonemta campaign preview letter.toml --list people.csv --recipient ann@example.com",),
    "campaign test": ("zonemta campaign test letter.toml --to me@example.com --list people.csv",),
    "events sinks": (
        "zonemta events sinks",
        "zonemta events sinks --json",
    ),
    "events schema": ("zonemta events schema > events.schema.json",),
    "config diff": ("zonemta config diff",),
    "config show": (
        "zonemta config show",
        "zonemta config show zonemta.toml",
    ),
    "config password": ("zonemta config password",),
    "config secret": ("zonemta config secret --webhook",),
    "dkim check": (
        "zonemta dkim check",
        "zonemta dkim check example.com",
    ),
    "dkim rotate": ("zonemta dkim rotate example.com",),
    "rules check": (
        "zonemta rules check",
        "zonemta rules check my-rules.toml",
    ),
    "rules list": ("zonemta rules list --class greylisting",),
    "verp decode": ("zonemta verp decode bounce+ann=example.com@news.example.org",),
    "address": (
        "zonemta address bounce@example.com",
        "zonemta address SRS0=abcd=XY=example.com=ann@news.example.org --json",
    ),
    "srs decode": ("zonemta srs decode SRS0=abcd=XY=example.com=ann@news.example.org",),
    "tls report": ("zonemta tls report --day 2026-11-22",),
    "api-key new": ("zonemta api-key new shop",),
    "api-key list": ("zonemta api-key list",),
    "ring check": ("zonemta ring check /var/lib/zonemta/overflow.ring",),
    "lake update": ("zonemta lake update --lake lake",),
    "lake show": ("zonemta lake show deliveries --lake lake --limit 20",),
    "lake tables": ("zonemta lake tables --lake lake",),
    "lake suppress": ("zonemta lake suppress --lake lake --dry-run",),
    "lake blocks": ("zonemta lake blocks --lake lake",),
    "lake rates": ("zonemta lake rates --lake lake",),
    "lake unknown": ("zonemta lake unknown --lake lake",),
    "lake propose": ("zonemta lake propose new-rules.toml --lake lake",),
    "lake engagement": ("zonemta lake engagement opens.csv --lake lake",),
    "report day": (
        "zonemta report day 2026-11-22 --lake lake",
        "zonemta report day yesterday --lake lake --archive /var/lib/zonemta/archive",
    ),
    "report campaign": ("zonemta report campaign spring --lake lake",),
    "report ip": ("zonemta report ip 192.0.2.1 --lake lake",),
    "report provider": ("zonemta report provider google --lake lake",),
    "report zone": ("zonemta report zone default --lake lake",),
}


def epilog(command: str) -> str | None:
    """What is shown below the help of `zonemta command`: lines that are not to be run together."""
    lines = EXAMPLES.get(command)
    return "\n".join(("\b", "Examples:" if len(lines) > 1 else "Example:", *map(_folded, lines))) if lines else None


def _folded(line: str) -> str:
    """As a terminal of 80 columns shows it: a longer command goes on in the next line, behind a backslash."""
    rows = [" "]
    for part in re.split(r" (?=--?[a-zA-Z])", line):
        if rows[-1].strip() and len(rows[-1]) + len(part) + 3 > _COLUMNS:
            rows[-1] += " \\"
            rows.append("     ")
        rows[-1] += f" {part}"
    return "\n".join(rows)
