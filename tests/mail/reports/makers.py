"""Reports as twenty-odd makers send them, in our own words and with addresses of documentation: how their mail is
built, how the file is packed, named and declared, and what is odd about their XML or JSON.

`DMARC` and `TLS` have (maker, message, what is in it). Of the senders 192.0.2.0/28 and 2001:db8::/64 are ours.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import quopri
import textwrap
import zipfile
from typing import Any

BEGIN, END = 1_795_824_000, 1_795_910_399
OURS = ("192.0.2.", "2001:db8:0:0:", "2001:db8::")


def is_ours(ip: str) -> bool:
    return ip.startswith(OURS)


def zipped(name: str, content: str | bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def gzipped(content: str | bytes) -> bytes:
    return gzip.compress(content.encode() if isinstance(content, str) else content)


def encoded(content: bytes, coding: str = "base64") -> bytes:
    if coding == "base64":
        return base64.encodebytes(content).replace(b"\n", b"\r\n")
    return quopri.encodestring(content) if coding == "quoted-printable" else content


def single(author: str, subject: str, kind: str, content: bytes, coding: str = "base64", more: str = "") -> bytes:
    """A message that is nothing but the file."""
    head = f"""\
        From: {author}
        To: dmarc@example.com
        Subject: {subject}
        Date: Mon, 30 Nov 2026 03:00:00 +0000
        Message-ID: <{abs(hash(subject))}@maker.example>
        MIME-Version: 1.0
        Content-Type: {kind}
        Content-Transfer-Encoding: {coding}
        """
    return f"{textwrap.dedent(head)}{more}\n".replace("\n", "\r\n").encode() + encoded(content, coding)


def mixed(
    author: str, subject: str, kind: str, content: bytes, *, coding: str = "base64", whole: str = "multipart/mixed",
    text: str = "A report is attached.", disposition: str = "attachment", html: str = "",
) -> bytes:  # fmt: skip
    """A message with words and a file."""
    page = f"--b0\nContent-Type: text/html\n\n{html}\n" if html else ""
    head = (
        f"From: {author}\nTo: dmarc@example.com\nSubject: {subject}\nDate: Mon, 30 Nov 2026 03:00:00 +0000\n"
        f'MIME-Version: 1.0\nContent-Type: {whole}; boundary="b0"\n\nThis is MIME.\n--b0\n'
        f"Content-Type: text/plain; charset=utf-8\n\n{text}\n{page}--b0\nContent-Type: {kind}\n"
        f"Content-Transfer-Encoding: {coding}\nContent-Disposition: {disposition}\n\n"
    )
    return head.replace("\n", "\r\n").encode() + encoded(content, coding) + b"\r\n--b0--\r\n"


def row(
    ip: str = "192.0.2.9", count: Any = 10, dkim: str = "pass", spf: str = "pass", *, disposition: str = "none",
    author: str = "example.com", results: str | None = None, reasons: str = "", identifiers: str | None = None,
) -> str:  # fmt: skip
    if results is None:
        results = (
            f"<dkim><domain>example.com</domain><selector>s1</selector><result>{dkim}</result></dkim>"
            f"<spf><domain>bounce.example.com</domain><scope>mfrom</scope><result>{spf}</result></spf>"
        )
    if identifiers is None:
        identifiers = f"<identifiers><header_from>{author}</header_from></identifiers>"
    return (
        f"<record><row><source_ip>{ip}</source_ip><count>{count}</count><policy_evaluated><disposition>{disposition}"
        f"</disposition><dkim>{dkim}</dkim><spf>{spf}</spf>{reasons}</policy_evaluated></row>{identifiers}"
        f"<auth_results>{results}</auth_results></record>"
    )


def report(
    org: str, number: str, *rows: str, head: str = '<?xml version="1.0" encoding="UTF-8" ?>', root: str = "feedback",
    attributes: str = "", version: str = "<version>1.0</version>", domain: str = "example.com", begin: Any = BEGIN,
    end: Any = END, published: str = "<p>quarantine</p><sp>none</sp><pct>100</pct>", meta: str = "",
) -> str:  # fmt: skip
    return (
        f"{head}\n<{root}{attributes}>\n{version}<report_metadata><org_name>{org}</org_name>"
        f"<email>reports@{number}.example</email>{meta}<report_id>{number}</report_id>"
        f"<date_range><begin>{begin}</begin><end>{end}</end></date_range></report_metadata>\n"
        f"<policy_published><domain>{domain}</domain><adkim>r</adkim><aspf>r</aspf>{published}</policy_published>\n"
        f"{''.join(rows)}</{root.split()[0]}>\n"
    )


def name_of(org: str, ending: str) -> str:
    return f"{org}!example.com!{BEGIN}!{END}{ending}"


def _prefixed(text: str, prefix: str) -> str:
    """With a namespace's prefix before every element."""
    return (
        text.replace("</", "\0").replace("<", f"<{prefix}:").replace("\0", f"</{prefix}:").replace(f"<{prefix}:?", "<?")
    )


