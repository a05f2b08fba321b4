"""What APIs limit: reasons to refuse an email, each beginning with the field that is too much."""

from __future__ import annotations

import re
from collections.abc import Iterator

from posthouse.attachment import Attachment
from posthouse.content import StoredFile
from posthouse.providers.carrying import Mail


def recipients_beyond(mail: Mail, most: int) -> Iterator[str]:
    """More recipients in one call than it takes."""
    if (count := len(mail.recipients)) > most:
        yield f"to: this route takes {most} recipients in one call, with cc and bcc, not {count}"


def local_parts_beyond_ascii(mail: Mail) -> Iterator[str]:
    """Addresses that need SMTPUTF8 (RFC 6531): a domain can be written in ASCII, what stands before the @ can't."""
    single = {"sender": mail.sender, "envelope_sender": mail.envelope_sender}
    several = {"to": mail.to, "cc": mail.cc, "bcc": mail.bcc, "reply_to": mail.reply_to}
    for name, addresses in {**{n: (a,) for n, a in single.items() if a is not None}, **several}.items():
        for address in addresses:
            if not address.email.rpartition("@")[0].isascii():
                yield f"{name}: this provider takes only ASCII before the @, not {address.email}"


def size_beyond(mail: Mail, most: int) -> Iterator[str]:
    """More bytes than it takes, files counted in base64. The words of a template are not known at enqueue."""
    words = [mail.text or "", mail.html or "", *(alternative.content for alternative in mail.alternatives)]
    size = sum(len(part.encode()) for part in words) + sum(_in_base64(_size(file)) for file in mail.attachments)
    if size > most:
        yield f"content: {size:,} bytes with its files in base64; this provider takes {most:,}"


def words_beyond(mail: Mail, most: int) -> Iterator[str]:
    """A text or an HTML of more bytes than it takes."""
    for name, words in (("text", mail.text), ("html", mail.html)):
        if words is not None and (size := len(words.encode())) > most:
            yield f"{name}: {size:,} bytes; this provider takes {most:,}"


def tags_beyond(mail: Mail, most: int) -> Iterator[str]:
    """Tags of more characters than it takes."""
    for tag in mail.tags:
        if len(tag) > most:
            yield f"tags: this provider takes {most} characters, not {len(tag)}"


def metadata_beyond(mail: Mail, *, pairs: int, name_chars: int, value_chars: int) -> Iterator[str]:
    """More metadata than it takes, our id being one of the pairs."""
    if len(mail.metadata) >= pairs:
        yield f"metadata: this provider takes {pairs} pairs with our id among them, not {len(mail.metadata) + 1}"
    for name, value in mail.metadata.items():
        if len(name) > name_chars:
            yield f"metadata.{name}: this provider takes names of {name_chars} characters, not {len(name)}"
        if len(value) > value_chars:
            yield f"metadata.{name}: this provider takes {value_chars} characters, not {len(value)}"


def metadata_unlike(mail: Mail, form: re.Pattern[str], what: str) -> Iterator[str]:
    """Metadata whose names or values are not of the form that it takes."""
    for name, value in mail.metadata.items():
        if not form.fullmatch(name) or not form.fullmatch(value):
            yield f"metadata.{name}: this provider takes {what} alone"


def _size(file: StoredFile | Attachment) -> int:
    return file.size if isinstance(file, StoredFile) else len(file.content)


def _in_base64(octets: int) -> int:
    return -(-octets // 3) * 4
