"""Reliable email sending for applications: an outbox in your own database.

outbox = posthouse.Outbox()                 # reads posthouse.toml
with engine.begin() as transaction:
    outbox.enqueue(transaction, posthouse.Email(key="order-1042-receipt", to="ada@example.com", ...))
"""

from posthouse.address import Address
from posthouse.app import Outbox
from posthouse.attachment import Alternative, Attachment
from posthouse.config import Config, load_config
from posthouse.core.outlook import Outlook
from posthouse.email import Email
from posthouse.errors import (
    CallerError,
    ConfigError,
    DatabaseUnavailable,
    InvalidEmail,
    KeyReused,
    NotPossible,
    OperatorError,
    PosthouseError,
    QueueFull,
    SchemaError,
    TooSoon,
    UnknownSend,
    UnsupportedConnection,
)
from posthouse.outbox import Enqueued

__all__ = [
    "Address",
    "Alternative",
    "Attachment",
    "CallerError",
    "Config",
    "ConfigError",
    "DatabaseUnavailable",
    "Email",
    "Enqueued",
    "InvalidEmail",
    "KeyReused",
    "NotPossible",
    "OperatorError",
    "Outbox",
    "Outlook",
    "PosthouseError",
    "QueueFull",
    "SchemaError",
    "TooSoon",
    "UnknownSend",
    "UnsupportedConnection",
    "load_config",
]
