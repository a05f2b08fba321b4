"""Messages to send in the provider tests."""

from __future__ import annotations

from typing import Any

from posthouse.address import Address
from posthouse.content import Content
from posthouse.providers.port import OutgoingMessage

SHOP = Address("orders@shop.example", "Shop")
ADA = Address("ada@example.com", "Ada")
BOB = Address("bob@example.com")


def message(**changes: Any) -> OutgoingMessage:
    """A plain message with the given changes."""
    parts: dict[str, Any] = {
        "send_id": 7,
        "idempotency_key": "ph-7",
        "sender": SHOP,
        "to": (ADA,),
        "cc": (),
        "bcc": (),
        "reply_to": (),
        "subject": "Your order",
        "text": "Thank you.",
        "html": None,
    }
    return OutgoingMessage(**(parts | changes))


def full_message(**changes: Any) -> OutgoingMessage:
    """A message that uses every part."""
    parts: dict[str, Any] = {
        "to": (ADA, BOB),
        "cc": (Address("cc@example.com"),),
        "bcc": (Address("bcc@example.com"),),
        "reply_to": (Address("help@shop.example", "Help"),),
        "html": "<p>Thank you.</p>",
        "headers": (("X-Order", "42"),),
        "tags": ("receipt",),
        "metadata": {"order": "42"},
    }
    return message(**(parts | changes))


def content(**parts: Any) -> Content:
    """A plain email as it is stored, with the given parts."""
    plain: dict[str, Any] = {"to": (ADA,), "sender": SHOP, "subject": "Your order", "text": "Thank you."}
    return Content(**(plain | parts))