TWO = row(), row("203.0.113.7", 3, "fail", "fail", disposition="quarantine")
_FORWARDED = "<reason><type>forwarded</type><comment>looks forwarded</comment></reason>"
_SEVERAL = (
    "<dkim><domain>esp.example</domain><result>pass</result></dkim>"
    "<dkim><domain>example.com</domain><selector>a</selector><result>fail</result><human_result>bad body</human_result>"
    "</dkim><dkim><domain>news.example.com</domain><result>pass</result></dkim>"
    "<spf><domain>esp.example</domain><result>softfail</result></spf>"
)

DMARC: list[tuple[str, bytes, dict[str, Any]]] = [
    (
        "google",
        single(
            "noreply-dmarc-support@google.example", "Report domain: example.com Submitter: google Report-ID: 17",
            f'application/zip; name="{name_of("google.example", ".zip")}"',
            zipped(name_of("google.example", ".xml"), report("google.example", "17", *TWO)),
            more=f'Content-Disposition: attachment; filename="{name_of("google.example", ".zip")}"\n',
        ),
        {"org": "google.example", "id": "17", "messages": 13, "passed": 10, "ours": 10, "ours_passed": 10},
    ),
    (
        "outlook",
        mixed(
            '"DMARC Aggregate Report" <dmarcreport@outlook.example>',
            "Report Domain: example.com Submitter: protection.outlook.example Report-ID: 4af0",
            "application/gzip", gzipped(report("Enterprise Outlook", "4af0", row(
                identifiers="<identifiers><envelope_to>rcpt.example</envelope_to><envelope_from>bounce.example.com"
                "</envelope_from><header_from>example.com</header_from></identifiers>"), attributes=' xmlns:xsi='
                '"http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema"',
                head='<?xml version="1.0"?>', published="<p>none</p><sp>none</sp><pct>100</pct><fo>0</fo>")),
            disposition=f'attachment; filename="{name_of("outlook.example", ".xml.gz")}"',
            html="<div><style>p{}</style>This is a DMARC aggregate report. &copy;</div>", whole="multipart/related",
        ),
        {"org": "Enterprise Outlook", "messages": 10, "ours_passed": 10},
    ),
    (
        "yahoo",
        mixed(
            "Yahoo! <noreply@dmarc.yahoo.example>", "Report Domain: example.com Submitter: Yahoo Report-ID: <1764.2>",
            "application/gzip; name=yahoo.example!example.com.xml.gz",
            gzipped(report("Yahoo", "1764.2", row(count=" 7 \n"), row("2001:DB8:0:0:0:0:0:25", 2, "fail", "pass"))),
        ),
        {"messages": 9, "passed": 9, "ours": 9, "ours_passed": 9},
    ),
    (
        "mail.ru",
        single(
            "dmarc_support@corp.mail.example", "Report Domain: example.com; Submitter: Mail; Report-ID: 88",
            "application/octet-stream; name=report.gz", gzipped(report("Mail", "88", row(reasons=_FORWARDED))),
        ),
        {"messages": 10, "ours": 10},
    ),
    (
        "fastmail",
        mixed(
            "reports@fastmaildmarc.example", "Report Domain: example.com Submitter: fastmaildmarc.example",
            "application/gzip", gzipped(report("FastMail Pty Ltd", "f1", *TWO, version="")),
        ),
        {"messages": 13, "passed": 10},
    ),
    (
        "comcast",
        mixed(
            "dmarc_noreply@cable.example", "Report Domain: example.com Submitter: cable.example",
            "application/x-gzip", gzipped(report("Cable", "c", row(count=1), head="<?xml version='1.0'?>",
                                                 published="<p>REJECT</p><pct></pct>")),
        ),
        {"messages": 1, "policy": {"p": "reject", "adkim": "r", "aspf": "r"}},
    ),
    (
        "gmx",
        mixed(
            "noreply@sicher.gmx.example", "Report Domain: example.com Submitter: gmx.example Report-ID: 9",
            "application/gzip", gzipped("\ufeff" + report("GMX", "9", row(dkim="pass", spf="fail"))),
            whole="multipart/report; report-type=dmarc",
        ),
        {"messages": 10, "passed": 10},
    ),
    (
        "web.de",
        mixed(
            "noreply@sicher.web.example", "Report Domain: example.com", "text/plain; name=report.xml.gz",
            gzipped(report("WEB.DE", "w", row(results=""), row(count="4.0", results="<spf/><dkim/>"))),
        ),
        {"messages": 14, "ours_passed": 14},
    ),
    (
        "ses",
        mixed(
            "postmaster@amazonses.example", "Dmarc Aggregate Report Domain: {example.com} Submitter: {SES} Report-ID:",
            "application/octet-stream", gzipped(report("AMAZON-SES", "s3", *TWO, meta="<extra_contact_info/>")),
            disposition='attachment; filename="amazonses.example!example.com!1.xml.gz"',
        ),
        {"messages": 13},
    ),
    (
        "mimecast",
        mixed(
            "no-reply@dmarc.gateway.example", "Report Domain: example.com Submitter: gateway.example Report-ID: m-1",
            "application/zip", zipped("report.xml", report("Gateway", "m-1", row(), begin=f"{BEGIN}.0", end=""))),
        {"messages": 10, "begin_s": BEGIN, "end_s": BEGIN + 86_399},
    ),
    (
        "cisco",
        mixed(
            "MAILER-DAEMON@esa.example", "DMARC Aggregate Report: example.com", "application/gzip; charset=binary",
            gzipped(report("esa.example", "20261129@esa", row(
                "::ffff:192.0.2.9", 5, results=_SEVERAL, dkim="fail", spf="fail"))),
        ),
        {"messages": 5, "ours": 5, "ours_passed": 0},
    ),
    (
        "proofpoint",
        mixed(
            "dmarc@ppops.example", "Report domain: example.com", "application/x-zip-compressed",
            zipped("a/b/report.XML", report("ppops", "p", *TWO, attributes=' xmlns="http://dmarc.org/dmarc-xml/0.1"')),
        ),
        {"messages": 13},
    ),
    (
        "zoho",
        mixed(
            "noreply-dmarc@zoho.example", "Report Domain: example.com", "application/zip; name=report.xml",
            zipped("r.xml", report("Zoho", "z", row(reasons=f"<reason><type>other</type></reason>{_FORWARDED}"))),
        ),
        {"messages": 10},
    ),
    (
        "seznam",
        mixed(
            "abuse@seznam.example", "=?utf-8?q?Report_Domain=3A_example=2Ecom?=", "text/xml; charset=utf-8",
            report("Seznam, a.s.", "sz", row("198.51.100.1", 2, "fail", "fail")).encode(), coding="quoted-printable"),
        {"messages": 2, "ours": 0, "passed": 0},
    ),
    (
        "xs4all",
        mixed(
            "postmaster@xs.example", "Report Domain: example.com Submitter: xs.example", "application/xml",
            report("XS", "x4", *TWO).encode(), coding="8bit", disposition="inline"),
        {"messages": 13},
    ),
    (
        "linkedin",
        mixed(
            "dmarc-noreply@linked.example", "Report Domain: example.com", "application/gzip",
            gzipped(_prefixed(report("linked", "li", *TWO, attributes=' xmlns:d="urn:x"'), "d")),
        ),
        {"messages": 13, "passed": 10},
    ),
    (
        "amx",
        mixed(
            "amx@amx.example", "Report", "application/gzip; name=x.zip",
            gzipped(report("AT&T AMX", "amx", row(count="1,024"))),
        ),
        {"org": "AT&T AMX", "messages": 1024},
    ),
    (
        "opendmarc",
        mixed(
            "root@mx.example", "Report Domain: example.com Submitter: mx.example Report-ID: example.com-1@mx.example",
            "application/zip", zipped("mx.xml", report("mx.example", "o", row(
                identifiers="<identifiers></identifiers>"), row(identifiers="", count=2), version="", meta="<error>none"
                "</error>"))),
        {"messages": 12, "errors": ["none"]},
    ),
    (
        "docomo",
        mixed(
            "dmarc@docomo.example", "=?ISO-2022-JP?B?GyRCJWwlXSE8JUgbKEI=?=", "application/gzip",
            gzipped(report("ドコモ", "jp", row(), head='<?xml version="1.0" encoding="utf-16"?>')),
        ),
        {"org": "ドコモ", "messages": 10},
    ),
    (
        "trend",
        mixed(
            "dmarc@trend.example", "Report Domain: example.com", "application/zip",
            zipped("utf16.xml", report("Trend", "t", row(), head='<?xml version="1.0" encoding="utf-16"?>')
                   .encode("utf-16")),
        ),
        {"org": "Trend", "messages": 10},
    ),
    (
        "latin",
        mixed("d@old.example", "Report", "application/gzip",
              gzipped(report("Société", "l", row()).encode("latin-1"))),
        {"org": "Société", "messages": 10},
    ),
    (
        "rfc 9990",
        mixed(
            "d@new.example", "Report Domain: example.com", "application/gzip",
            gzipped(report("new.example", "n", row(disposition="pass"), attributes=' xmlns="urn:ietf:params:xml:ns:'
                           'dmarc-2.0"', meta="<generator>x 1</generator>", published="<p>none</p><np>reject</np>"
                           "<testing>n</testing><discovery_method>treewalk</discovery_method>")),
        ),
        {"messages": 10, "policy": {"p": "none", "np": "reject", "testing": "n", "discovery_method": "treewalk",
                                    "adkim": "r", "aspf": "r"}},
    ),
    (
        "no verdict",
        mixed(
            "d@bare.example", "Report", "application/gzip",
            gzipped("<feedback><report_metadata><org_name/><email>x@bare.example</email><report_id>b</report_id>"
                    f"<date_range><begin>{BEGIN}</begin></date_range></report_metadata><record><row><source_ip>"
                    "192.0.2.4</source_ip><count>3</count></row><identifiers><header_from>Example.COM.</header_from>"
                    "</identifiers><auth_results><dkim><domain>mail.example.com</domain><result> PASS </result></dkim>"
                    "</auth_results></record></feedback>"),
        ),
        {"org": "bare.example", "domain": "example.com", "messages": 3, "ours_passed": 3},
    ),
    (
        "forwarded",
        b"From: me@example.com\r\nTo: dmarc@example.com\r\nSubject: Fwd: report\r\nMIME-Version: 1.0\r\n"
        b'Content-Type: multipart/mixed; boundary="f"\r\n\r\n--f\r\nContent-Type: text/plain\r\n\r\nbelow\r\n--f\r\n'
        b"Content-Type: message/rfc822\r\n\r\n"
        + single("a@b.example", "Report", "application/zip", zipped("r.xml", report("Fwd", "f", row())))
        + b"\r\n--f--\r\n",
        {"org": "Fwd", "messages": 10},
    ),
]  # fmt: skip


