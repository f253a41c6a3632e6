"""A receiver of webhooks: writes "id subject" of every event that comes to a file, then says 204.

python -m brokers.http_receiver PORT FILE
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    file = Path("/dev/null")

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.file.open("a") as out:
            out.write("".join(f"{row['id']} {row.get('subject', '')}\n" for row in rows))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The MTA says what went wrong."""


if __name__ == "__main__":
    Handler.file = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
