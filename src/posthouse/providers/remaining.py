"""Narrowing a message to the recipients who still get a copy, for APIs that send to whoever is listed."""

from __future__ import annotations

from dataclasses import replace

from posthouse.providers.port import OutgoingMessage


def for_those_left(message: OutgoingMessage) -> OutgoingMessage:
    """The message with only those of its recipients who still get a copy, in their order.

    Most APIs want somebody in `to`. Where nobody is left there, the first of `cc` moves up: everybody sees them
    anyway. A `bcc` moves up only when it is the last one left, so that nobody else learns of it.
    """
    if not message.envelope_to:
        return message
    left = frozenset(message.envelope_to)
    to, cc, bcc = ([a for a in listed if a.email in left] for listed in (message.to, message.cc, message.bcc))
    if not to and cc:
        to, cc = cc[:1], cc[1:]
    elif not to and len(bcc) == 1:
        to, bcc = bcc, []
    return replace(message, to=to, cc=cc, bcc=bcc)
