"""The bundled plugin ldap_auth with Debian's slapd, in the real MTA; and with directories that are down, slow and
wrong."""

from __future__ import annotations

import asyncio
import smtplib
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from ports import free_port
from programs import Server, answering, program

from zonemta_py.config import Config, Plugins
from zonemta_py.plugin.arguments import Auth, Session
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.sink.server import self_made

SLAPD = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
TLSCertificateFile {folder}/server.pem
TLSCertificateKeyFile {folder}/server.key
TLSCACertificateFile {folder}/ca.pem
database mdb
suffix "dc=a,dc=test"
rootdn "cn=admin,dc=a,dc=test"
rootpw admin
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=mta,dc=a,dc=test" read by anonymous auth by * none
"""
PEOPLE = {"ann": "correct horse", "bob,jr": "battery", "müller": "pässword", "a*": "star"}
BASE = "ou=people,dc=a,dc=test"
SEARCH = {"base": "dc=a,dc=test", "search_dn": "cn=mta,dc=a,dc=test", "search_password": "mta"}
NAMED = {"dn": f"uid={{user}},{BASE}"}


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., Server]) -> Server:
    """Its folder is its log's; it listens at the port, and with TLS at a file's."""
    where, folder, port, secure = program("slapd", "slapd"), tmp_path_factory.mktemp("slapd"), free_port(), free_port()
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "server.key"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    (folder / "data").mkdir()
    (folder / "slapd.conf").write_text(SLAPD.format(folder=folder))
    lines = ["dn: dc=a,dc=test", "objectClass: dcObject", "objectClass: organization", "o: a", "dc: a", ""]
    lines += [f"dn: {BASE}", "objectClass: organizationalUnit", "ou: people", ""]
    lines += ["dn: cn=mta,dc=a,dc=test", "objectClass: organizationalRole", "objectClass: simpleSecurityObject"]
    lines += ["cn: mta", "userPassword: mta", ""]
    for name, password in PEOPLE.items():
        escaped = name.replace(",", "\\,")
        lines += [f"dn: uid={escaped},{BASE}", "objectClass: inetOrgPerson", f"uid: {name}", "cn: x", "sn: x"]
        lines += ["mail: shared@a.test", f"userPassword: {password}", ""]
    (folder / "people.ldif").write_text("\n".join(lines))
    add = [program("slapadd", "slapd"), "-f", str(folder / "slapd.conf"), "-l", str(folder / "people.ldif")]
    subprocess.run(add, check=True, capture_output=True)
    (folder / "secure").write_text(str(secure))
    urls = f"ldap://127.0.0.1:{port}/ ldaps://127.0.0.1:{secure}/"
    return serve([where, "-d", "0", "-f", str(folder / "slapd.conf"), "-h", urls], port, folder / "log")


def load(url: Server | str, **more: Any) -> Host:
    where = url if isinstance(url, str) else f"ldap://127.0.0.1:{url.where}"
    given = {"url": where, "timeout_s": 29} | (more or SEARCH)
    return Host.load(Plugins(enabled=["ldap_auth"], options={"ldap_auth": given}, timeout_s=30))


async def login(host: Host, name: str = "ann", password: str = "correct horse") -> str:
    session = Session(client="192.0.2.7", listener="submission")
    await host.call("smtp_auth", auth=Auth(name, password), session=session)
    return session.user


@pytest.mark.parametrize("way", [SEARCH, NAMED], ids=["search", "dn"])
async def test_logins(slapd: Server, way: dict[str, Any]) -> None:
    """A name is a name, whatever filters and DNs make of its characters."""
    host = load(slapd, **way)
    for name, password in PEOPLE.items():
        assert await login(host, name, password) == name
    for name, password in (
        ("ann", "wrong"), ("eve", "correct horse"), ("ann", ""), ("", "x"), ("*", "correct horse"),
        ("ann)(uid=*", "correct horse"), ("ann,ou=people", "correct horse"), ("a\0", "x"), ("x" * 300, "x"),
    ):  # fmt: skip
        assert await login(host, name, password) == ""


async def test_an_entry_that_is_not_the_only_one(slapd: Server) -> None:
    shared = SEARCH | {"filter": "(&(mail={user})(objectClass=inetOrgPerson))"}
    assert await login(load(slapd, **shared), "shared@a.test") == ""


@pytest.mark.parametrize("way", ["ldaps", "starttls"])
async def test_tls(slapd: Server, way: str) -> None:
    """The directory's certificate is checked, and its name."""
    folder = slapd.log.parent
    secure = await asyncio.to_thread((folder / "secure").read_text)
    ports = {"ldaps": f"ldaps://localhost:{secure}", "starttls": f"ldap://localhost:{slapd.where}"}
    begins = NAMED | {"starttls": way == "starttls"}
    assert await login(load(ports[way], ca_file=str(folder / "ca.pem"), **begins)) == "ann"
    for host in (
        load(ports[way], **begins),
        load(ports[way].replace("localhost", "127.0.0.1"), ca_file=str(folder / "ca.pem"), **begins),
    ):
        with pytest.raises(PluginFailed):
            await login(host)


