"""A name server for the trials: MX and A records out of a dict, NXDOMAIN for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Records = Mapping[tuple[str, str], str]
"""(name, kind) → the record's value, as in a zone file."""
_SOA = "ns.test. hostmaster.test. 1 3600 600 86400 60"


class NameServer(asyncio.DatagramProtocol):
    """records may change while it runs."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, client: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        value = self.records.get((name, kind))
        if value is not None:
            answer.answer.append(dns.rrset.from_text(f"{name}.", 300, "IN", kind, value))
        else:
            if not any(known == name for known, _ in self.records):
                answer.set_rcode(dns.rcode.NXDOMAIN)
            answer.authority.append(dns.rrset.from_text("test.", 60, "IN", "SOA", _SOA))
        self._transport.sendto(answer.to_wire(), client)


@asynccontextmanager
async def name_server(records: Records) -> AsyncIterator[NameServer]:
    """On a free port of 127.0.0.1."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: NameServer(records), local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()
