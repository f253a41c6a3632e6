"""`zonemta dkim`: keys, their records in a real name server on loopback, and the way from one key to the next."""

from __future__ import annotations

import json
import socketserver
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.config import load
from zonemta_py.delivery.message import dkim_keys

Zonemta = Callable[..., Any]


class NameServer(socketserver.ThreadingUDPServer):
    """texts: name without the final dot → TXT record, in as many strings as it needs; "fail" is SERVFAIL."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.texts: dict[str, str] = {}


class Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        data, sock = self.request
        query = dns.message.from_wire(data)
        name = query.question[0].name
        response = dns.message.make_response(query)
        text = self.server.texts.get(name.to_text(omit_final_dot=True))  # type: ignore[attr-defined]
        if text == "fail":
            response.set_rcode(dns.rcode.SERVFAIL)
        elif text is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        else:
            strings = " ".join(f'"{text[at : at + 100]}"' for at in range(0, len(text), 100))
            response.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", strings))
        sock.sendto(response.to_wire(), self.client_address)


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Place:
    """A configuration file that asks the name server, and the keys that `zonemta dkim new` made for it."""

    def __init__(self, folder: Path, names: NameServer, zonemta: Zonemta) -> None:
        self.file, self._names, self._zonemta, self._folder = folder / "zonemta.toml", names, zonemta, folder
        port = names.server_address[1]
        self.file.write_text(f'[dns]\nservers = ["127.0.0.1"]\nport = {port}\ntimeout_s = 3\n')

    def add(self, selector: str, kind: str = "ed25519", state: str = "active", publish: bool = True) -> None:
        ran = self._zonemta("dkim", "new", "d.example", selector, "--type", kind, "--key", self._folder / selector)
        assert ran.code == Exit.OK
        table = ran.out.partition("[[dkim]]")[2].partition("\n\n")[0]
        with self.file.open("a") as out:
            out.write(f"\n[[dkim]]{table}\n".replace('"published"', f'"{state}"'))
        if publish:
            self.publish(selector)

    def publish(self, selector: str) -> None:
        [settings] = [key for key in load(self.file).dkim if key.selector == selector]
        self._names.texts[f"{selector}._domainkey.d.example"] = dkim_keys.read(settings).record()

    def run(self, *arguments: str) -> Any:
        return self._zonemta("dkim", *arguments, "--config", self.file)


@pytest.fixture
def place(tmp_path: Path, names: NameServer, zonemta: Zonemta) -> Place:
    return Place(tmp_path, names, zonemta)


def test_new_makes_a_key_for_its_owner_alone(zonemta: Zonemta, tmp_path: Path) -> None:
    """0600, never over another one; record and table are printed."""
    path = tmp_path / "key.pem"
    ran = zonemta("dkim", "new", "D.example", "2026A", "--key", path)
    assert ran.code == Exit.OK
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert '2026a._domainkey.d.example. IN TXT "v=DKIM1; k=rsa; p=' in ran.out
    before = path.read_bytes()
    again = zonemta("dkim", "new", "d.example", "2026a", "--key", path)
    assert (again.code, path.read_bytes()) == (Exit.CANT_CREATE, before)
    assert "already exists; name another with --key" in again.err


def test_new_with_a_name_that_is_none(zonemta: Zonemta, tmp_path: Path) -> None:
    """One sentence, and no file."""
    ran = zonemta("dkim", "new", "d example", "s", "--key", tmp_path / "key.pem")
    assert ran == (Exit.DATA, "", "zonemta: 'd example' is not a domain such as example.com\n")
    assert not list(tmp_path.iterdir())


def test_check_when_all_is_well(place: Place) -> None:
    """Both kinds of key, found in DNS as they are."""
    place.add("e1")
    place.add("r1", "rsa")
    ran = place.run("check")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "publish" not in ran.out.replace("published", "")
    rows = json.loads(place.run("check", "--json").out)
    assert [(row["selector"], row["key"], row["dns"]) for row in rows] == [
        ("e1", "ed25519 256", "ok"),
        ("r1", "rsa 2048", "ok"),
    ]


def test_check_shows_what_to_publish(place: Place, names: NameServer) -> None:
    """Missing, different, revoked, no answer; the exact record for each that can be mended; exit status 1."""
    for selector in ("a", "b", "c", "d"):
        place.add(selector, publish=False)
    names.texts |= {
        "b._domainkey.d.example": "v=DKIM1; k=ed25519; p=AAAA", "c._domainkey.d.example": "v=DKIM1; p=",
        "d._domainkey.d.example": "fail",
    }  # fmt: skip
    ran = place.run("check", "d.example")
    assert ran.code == Exit.PROBLEMS
    rows = json.loads(place.run("check", "--json").out)
    assert [row["dns"] for row in rows] == ["missing", "different", "revoked", "no answer"]
    lines = [line for line in ran.out.splitlines() if line.startswith("publish: ")]
    assert [line[9] for line in lines] == ["a", "b", "c"]
    assert rows[0]["record"] in lines[0]


def test_check_of_a_domain_without_keys(place: Place) -> None:
    """Says how to get one."""
    ran = place.run("check", "other.example")
    assert (ran.code, ran.out) == (Exit.CONFIG, "")
    assert "no [[dkim]] key for other.example; `zonemta dkim new` makes one" in ran.err


def apply(file: Path, printed: str) -> None:
    """Changes the file as the printed diff says, which must be one that fits."""
    removed = [line[1:] for line in printed.splitlines() if line.startswith("-") and line[:3] != "---"]
    added = [line[1:] for line in printed.splitlines() if line.startswith("+") and line[:3] != "+++"]
    assert (len(removed), len(added)) == (1, 1)
    start = int(printed.partition("@@ -")[2].partition(",")[0]) - 1
    lines = file.read_text().splitlines()
    place = lines.index(removed[0], start)
    lines[place] = added[0]
    file.write_text("\n".join(lines) + "\n")


def test_the_whole_way_of_a_rotation(place: Place, names: NameServer) -> None:
    """Begin, publish, dual-sign, switch, retire, done: each step, done as printed, leads to the next."""
    place.add("s1")
    ran = place.run("rotate", "d.example")
    assert "ed25519-sha256: step 1 of 5, begin" in ran.out
    assert "`zonemta dkim new d.example s2`" in ran.out
    place.add("s2", state="published", publish=False)
    ran = place.run("rotate", "d.example")
    assert "step 2 of 5, publish" in ran.out
    assert 's2._domainkey.d.example. IN TXT "v=DKIM1; k=ed25519; p=' in ran.out
    place.publish("s2")
    ran = place.run("rotate", "d.example")
    assert "step 3 of 5, dual-sign" in ran.out
    apply(place.file, ran.out)
    assert [key.state for key in load(place.file).dkim] == ["active", "active"]
    ran = place.run("rotate", "d.example")
    assert "step 4 of 5, switch" in ran.out
    apply(place.file, ran.out)
    assert [(key.selector, key.state) for key in load(place.file).dkim] == [("s1", "retired"), ("s2", "active")]
    ran = place.run("rotate", "d.example")
    assert "step 5 of 5, retire" in ran.out
    assert "9 days after its last signature, remove s1 from DNS" in ran.out
    del names.texts["s1._domainkey.d.example"]
    assert "done; delete the [[dkim]] table and the key file of s1" in place.run("rotate", "d.example").out
    assert place.run("check").code == Exit.OK


def test_kinds_rotate_apart(place: Place) -> None:
    """An RSA key beside an Ed25519 one is no rotation: both are there to stay."""
    place.add("e1")
    place.add("r1", "rsa")
    ran = place.run("rotate", "d.example")
    assert "ed25519-sha256: step 1 of 5" in ran.out
    assert "rsa-sha256: step 1 of 5" in ran.out


def test_rotate_needs_dns_and_keys(place: Place, names: NameServer, tmp_path: Path) -> None:
    """Nobody is told to go on by a name server that is silent, or with a key that is broken."""
    place.add("s1")
    names.texts["s1._domainkey.d.example"] = "fail"
    ran = place.run("rotate", "d.example")
    assert (ran.code, ran.out) == (Exit.TEMPORARY, "")
    (tmp_path / "s1").write_text("")
    ran = place.run("rotate", "d.example")
    assert ran.code == Exit.CONFIG
    assert "s1._domainkey.d.example" in ran.err


def test_rotate_needs_the_file(zonemta: Zonemta) -> None:
    """The defaults have no keys to rotate."""
    assert zonemta("dkim", "rotate", "d.example").code == Exit.USAGE


def test_secret(zonemta: Zonemta) -> None:
    """Long enough for the configuration, another one each time."""
    first, second = zonemta("config", "secret").out, zonemta("config", "secret").out
    assert len(first.strip()) >= 32
    assert first != second