async def test_what_is_remembered(slapd: Server) -> None:
    """It holds while the directory is down; all else does not."""
    host, opened = load(slapd, **NAMED, remember_s=3600, remember_no_s=3600), load(slapd, **NAMED, failing="open")
    assert [await login(host), await login(host, "ann", "wrong")] == ["ann", ""]
    slapd.stop()
    assert [await login(host), await login(host, "ann", "wrong")] == ["ann", ""]
    with pytest.raises(PluginFailed) as caught:
        await login(host, "bob,jr", "battery")
    assert "start the directory" in caught.value.problem
    assert "battery" not in caught.value.problem
    assert await login(opened) == ""
    assert {"plugin": "ldap_auth", "counter": "not_asked", "value": 1} in opened.statistics()
    slapd.start()
    assert await login(host, "bob,jr", "battery") == "bob,jr"
    assert await login(opened) == "ann"


async def test_slapd_stands_still(slapd: Server) -> None:
    with slapd.frozen():
        with pytest.raises(PluginFailed, match="does not answer within"):
            await login(load(slapd, **NAMED, timeout_s=0.5))
        opened = load(slapd, **NAMED, timeout_s=0.5, failing="open")
        assert await login(opened) == ""
    assert await login(load(slapd, **NAMED)) == "ann"


async def test_who_may_not_search(slapd: Server) -> None:
    """That is a failure, and no answer about the login."""
    for way in ({"search_password": "wrong"}, {"base": "dc=b,dc=test"}, {"filter": "(uid={user}"}):
        with pytest.raises(PluginFailed) as caught:
            await login(load(slapd, **SEARCH | way))
        assert "LdapFailed" in caught.value.problem


@pytest.mark.parametrize(
    "answer", [b"", b"220 smtp\r\n", b"\x30\x84\x7f\xff\xff\xff", b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x33"]
)
@pytest.mark.parametrize("stays", [False, True])
async def test_slow_and_wrong(answer: bytes, stays: bool) -> None:
    async with answering(answer, asked=b"", stays=stays) as port:
        for how in ("closed", "open"):
            host = load(f"ldap://127.0.0.1:{port}", **NAMED, timeout_s=0.5, failing=how)
            if how == "open":
                assert await login(host) == ""
            else:
                with pytest.raises(PluginFailed):
                    await login(host)


async def test_many_at_once(slapd: Server) -> None:
    host = load(slapd, **NAMED, connections=2, remember_s=0, remember_no_s=0)
    logins = [login(host, *one) for one in PEOPLE.items() for _ in range(5)]
    assert sorted(await asyncio.gather(*logins)) == sorted([*PEOPLE] * 5)


def test_through_the_mta(slapd: Server, start_mta: Any, tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_bytes(self_made("mta.test"))
    port = free_port()
    running = start_mta(
        f"[plugins]\nenabled = ['ldap_auth']\n[plugins.options.ldap_auth]\nurl = 'ldap://127.0.0.1:{slapd.where}'\n"
        f"dn = '{NAMED['dn']}'\n"
        f"[[listeners]]\nname = 'submission'\nport = {port}\ntls = 'starttls'\nauth = true\nrequire_tls = true\n"
        f"certificate = '{tmp_path}/certificate.pem'\nrelay_networks = []\n"
    )
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        client.starttls()
        client.login("ann", "correct horse")
        client.sendmail("ann@a.test", ["bob@b.test"], "Subject: x\r\n\r\ntext\r\n")
    assert b"\r\nSubject: x\r\n" in running.came("bob@b.test").body
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        client.starttls()
        with pytest.raises(smtplib.SMTPAuthenticationError) as caught:
            client.login("ann", "wrong")
        assert caught.value.smtp_code == 535


def test_the_example_of_its_page() -> None:
    import plugins.ldap_auth as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"url": "ldap.example.com"}, "is not a URL such as ldaps:"),
        ({"url": "ldap://ldap.example.com"}, "must not travel in the clear; use ldaps, or starttls"),
        ({"dn": ""}, "give dn, or base and filter"),
        ({"dn": "uid=x"}, "dn must have {user} in it"),
        ({"dn": "", "base": "dc=x", "filter": "(uid=*)"}, "filter must have {user} in it"),
        ({"search_dn": "cn=x"}, "belong together"),
        ({"ca_file": "/nowhere"}, "there is no such file"),
        ({"timeout_s": 40}, "must be below plugins.timeout_s, which is 30"),
    ],
)
def test_mistakes(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(**({"url": "ldaps://x"} | NAMED | more))
    assert sentence in str(caught.value)
