"""Messages as two parsers that have nothing in common read them: Python's own, and Rust's `mailparse`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.utils import getaddresses
from typing import Any

from fast_mail_parser import PyMimePart, parse_email, parse_email_tree

Tree = tuple[str, "Leaf | tuple[Tree, ...]"]
"""A content type, and what is in it."""

Named = tuple[str, str]
"""A display name and an address."""


@dataclass(frozen=True)
class Leaf:
    """A part that holds content. The disposition is empty where none is named."""

    content: bytes
    disposition: str = ""
    filename: str = ""
    content_id: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # those that begin with Part-


@dataclass(frozen=True)
class Reading:
    """What a parser made of a message."""

    subject: str
    addresses: dict[str, list[Named]]  # by the header's name
    headers: list[tuple[str, str]]  # those that begin with X-, in order
    tree: Tree


ADDRESS_HEADERS = ("From", "To", "Cc", "Reply-To")


def read_by_python(content: bytes) -> Reading:
    """The parser that Python's documentation recommends; names as its older one reads them.

    (Before Python 3.13 the newer one keeps the white space between two encoded words of a name, against RFC 2047
    section 6.2, and it turns several spaces into one.) A message within the message is taken apart: its bytes are not
    among what is read.
    """
    modern, older = parsed(content), message_from_bytes(content, policy=policy.compat32)
    addresses = {header: _named(older, header) for header in ADDRESS_HEADERS}
    for header, given in addresses.items():
        specs = [_text(a.addr_spec) for value in modern.get_all(header, []) for a in value.addresses]
        assert specs == [email for _, email in given]
    headers = [(name, str(value)) for name, value in modern.items() if name.startswith("X-")]
    return Reading(str(modern["Subject"]), addresses, headers, _tree(modern))


def parsed(content: bytes) -> EmailMessage:
    """The message as Python reads it, without a complaint about its structure."""
    message = message_from_bytes(content, policy=policy.SMTPUTF8)
    assert isinstance(message, EmailMessage)
    assert not [defect for part in message.walk() for defect in part.defects]
    return message


def _named(message: Message, header: str) -> list[Named]:
    values = [_text(value).replace("\r\n", "") for name, value in message.raw_items() if name == header]
    mailboxes = [(name, email) for name, email in getaddresses(values) if email]  # an empty group gives an empty one
    return [(str(make_header(decode_header(name))) if name else "", email) for name, email in mailboxes]


def _text(value: str) -> str:
    """Raw UTF-8, which the parser keeps as escaped bytes."""
    return value.encode("utf-8", "surrogateescape").decode()


def _tree(part: Message) -> Tree:
    kind = part.get_content_type()
    if part.get_content_maintype() == "multipart":
        return kind, tuple(_tree(one) for one in part.iter_parts())  # type: ignore[attr-defined]
    decoded = b"" if kind == "message/rfc822" else part.get_payload(decode=True)
    assert isinstance(decoded, bytes)
    content_id = str(part["Content-ID"] or "").strip("<>")
    headers = tuple((name, str(value)) for name, value in part.items() if name.startswith("Part-"))
    disposition: Any = part["Content-Disposition"]
    filename = disposition.params.get("filename", "") if disposition else ""
    return kind, Leaf(decoded, part.get_content_disposition() or "", filename, content_id, headers)


def read_by_rust(content: bytes) -> Reading:
    """The parser behind `fast_mail_parser`. It trims names and header values."""
    mail, tree = parse_email(content), parse_email_tree(content)
    assert mail.warnings == []
    fields = {"From": [mail.from_] if mail.from_ else [], "To": mail.to, "Cc": mail.cc, "Reply-To": mail.reply_to}
    addresses = {name: [(a.display_name or "", a.address) for a in several] for name, several in fields.items()}
    return Reading(mail.subject, addresses, _several(mail.headers, "X-"), _rust_tree(tree))


def _rust_tree(part: PyMimePart) -> Tree:
    if part.content_type.startswith("multipart/"):
        return part.content_type, tuple(map(_rust_tree, part.children))
    assert part.content is not None
    headers = tuple(_several(part.headers, "Part-"))
    leaf = Leaf(part.content, part.disposition or "", part.filename, part.content_id or "", headers)
    return part.content_type, leaf


def _several(headers: dict[str, list[str]], prefix: str) -> list[tuple[str, str]]:
    return [(name, value) for name, values in headers.items() if name.startswith(prefix) for value in values]


def leaves(tree: Tree) -> Sequence[tuple[str, Leaf]]:
    """The parts that hold content, with their types, in order."""
    kind, inside = tree
    if isinstance(inside, Leaf):
        return [(kind, inside)]
    return [leaf for part in inside for leaf in leaves(part)]
