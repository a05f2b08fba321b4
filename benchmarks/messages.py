"""The messages of the SMTP benchmark: an order's confirmation as text and HTML, about 5 kB as it goes over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid
from typing import Final

SENDER: Final = "shop@example.com"
ITEMS: Final = 12

_TEXT_ROW = "  {count} x Item {item:<34} {price:>8.2f} EUR\n"
_HTML_ROW = (
    '<tr><td style="padding:4px 12px;border-bottom:1px solid #ddd">{count} ×</td>'
    '<td style="padding:4px 12px;border-bottom:1px solid #ddd"><a href="https://shop.example.com/items/{item}">'
    'Item {item}</a></td><td style="padding:4px 12px;text-align:right">{price:.2f} €</td></tr>\n'
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message, before anybody turned it into bytes."""

    to: str
    subject: str
    text: str
    html: str


def message(number: int) -> Message:
    """The benchmark's message of this number."""
    rows = [{"count": item % 3 + 1, "item": 1000 + item, "price": (number % 50 + item) * 1.25} for item in range(ITEMS)]
    text = "".join(_TEXT_ROW.format(**row) for row in rows)
    html = "".join(_HTML_ROW.format(**row) for row in rows)
    return Message(
        to=f"p{number}@example.com",
        subject=f"Your order {number}",
        text=f"Hello,\n\nthank you for your order {number}. This is what we send you:\n\n{text}\nYour shop\n",
        html=f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>Your order {number}</title></head>\n'
        f"<body><p>Hello,</p>\n<p>thank you for your order {number}. This is what we send you:</p>\n"
        f"<table>\n{html}</table>\n<p>Your shop</p></body></html>\n",
    )


def rendered(item: Message) -> bytes:
    """The message as it goes over the wire, by Python's own means."""
    mail = EmailMessage(policy=SMTP)
    mail["From"], mail["To"], mail["Subject"] = SENDER, item.to, item.subject
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="example.com")
    mail.set_content(item.text, cte="7bit")
    mail.add_alternative(item.html, subtype="html", cte="quoted-printable")
    return mail.as_bytes()
