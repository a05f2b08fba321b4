"""`posthouse serve` as processes: news comes in over HTTP, and none that was answered for is lost."""

from __future__ import annotations

import json
import socketserver
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from posthouse.store.schema import events
from tests.acceptance.installation import Installation, email, until
from tests.acceptance.postgres_outage import StoppablePostgres
from tests.contract.webhook_cases import RESEND, sign_as_svix


class Silent(socketserver.ThreadingTCPServer):
    """A provider whose answers are lost: it takes each message and hangs up."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HangsUp)
        self.taken: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _HangsUp(socketserver.StreamRequestHandler):
    server: Silent

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.server.taken.append(json.loads(self.rfile.read(length)))


@pytest.fixture
def silent() -> Iterator[Silent]:
    with Silent() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def route(url: str = "http://127.0.0.1:1") -> Mapping[str, object]:
    return {"provider": "resend", "api_key": "key", "url": url, "webhook_secrets": [RESEND.secret]}


def post(url: str, item: Any, message_id: str = "msg_1") -> int:
    """One call of Resend's, signed now; the status it is answered with, 0 where nobody answers."""
    call = sign_as_svix(RESEND.secret, RESEND.body(item), time.time(), message_id)
    return status(urllib.request.Request(f"{url}/webhooks/main", call.body, dict(call.headers)))  # noqa: S310


def status(request: urllib.request.Request | str) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310  # our own server
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def delivered(our_id: str) -> Any:
    """What Resend tells of a message under our id."""
    item = RESEND.told["delivered"].item
    return {**item, "data": item["data"] | {"tags": {"posthouse_id": our_id}}}


def test_an_event_says_what_became_of_a_send_whose_answer_was_lost(on_sqlite: Installation, silent: Silent) -> None:
    on_sqlite.configure({"main": route(silent.url)})
    on_sqlite.enqueue([email(1, to="ada@example.com")])
    worker = on_sqlite.worker()
    on_sqlite.until_status({"unknown": 1})
    our_id = silent.taken[0]["tags"][0]["value"]
    server, url = on_sqlite.server()

    assert post(url, delivered(our_id)) == 200

    on_sqlite.until_status({"accepted": 1})
    row = on_sqlite.row("k-1")
    assert (row["delivery"], row["message_id"], row["maybe_duplicate"]) == ("delivered", "m-1", False)
    shown = on_sqlite.run("show", "k-1")
    assert [(told["kind"], told["route"]) for told in shown["events"]] == [("delivered", "main")]
    assert worker.stopped() == 0
    assert server.stopped() == 0


def test_while_the_database_is_away_nothing_is_taken_in_and_nothing_is_lost(
    on_own_postgresql: Installation, own_postgres: StoppablePostgres
) -> None:
    on_own_postgresql.configure({"main": route()})
    server, url = on_own_postgresql.server()
    assert (status(f"{url}/readyz"), post(url, delivered("x"))) == (200, 200)

    own_postgres.stop()
    assert post(url, delivered("y"), message_id="msg_2") == 503
    assert (status(f"{url}/healthz"), status(f"{url}/readyz")) == (200, 503)

    own_postgres.bring_back()
    on_own_postgresql.reconnect()
    assert post(url, delivered("y"), message_id="msg_2") == 200
    assert (status(f"{url}/readyz"), heard(on_own_postgresql)) == (200, ["x", "y"])
    assert server.times_said("webhooks are sent away, to be sent again") == 1
    assert "Traceback" not in server.log
    assert server.stopped() == 0


def heard(installation: Installation) -> list[str]:
    """The ids that came in events."""
    with installation.database.read() as connection:
        return sorted(map(str, connection.scalars(select(events.c.send_key))))


def test_what_was_answered_for_is_kept_when_servers_are_stopped(installation: Installation) -> None:
    installation.configure({"main": route()})
    servers = [installation.server() for _ in range(2)]
    answered: dict[str, int] = {}

    def tell(number: int) -> None:
        """The same news to both servers at once, until neither listens."""
        for count in range(1000):
            name = f"{number}-{count}"
            url = servers[(number + count) % 2][1]
            if (said := post(url, delivered(name), message_id=f"msg_{name}")) == 0:
                return
            answered[name] = said

    with ThreadPoolExecutor(4) as threads:
        telling = [threads.submit(tell, number % 2) for number in range(4)]
        until(lambda: len(answered) > 10, "several are answered")
        codes = [server.stopped() for server, _ in servers]
        for one in telling:
            one.result()

    assert codes == [0, 0]
    assert set(answered.values()) == {200}
    assert set(answered) <= set(heard(installation))
    assert len(heard(installation)) == len(set(heard(installation))), "each counts once"
    for server, _ in servers:
        assert "Traceback" not in server.log
