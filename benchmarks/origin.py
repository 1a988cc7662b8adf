"""A small HTTP server for benchmarks: keep-alive, an ETag, 304 for whoever sends it. Run as a process of its own.

python benchmarks/origin.py PORT
"""

from __future__ import annotations

import asyncio
import json
import sys

ETAG = b'"v1"'
BODY = json.dumps({"symbol": "A", "price": 1.5, "pad": "x" * 250}).encode()
FULL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: %s\r\nContent-Length: %d\r\n\r\n%s" % (
    ETAG,
    len(BODY),
    BODY,
)
SAME = b"HTTP/1.1 304 Not Modified\r\nETag: %s\r\nContent-Length: 0\r\n\r\n" % ETAG


class Origin(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        *heads, self.rest = (self.rest + data).split(b"\r\n\r\n")
        for head in heads:
            self.transport.write(SAME if ETAG in head else FULL)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Origin, "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
