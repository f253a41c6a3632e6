"""NSD with signed and unsigned zones, and a validating Unbound in front of it, Debian's, on ports of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import dns.flags
import dns.message
import dns.query
import dns.rdatatype
from ports import free_port

PATIENCE_S = 60
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

_SOA = "@ {ttl} IN SOA ns.{zone}. hostmaster.{zone}. 1 3600 600 86400 {negative}\n@ IN NS ns.{zone}.\n"
_NSD = """
server:
  ip-address: 127.0.0.1
  port: {port}
  server-count: 1
  username: ""
  chroot: ""
  zonesdir: "{folder}"
  database: ""
  pidfile: "{folder}/nsd.pid"
  xfrdfile: "{folder}/xfrd.state"
  zonelistfile: "{folder}/zone.list"
  xfrdir: "{folder}"
  logfile: "{folder}/nsd.log"
remote-control:
  control-enable: no
"""
_UNBOUND = """
server:
  interface: 127.0.0.1
  port: {port}
  do-daemonize: no
  do-ip6: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: "{folder}/unbound.pid"
  logfile: "{folder}/unbound.log"
  use-syslog: no
  log-queries: yes
  num-threads: 1
  do-not-query-localhost: no
  module-config: "validator iterator"
  local-zone: "test." nodefault
remote-control:
  control-enable: no
"""


def missing() -> str:
    """What is not installed, as a sentence; "" if all is there."""
    programs = [
        name for name in ("nsd", "unbound", "ldns-keygen", "ldns-signzone") if not shutil.which(name, path=PATH)
    ]
    return f"{' and '.join(programs)} missing: apt-get install nsd unbound ldnsutils" if programs else ""


class DnsServers:
    """signed, unsigned: zone → records in master file syntax, relative names allowed; SOA and NS are added. bogus: as
    signed, but the trust anchor is another. address, port: of the resolver. Negative answers live negative_s.
    """

    address = "127.0.0.1"

    def __init__(
        self, folder: Path, signed: Mapping[str, str], unsigned: Mapping[str, str], bogus: Mapping[str, str],
        negative_s: int = 60,
    ) -> None:  # fmt: skip
        self.folder, self.port, self._negative_s = folder, free_port(), negative_s
        self._processes: list[subprocess.Popen[bytes]] = []
        nsd, unbound = _NSD.format(port=(behind := free_port()), folder=folder), ""
        for zone, records in unsigned.items():
            nsd += self._serve(zone, self._write(zone, records))
        for zone, records in {**signed, **bogus}.items():
            key = self._key(zone)
            file = self._write(zone, records)
            self._run("ldns-signzone", "-n", file.name, key)
            nsd += self._serve(zone, file.with_name(f"{file.name}.signed"))
            anchor = self._key(zone) if zone in bogus else key
            unbound += f'  trust-anchor-file: "{folder}/{anchor}.ds"\n'
        for zone in (*signed, *unsigned, *bogus):
            unbound += f'stub-zone:\n  name: "{zone}"\n  stub-addr: 127.0.0.1@{behind}\n'
        (folder / "nsd.conf").write_text(nsd)
        head, _, tail = _UNBOUND.format(port=self.port, folder=folder).partition("remote-control:")
        anchors, _, stubs = unbound.partition("stub-zone:")
        (folder / "unbound.conf").write_text(f"{head}{anchors}remote-control:{tail}stub-zone:{stubs}")
        self._probe = next(iter((*signed, *unsigned, *bogus)))
        self._behind = behind

    def _write(self, zone: str, records: str) -> Path:
        file = self.folder / f"{zone}.zone"
        soa = _SOA.format(zone=zone, ttl=3600, negative=self._negative_s)
        file.write_text(f"$ORIGIN {zone}.\n$TTL 300\n{soa}ns IN A 127.0.0.1\n{records}\n")
        return file

    def _serve(self, zone: str, file: Path) -> str:
        return f'zone:\n  name: "{zone}"\n  zonefile: "{file.name}"\n'

    def _key(self, zone: str) -> str:
        """Makes a key that signs keys and records alike; returns the name of its files, without the ending."""
        return self._run("ldns-keygen", "-k", "-a", "ECDSAP256SHA256", zone).strip()

    def _run(self, *command: str) -> str:
        environment = os.environ | {"PATH": PATH}
        found = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert found.returncode == 0, f"{' '.join(command)}: {found.stderr}"
        return found.stdout

    def start(self) -> None:
        """Returns once both answer."""
        for command in (["nsd", "-d", "-c", "nsd.conf"], ["unbound", "-d", "-c", "unbound.conf"]):
            path = shutil.which(command[0], path=PATH)
            assert path
            log = (self.folder / f"{command[0]}.stderr").open("wb")
            process = subprocess.Popen([path, *command[1:]], cwd=self.folder, stdout=log, stderr=log)
            self._processes.append(process)
        for port in (self._behind, self.port):
            self._wait(port)

    def _wait(self, port: int) -> None:
        question = dns.message.make_query(f"{self._probe}.", "SOA")
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                dns.query.udp(question, self.address, timeout=0.3, port=port)
            except (OSError, dns.exception.DNSException):
                time.sleep(0.05)
            else:
                return
        raise AssertionError("".join(log.read_text() for log in self.folder.glob("*.[ls][ot]*[gr]")))

    def asked(self) -> list[tuple[str, str]]:
        """Every question that the resolver got: (name without the final dot, kind)."""
        lines = [line.split() for line in (self.folder / "unbound.log").read_text().splitlines()]
        return [(line[-3].rstrip("."), line[-2]) for line in lines if line[-1:] == ["IN"] and "info:" in line]

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(60)
