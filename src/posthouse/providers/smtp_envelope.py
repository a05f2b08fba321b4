"""One message as SMTP carries it: its envelope, its content, and what it needs the server to be able to do."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field
from typing import Final

from posthouse.address import Address
from posthouse.providers.mime_headers import ascii_domain
from posthouse.providers.smtp_options import NO_OPTIONS, SmtpOptions
from posthouse.raw import head_and_rest
from posthouse.values import value

_NEEDED: Final = (
    ("smtputf8", "no_smtputf8"),  # RFC 6531
    ("8bitmime", "no_8bitmime"),  # RFC 6152
    ("requiretls", "no_requiretls"),  # RFC 8689
    ("dsn", "no_dsn"),  # RFC 3461
)
"""Extensions that a message may need, and the faults of a server without them."""

_NOTHING: Final = frozenset[str]()
_8BIT: Final = frozenset({"8bitmime"})
_UTF8_ENVELOPE: Final = frozenset({"smtputf8"})


@value
class Mail:
    """One transaction: the envelope, and the content as it is after DATA, without its final dot."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes = field(repr=False)  # dot-stuffed, ends with CRLF
    size: int  # in bytes, before dots were stuffed
    needs: frozenset[str] = frozenset()  # extensions, by their names in small letters
    options: SmtpOptions = NO_OPTIONS

    @staticmethod
    def of(sender: Address, recipients: Sequence[Address], content: bytes, options: SmtpOptions = NO_OPTIONS) -> Mail:
        """The mail with these bytes, which end with CRLF."""
        sent_by, *received_by = [ascii_domain(address) for address in (sender, *recipients)]
        return Mail(
            sender=sent_by,
            recipients=tuple(dict.fromkeys(received_by)),
            content=_dot_stuffed(content),
            size=len(content),
            needs=options.needs | _needs("".join([sent_by, *received_by]), content),
            options=options,
        )

    def unfit(self, extensions: Mapping[str, str]) -> tuple[str, str] | None:
        """Why a server with these extensions can't carry it, as a fault's code and a detail; None when it can."""
        for extension, fault in _NEEDED:
            if extension in self.needs and extension not in extensions:
                return fault, ""
        limit = extensions.get("size", "").strip()
        if limit.isdecimal() and 0 < int(limit) < self.size:
            return "too_large", f"{self.size} bytes, at most {limit}"
        return None

    def mail_from(self, extensions: Container[str]) -> bytes:
        """What follows MAIL, for a server with these extensions."""
        parts = [f"FROM:<{self.sender}>"]
        if "size" in extensions:
            parts.append(f"SIZE={self.size}")
        if "smtputf8" in self.needs:
            parts.append("SMTPUTF8")
        if "8bitmime" in self.needs:
            parts.append("BODY=8BITMIME")
        return " ".join([*parts, *self.options.for_mail]).encode()

    def rcpt_to(self, recipient: str) -> bytes:
        """What follows RCPT."""
        return " ".join([f"TO:<{recipient}>", *self.options.for_rcpt]).encode()


def _needs(envelope: str, content: bytes) -> frozenset[str]:
    """A server with SMTPUTF8 takes 8-bit content as well, but has to be told of both (RFC 6531 section 3.6)."""
    if content.isascii():
        return _NOTHING if envelope.isascii() else _UTF8_ENVELOPE
    plain_head = envelope.isascii() and head_and_rest(content)[0].isascii()
    return _8BIT if plain_head else _8BIT | _UTF8_ENVELOPE


def _dot_stuffed(content: bytes) -> bytes:
    """RFC 5321 section 4.5.2: a line that begins with a dot gets another one."""
    stuffed = content.replace(b"\r\n.", b"\r\n..")
    return b"." + stuffed if stuffed.startswith(b".") else stuffed
