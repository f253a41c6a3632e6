"""One SMTP connection of the sink: commands out of one buffer, replies gathered into one write.

Where a reply is to wait, the connection stops reading until it was given; what the client pipelined meanwhile stays in
the buffer. What follows STARTTLS in the same segment is thrown away (RFC 3207 4.2, RFC 2920 3.1).
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import cast

from zonemta_py.mail import limits
from zonemta_py.sink.body import SinkBody
from zonemta_py.sink.record import Capture, ReceivedMessage
from zonemta_py.sink.rules import SinkRule
from zonemta_py.sink.service import Service, SinkThrottle

_PATH = r':[ ]?<((?:"(?:\\.|[^"\\])*"|[^>"])*)>[ ]*(.*)'
_MAIL = re.compile(r"MAIL FROM" + _PATH, re.IGNORECASE)
_RCPT = re.compile(r"RCPT TO" + _PATH, re.IGNORECASE)
_SIZE = re.compile(r"(?:^| )SIZE=(\d{1,20})(?: |$)", re.IGNORECASE)
_RESET = struct.pack("ii", 1, 0)
_GARBAGE = "\x01\x7f!! not smtp at all"
_RECIPIENTS_MAX = 100_000


class SinkSession(asyncio.Protocol):
    """Speaks with one client."""

    def __init__(self, service: Service) -> None:
        self._service, self._prompt = service, service.prompt
        self._counters = service.recorder.counters
        self._input, self._output = b"", list[str]()
        self._waiting = self._deaf = self._tls_next = self._body_new = False
        self._body: SinkBody | None = None
        self._capture: Capture | None = None
        self._client = self._helo = self._tls = ""
        self._port = self._number = 0
        self._sender: str | None = None
        self._recipients: list[str] = []
        self._parameters: list[str] = []

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, but does not say so
        self._client = str((transport.get_extra_info("peername") or ("", 0))[0])
        server, self._port = (transport.get_extra_info("sockname") or ("", 0))[:2]
        self._tls = _tls_name(transport)
        self._timeline = self._service.recorder.timeline
        self._counters.connections += 1
        self._number = self._counters.connections
        if self._timeline is not None:
            self._timeline.connection("connect", self._client, self._number, server)
        self._counters.open += 1
        self._service.sessions.add(self)
        self._answer("connect", [self._client], f"220 {self._service.options.hostname} ESMTP sink")
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timeline is not None:
            self._timeline.connection("close", self._client, self._number)
        self._counters.open -= 1
        self._service.sessions.discard(self)
        self._deaf = True
        self._drop_capture()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._input:
            data = self._input + data
        self._input = data
        if not self._waiting:
            self._consume(data)

    def _consume(self, data: bytes) -> None:
        position = 0
        while not self._waiting and not self._deaf:
            if self._body is not None:
                if self._body_new and not self._begin_body(position < len(data)):
                    break
                end = self._body.feed(data, position)
                if end < 0:
                    position = len(data)
                    break
                position = end
                self._dot()
                continue
            end = data.find(b"\r\n", position)
            if end < 0:
                break
            line = data[position:end]
            position = end + 2
            self._command(line)
        # Nothing that came in the clear after STARTTLS may count as sent under TLS.
        self._input = b"" if self._deaf or self._tls_next else data[position:]
        if self._body is None and self._input:
            self._check_rest()
        if self._output:
            self._flush()

    def _check_rest(self) -> None:
        if not self._waiting and (len(self._input) > limits.COMMAND_BYTES_MAX or b"\n" in self._input):
            self._output.append("500 5.5.2 Command lines end with CRLF and are short")
            self._hang_up()

    def _flush(self) -> None:
        if self._output:
            self._output.append("")
            self._transport.write("\r\n".join(self._output).encode("utf-8", "surrogateescape"))
            self._output.clear()

    def _hang_up(self) -> None:
        self._flush()
        self._deaf = True
        self._transport.close()

    def abort(self) -> None:
        """Cuts the connection off, as a machine that loses its power would."""
        self._transport.abort()

    # ------------------------------------------------------------------ replies

    def _answer(self, stage: str, subjects: list[str], usual: str, then: Callable[[], None] | None = None) -> None:
        """Sends the usual reply, or a rule's; `then` is done first if the reply is positive."""
        if self._prompt:
            if then is not None:
                then()
            self._output.append(usual)
            return
        rule = self._service.rule(stage, subjects)
        if then is not None and (rule is None or 200 <= rule.code < 400):
            then()
        if rule is None:
            self._later(self._service.delay_s(stage, None), usual)
        else:
            self._answer_rule(stage, rule)

    def _answer_rule(self, stage: str, rule: SinkRule) -> None:
        replies, name = self._counters.replies, f"{stage} {rule.code or rule.action}"
        replies[name] = replies.get(name, 0) + 1
        self._later(self._service.delay_s(stage, rule), rule.action)

    def _later(self, seconds: float, action: str) -> None:
        if not seconds:
            self._act(action)
            return
        self._flush()
        self._waiting = True
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(seconds, self._resume, action)

    def _resume(self, action: str) -> None:
        if self._deaf:
            return
        self._waiting = False
        self._transport.resume_reading()
        self._act(action)
        self._flush()
        if self._tls_next and not self._deaf:
            self._begin_tls()
        elif self._input and not self._deaf:
            self._consume(self._input)

    def _act(self, action: str) -> None:
        if action == "close":
            self._hang_up()
        elif action == "reset":
            self._reset_connection()
        elif action == "silent":
            self._flush()
            self._deaf = True
        elif action == "half":
            self._flush()
            self._transport.write(b"25")
            self._deaf = True
        else:
            self._output.append(_GARBAGE if action == "garbage" else action)
            if action.startswith(("221", "421")):
                self._hang_up()

    def _reset_connection(self) -> None:
        self._deaf = True
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    # ------------------------------------------------------------------ commands

    def _command(self, raw: bytes) -> None:
        handler = _COMMANDS.get(raw[:4].upper())
        if b"\n" in raw or handler is None:
            self._output.append("500 5.5.2 Command not recognized")
            return
        handler(self, raw.decode("utf-8", "surrogateescape"))

    def _ehlo(self, line: str) -> None:
        options = self._service.options
        name = line[5:].strip()
        lines = [options.hostname]
        if line[:4].upper() == "EHLO":
            lines += [
                x for x in options.capabilities if x.upper() != "STARTTLS" or (options.starttls and not self._tls)
            ]
        usual = "\r\n".join([f"250-{x}" for x in lines[:-1]] + [f"250 {lines[-1]}"])

        def greeted() -> None:
            self._helo = name
            self._clear()

        self._answer("ehlo", [name], usual, greeted)

    def _starttls(self, line: str) -> None:
        if not self._service.options.starttls or self._tls:
            self._output.append("502 5.5.1 TLS not offered")
            return
        self._answer("starttls", [self._helo], "220 2.0.0 Go ahead", self._expect_tls)
        if self._tls_next and not self._waiting:
            self._begin_tls()

    def _expect_tls(self) -> None:
        self._tls_next = True

    def _begin_tls(self) -> None:
        self._flush()
        self._waiting = True
        self._transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._handshake())
        self._service.tasks.add(task)
        task.add_done_callback(self._service.tasks.discard)

    async def _handshake(self) -> None:
        context = self._service.tls
        assert context is not None
        try:
            transport = await asyncio.get_running_loop().start_tls(self._transport, self, context, server_side=True)
        except OSError:  # ssl.SSLError is one; a client that cannot agree has ended the connection
            self._transport.abort()
            return
        if transport is None:
            return
        self._transport, self._tls, self._helo = transport, _tls_name(transport), ""
        self._waiting = self._tls_next = False
        self._clear()
        if self._input:
            self._consume(self._input)

    def _mail(self, line: str) -> None:
        found = _MAIL.match(line)
        if found is None:
            self._output.append("501 5.5.4 Write MAIL FROM:<address>")
            return
        if self._sender is not None:
            self._output.append("503 5.5.1 A transaction is open already")
            return
        throttle = self._service.throttle
        if throttle is not None and not throttle.allows(self._client, time.monotonic()):
            self._refuse_rate(throttle)
            return
        sender, parameters = found[1], found[2]
        if parameters and self._service.size_max:
            size = _SIZE.search(parameters)
            if size is not None and int(size[1]) > self._service.size_max:
                self._output.append("552 5.3.4 Message too big")
                return

        def begun() -> None:
            self._sender = sender
            self._parameters.append(parameters)

        self._answer("mail", [sender], "250 2.1.0 Ok", begun)

    def _refuse_rate(self, throttle: SinkThrottle) -> None:
        replies, name = self._counters.replies, f"rate {throttle.code}"
        replies[name] = replies.get(name, 0) + 1
        if self._timeline is not None:
            self._timeline.refused(self._client, self._number)
        self._act(throttle.reply(self._client))

    def _rcpt(self, line: str) -> None:
        found = _RCPT.match(line)
        if found is None or not found[1]:
            self._output.append("501 5.5.4 Write RCPT TO:<address>")
        elif self._sender is None:
            self._output.append("503 5.5.1 MAIL first")
        elif len(self._recipients) >= _RECIPIENTS_MAX:
            self._output.append("452 4.5.3 Too many recipients")
        elif self._prompt:
            self._recipients.append(found[1])
            self._parameters.append(found[2])
            self._output.append("250 2.1.5 Ok")
        else:
            address, parameters = found[1], found[2]

            def taken() -> None:
                self._recipients.append(address)
                self._parameters.append(parameters)

            self._answer("rcpt", [address], "250 2.1.5 Ok", taken)

    def _data(self, line: str) -> None:
        if not self._recipients:
            code = "503 5.5.1 RCPT first" if self._sender is None else "554 5.5.1 No valid recipients"
            self._output.append(code)
            return
        self._answer("data", self._subjects(), "354 Go on, end with a dot", self._expect_body)

    def _expect_body(self) -> None:
        recorder = self._service.recorder
        if recorder.capturing:
            self._capture = recorder.capture()
            self._body = SinkBody(self._capture.take)
        else:
            self._body = SinkBody()
        self._body_new = "body" in self._service.rules

    def _begin_body(self, arrived: bool) -> bool:
        """The rules of stage body, at the first byte; False where they end the transaction."""
        if not arrived:
            return True
        self._body_new = False
        rule = self._service.rule("body", self._subjects())
        if rule is not None:
            self._answer_rule("body", rule)
        return not self._waiting and not self._deaf

    def _dot(self) -> None:
        self._answer("dot", self._subjects(), "250 2.0.0 Ok: black hole", self._accept)
        self._drop_capture()
        self._clear()

    def _accept(self) -> None:
        assert self._body is not None
        size, recipients = self._body.size, self._recipients
        self._counters.accept(recipients, size)
        if self._timeline is not None:
            self._timeline.message(self._client, self._number, recipients, size)
        if self._capture is not None:
            message = ReceivedMessage(self._sender or "", recipients, size, client=self._client, helo=self._helo)
            message.tls, message.port, message.parameters = self._tls, self._port, self._parameters
            self._service.recorder.accept(message, self._capture)

    def _rset(self, line: str) -> None:
        self._answer("rset", [], "250 2.0.0 Ok", self._clear)

    def _noop(self, line: str) -> None:
        self._output.append("250 2.0.0 Ok")

    def _vrfy(self, line: str) -> None:
        self._output.append("252 2.1.5 Send some mail, I'll try my best")

    def _quit(self, line: str) -> None:
        if self._prompt:
            self._act("221 2.0.0 Bye")
        else:
            self._answer("quit", [], "221 2.0.0 Bye")

    def _subjects(self) -> list[str]:
        return [] if self._prompt else [self._sender or "", *self._recipients]

    def _clear(self) -> None:
        self._sender, self._body = None, None
        self._recipients, self._parameters = [], []

    def _drop_capture(self) -> None:
        if self._capture is not None:
            self._capture.drop()
            self._capture = None


_COMMANDS: dict[bytes, Callable[[SinkSession, str], None]] = {
    b"EHLO": SinkSession._ehlo,
    b"HELO": SinkSession._ehlo,
    b"STAR": SinkSession._starttls,
    b"MAIL": SinkSession._mail,
    b"RCPT": SinkSession._rcpt,
    b"DATA": SinkSession._data,
    b"RSET": SinkSession._rset,
    b"NOOP": SinkSession._noop,
    b"VRFY": SinkSession._vrfy,
    b"QUIT": SinkSession._quit,
}


def _tls_name(transport: asyncio.BaseTransport) -> str:
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return ""
    cipher = tls.cipher()
    return f"{tls.version()} {cipher[0]}" if cipher else str(tls.version())
