"""A webhook receiver that checks signatures and drops what it has already, with the standard library alone.

AUDIT_SECRET=audit python examples/receiver.py 9001
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar


def is_genuine(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether the delivery was signed with ``secret`` within the last five minutes (Standard Webhooks)."""
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > 300:
        return False
    signed = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    right = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(right.encode(), one.encode()) for one in given)


class Receiver(BaseHTTPRequestHandler):
    """Prints each event once. A real one would keep ``seen`` where it keeps what it does with events."""

    seen: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        """204 for what was taken, also a second time; 401 for what is not genuine."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        if not is_genuine(os.environ["AUDIT_SECRET"], headers, body):
            self.send_error(401)
            return
        if headers["webhook-id"] not in self.seen:
            self.seen.add(headers["webhook-id"])
            event = json.loads(body)
            print(event["type"], event["data"], flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: events are printed, requests are not."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
