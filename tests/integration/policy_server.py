"""What Postfix asks at every step of a conversation (`check_policy_service`), answered by the test."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Mapping

Attributes = Mapping[str, str]
"""What Postfix knows: `protocol_state` (RCPT, DATA, END-OF-MESSAGE), `recipient`, `sender`, …"""

Policy = Callable[[Attributes], str]
"""What to do, in the words of access(5): `DUNNO`, `REJECT`, `defer_if_permit 4.2.0 Greylisted`."""


def go_on(_: Attributes) -> str:
    """The policy of a server that has nothing against it."""
    return "DUNNO"


class PolicyServer:
    """Listens on a free port of 127.0.0.1, in threads. Set `policy` to what a test needs."""

    def __init__(self) -> None:
        self.policy: Policy = go_on
        owner = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while attributes := _request(self.rfile.readline):
                    self.wfile.write(f"action={owner.policy(attributes)}\n\n".encode())

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="policy")
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True  # they wait for requests of a Postfix that has ended
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Postfix's end was killed: the tests do that."""


def _request(readline: Callable[[], bytes]) -> Attributes:
    """`name=value` lines up to an empty one; empty where the connection has ended."""
    attributes: dict[str, str] = {}
    while line := readline().decode().rstrip("\n"):
        name, _, value = line.partition("=")
        attributes[name] = value
    return attributes
