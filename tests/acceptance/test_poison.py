"""Rows that can't be sent, at the head of the queue: each ends alone with its reason, and the mail behind goes out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy import ColumnElement, delete, select, update

from posthouse.store.schema import contents, sends
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import POSTHOUSE, Installation, email, emails, http_route

GOOD = 50

FAULTY = (
    POSTHOUSE[0],
    "-c",
    """
from posthouse.providers.api import ApiProvider

send = ApiProvider.send

async def send_or_raise(self, message):
    if message.to[0].email.startswith("fault"):
        raise LookupError("nobody has thought of this")
    return await send(self, message)

ApiProvider.send = send_or_raise

from posthouse.cli.main import main
main()
""",
)
"""The command, with a fault in the provider's code."""

TEMPLATES = {
    "fine.subject.txt": "Order\n{{ order }}\nis on its way\n",
    "fine.txt": "Hello",
    "undefined.subject.txt": "Order {{ oder }}",
    "undefined.txt": "Hello",
    "raising.subject.txt": "Order",
    "raising.txt": "{{ 1 / order }}",
    "unfinished.subject.txt": "Order",
    "unfinished.txt": "{% if order %}Hello",
    "control.subject.txt": "Order \x07",
    "control.txt": "Hello",
}

REASONS = {
    "not-json": "its content can't be read",
    "no-content": "its content is no longer kept",
    "newer-version": "a version that this release can't read",
    "no-recipient": "the stored content is damaged",
    "no-template": "template 'nowhere': there is neither nowhere.txt nor nowhere.html",
    "undefined": "template undefined.subject.txt: UndefinedError: 'oder' is undefined",
    "raising": "template raising.txt: ZeroDivisionError: division by zero",
    "unfinished": "template unfinished.txt:",
    "control": "template control.subject.txt",
    "no-sender": "it names no sender, and the configuration has none either",
    "rude": "422",
}
"""Every poisoned send that fails, and words of its reason."""


class _Rude(BaseHTTPRequestHandler):
    """Answers with what no database can store, and a lot of it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = b"refused@" in body
        text = r'{"id": "a\u0000b", "message": "no \u0000 \ud800 ' + "x" * 100_000 + '"}'
        self.send_response(422 if refused else 200)
        self.send_header("X-Request-Id", "r" * 1000)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def rude_url() -> Iterator[str]:
    """A provider whose answers are hostile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Rude)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def write_templates(folder: Path) -> None:
    folder.mkdir()
    for name, words in TEMPLATES.items():
        (folder / name).write_text(words)


def spoil_contents(installation: Installation) -> None:
    """What somebody, or a later release, may have made of the stored contents."""

    def content_of(key: str) -> ColumnElement[bool]:
        return contents.c.send_id == select(sends.c.id).where(sends.c.dedupe_key == f"k-{key}").scalar_subquery()

    spoilt = {
        "not-json": '{"version": 1, "to": [',
        "newer-version": '{"version": 2, "to": ["ada@example.com"]}',
        "no-recipient": '{"version": 1, "subject": "Hello", "text": "Hi"}',
    }
    with installation.database.write() as connection:
        for key, body in spoilt.items():
            changed = connection.execute(update(contents).where(content_of(key)).values(body=body))
            assert changed.rowcount == 1
        connection.execute(delete(contents).where(content_of("no-content")))


def test_each_poisoned_row_ends_alone_and_the_mail_behind_goes_out(
    installation: Installation, make_sandbox: MakeSandbox, rude_url: str
) -> None:
    sandbox = make_sandbox()
    routes = {
        "main": http_route(sandbox, key=False, concurrency=2),
        "rude": {"provider": "http", "url": rude_url, "auth": "none"},
    }
    types: dict[str, dict[str, object]] = {
        "default": {"routes": ["main"], "unknown_wait": "0s"},
        "rude": {"routes": ["rude"]},
    }
    installation.configure(routes, types)
    write_templates(installation.folder / "templates")
    shop = "Shop <shop@example.com>"
    templated = {"subject": None, "text": None, "variables": {"order": 0}, "sender": shop}
    installation.enqueue(
        [
            *(email(key, sender=shop) for key in ("not-json", "no-content", "newer-version", "no-recipient")),
            email("no-template", template="nowhere", **templated),
            *(email(key, template=key, **templated) for key in ("undefined", "raising", "unfinished", "control")),
            email("no-sender"),
            email("fault", to="fault@example.com", sender=shop),
            email("rude", to="refused@example.com", type="rude", sender=shop),
            email("rude-but-accepted", to="taken@example.com", type="rude", sender=shop),
            email("two-lines", template="fine", to="lines@example.com", **templated),
            *emails(GOOD, sender=shop),
        ]
    )
    spoil_contents(installation)
    installation.configure(routes, types, sender=None)
    worker = installation.worker(command=FAULTY)
    installation.until_status({"accepted": GOOD + 2, "failed": len(REASONS), "unknown": 1})

    for key, reason in REASONS.items():
        row = installation.row(f"k-{key}")
        assert (row["status"], reason in row["last_error"]) == ("failed", True), row["last_error"]
        assert len(row["last_error"]) <= 2000
    (fault,) = installation.attempts("k-fault")
    assert (fault["outcome"], fault["text"]) == ("unknown", "LookupError: nobody has thought of this")
    assert installation.row("k-rude-but-accepted")["message_id"] is None, "the id can't be stored, the acceptance can"
    (lines,) = [one for one in sandbox.acceptances() if one.recipients == ("lines@example.com",)]
    assert lines.subject == "Order 0 is on its way"
    assert worker.process.poll() is None
    assert worker.stopped() == 0