def tls(org: str, number: str, *policies: Any, **more: Any) -> dict[str, Any]:
    dates = {"start-datetime": "2026-11-29T00:00:00Z", "end-datetime": "2026-11-29T23:59:59Z"}
    return {"organization-name": org, "date-range": dates, "contact-info": f"tls@{number}.example", "report-id": number,
            "policies": list(policies)} | more  # fmt: skip


def policy(good: Any = 90, bad: Any = 0, *failures: dict[str, Any], kind: str = "sts", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "policy": {"policy-type": kind, "policy-domain": "example.com", "mx-host": ["mx.example.com"],
                   "policy-string": ["version: STSv1", "mode: enforce"]} | more,
        "summary": {"total-successful-session-count": good, "total-failure-session-count": bad},
    }  # fmt: skip
    return found | ({"failure-details": list(failures)} if failures else {})


EXPIRED = {"result-type": "certificate-expired", "sending-mta-ip": "198.51.100.2", "receiving-mx-hostname":
           "mx.example.com", "receiving-ip": "192.0.2.1", "failed-session-count": 7}  # fmt: skip


def _posted(author: str, content: bytes, kind: str = "application/tlsrpt+gzip", whole: str = "report") -> bytes:
    return mixed(
        author, "Report Domain: example.com Submitter: x Report-ID: <y>", kind, content,
        whole=f"multipart/{whole}" + ("; report-type=tlsrpt" if whole == "report" else ""),
    )  # fmt: skip


