"""How long the bytes of a message take, against the same message by Python's own `email.message.EmailMessage`."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.headerregistry import Address as StandardAddress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from random import Random
from typing import Any, Final

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.providers.mime import message_bytes
from posthouse.providers.port import OutgoingMessage

ROUND_S: Final = 0.2
ROUNDS: Final = 7

_ASCII: Final = "Thank you for your order, it is on its way to you and will be there on Tuesday.\n"
_GERMAN: Final = "Vielen Dank für Ihre Bestellung; schöne Grüße, und am Dienstag ist sie bei Ihnen.\n"


def _html(line: str, lines: int) -> str:
    return "<html><body>\n" + f"<p>{line.strip()}</p>\n" * lines + "</body></html>\n"


def _file(size: int) -> Attachment:
    return Attachment(Random(size).randbytes(size), "invoice-1042.pdf", "application/pdf")


def _message(subject: str = "Your order 1042 is on its way", **parts: Any) -> OutgoingMessage:
    given: dict[str, Any] = {"text": None, "html": None} | parts
    return OutgoingMessage(
        send_id=1,
        idempotency_key="6f1ed002ab5595859014ebf0951522d9",
        sender=Address("orders@shop.example", "Shop"),
        to=(Address("ada@example.com", "Ada Lovelace"),),
        cc=(),
        bcc=(),
        reply_to=(Address("help@shop.example", "Help"),),
        subject=subject,
        headers=(("X-Order", "1042"),),
        date=1_800_000_000.0,
        **given,
    )


SHAPES: Final = {
    "text, 1 kB": _message(text=_ASCII * 12),
    "text and HTML, 4 kB": _message(text=_ASCII * 12, html=_html(_ASCII, 32)),
    "the same, not ASCII": _message("Ihre Bestellung ist unterwegs ✉", text=_GERMAN * 12, html=_html(_GERMAN, 32)),
    "text and a file, 20 kB": _message(text=_ASCII * 12, attachments=[_file(20_000)]),
    "text, HTML and a file, 1 MB": _message(text=_ASCII * 12, html=_html(_ASCII, 32), attachments=[_file(1_000_000)]),
}


def by_python(message: OutgoingMessage) -> bytes:
    """The same message, as Python's documentation builds it."""
    built = EmailMessage(policy=SMTP)
    built["Date"] = formatdate(message.date)
    built["From"] = _standard(message.sender)
    built["To"] = [_standard(address) for address in message.to]
    built["Reply-To"] = [_standard(address) for address in message.reply_to]
    built["Subject"] = message.subject
    built["Message-ID"] = f"<{message.idempotency_key}@shop.example>"
    for name, value in message.headers:
        built[name] = value
    if message.text is not None:
        built.set_content(message.text)
    if message.html is not None:
        built.add_alternative(message.html, subtype="html")
    for file in message.attachments:
        maintype, _, subtype = file.content_type.partition("/")
        built.add_attachment(file.content, maintype, subtype, filename=file.filename)
    return built.as_bytes()


def _standard(address: Address) -> StandardAddress:
    return StandardAddress(address.name, addr_spec=address.email)


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds of the processor for one message, the best of several rounds that take turns."""

    posthouse_s: float
    python_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast as Python's own."""
        return self.python_s / self.posthouse_s


def run() -> dict[str, Result]:
    """Each shape's result."""
    return {name: _compared(message) for name, message in SHAPES.items()}


def _compared(message: OutgoingMessage) -> Result:
    builders = (message_bytes, by_python)
    rounds = [[_each_s(builder, message) for builder in builders] for _ in range(ROUNDS)]
    ours, theirs = (min(times) for times in zip(*rounds, strict=True))
    return Result(ours, theirs)


def _each_s(builder: Callable[[OutgoingMessage], bytes], message: OutgoingMessage) -> float:
    gc.collect()
    started, count = time.process_time(), 0
    while (passed := time.process_time() - started) < ROUND_S or count == 0:
        builder(message)
        count += 1
    return passed / count
