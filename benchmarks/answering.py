"""A local HTTP server that answers at once: as little work as HTTP allows, in a process of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_ANSWER: Final = b'{"id": "m-0001", "MessageID": "m-0001", "ErrorCode": 0}'


class _Answering(asyncio.Protocol):
    """Reads requests with a Content-Length and answers each with the same bytes: a list has as many as messages."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            many = b", ".join([_ANSWER] * body.count(b'"MessageStream"'))
            answer = b"[" + many + b"]" if body.startswith(b"[") else _ANSWER
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(_HEAD % len(answer) + answer)


def _serve(listening: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, sock=listening)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def answering_server() -> Iterator[str]:
    """The server's URL, while it runs."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listening,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1/send"
    finally:
        process.terminate()
        process.join()
        listening.close()