TLS: list[tuple[str, bytes, dict[str, Any]]] = [
    (
        "google", _posted("noreply-smtp-tls-reporting@google.example",
                          gzipped(json.dumps(tls("Google", "g", policy(90, 7, EXPIRED))))),
        {"org": "Google", "sessions": 97, "failed": 7, "failures": [{
            "kind": "certificate-expired", "policy": "sts", "domain": "example.com", "mx": "mx.example.com",
            "ip": "192.0.2.1", "source": "198.51.100.2", "count": 7}]},
    ),
    (
        "outlook", _posted("tlsrpt-noreply@outlook.example", gzipped(json.dumps(tls(
            "Microsoft", "m", policy("1200", "0"), policy(3.0, 1.0, EXPIRED | {"failed-session-count": "1"},
                                                          kind="tlsa"), policy(kind="no-policy-found"))))),
        {"sessions": 1294, "failed": 1},
    ),
    (
        "mail.ru", single("tls@mail.example", "Report", "application/json",
                          json.dumps(tls("Mail", "r", policy(5), **{"contact-info": None})).encode(), "8bit"),
        {"sessions": 5, "failed": 0},
    ),
    (
        "comcast", _posted("tls@cable.example", zipped("x.json", json.dumps(tls("Cable", "c", policy(
            2, 0, EXPIRED, **{"mx-host": "mx.example.com", "policy-string": "none"}))))),
        {"sessions": 9, "failed": 7},
    ),
    (
        "one policy", _posted("tls@one.example", gzipped(json.dumps(tls("One", "o") | {"policies": policy(4)})),
                              whole="mixed"),
        {"sessions": 4, "failed": 0},
    ),
    (
        "underscores", _posted("tls@under.example", gzipped(json.dumps({
            "organization_name": "Under", "report_id": "u", "date_range": {"start_datetime": BEGIN * 1000},
            "policies": [{"policy": {"policy_type": "STS", "policy_domain": "Example.com."}, "summary": {},
                          "failure_details": {"result_type": "starttls-not-supported", "failed_session_count": 2}}]}))),
        {"sessions": 2, "failed": 2, "begin_s": BEGIN, "domain": "example.com"},
    ),
    (
        "listed", _posted("tls@list.example", gzipped("\ufeff" + json.dumps([tls("List", "l", policy(1), {}, None)]))),
        {"sessions": 1, "failed": 0},
    ),
]  # fmt: skip
