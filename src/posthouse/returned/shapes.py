"""Bounces that only people can read, as data: what tells them apart, and where the addresses and the reasons stand.

Each shape opens with words that no person writes, and names each recipient with what was said of them. What fits none
of them is nobody's bounce: a mail that is only thought to be one must not cost an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from posthouse.core.answers import first_match
from posthouse.core.events import EventKind
from posthouse.returned.origin import addresses_in

LOOKED_AT_CHARS_MAX: Final = 20_000
LINE_CHARS_MAX: Final = 500
"""No line that says anything is longer, and patterns take long over those that are."""

REASON_CHARS_MAX: Final = 2_000

_ORIGINAL = re.compile(
    r"^[-=_*| \t>]*(?:(?:this is a copy of (?:the|your)|below (?:this|the next) line is a copy|the original message"
    r"|original message|forwarded message"
    r"|(?:enclosed|returned|undelivered|unsent) (?:is a copy of the )?(?:mail|message)"
    r"|message (?:text |headers? )?follows|a copy of (?:the|your) (?:original )?message|copy of your message)\b"
    r"|(?:return-path|received): ).*",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a bounce says of one recipient."""

    kind: EventKind
    recipient: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One program's words. `entry` finds `who` and `why`; `later` are the words of one that goes on trying."""

    name: str
    opening: re.Pattern[str]
    entry: re.Pattern[str]
    later: re.Pattern[str] | None = None
    matches: tuple[str, ...]
    not_matches: tuple[str, ...]

    def covers(self, text: str, /) -> bool:
        """Whether it is this program's, and names somebody."""
        return next(self.refusals(text), None) is not None

    def refusals(self, text: str) -> Iterator[Refusal]:
        """Each recipient once, with what is said of them."""
        opened = self.opening.search(text)
        if opened is None:
            return
        told = _before_the_original(text[opened.start() :])
        kind = EventKind.DEFERRED if self.later is not None and self.later.search(told) else EventKind.BOUNCED
        seen: set[str] = set()
        for found in self.entry.finditer(told):
            for address in addresses_in(found["who"]):
                if address.casefold() not in seen:
                    seen.add(address.casefold())
                    yield Refusal(kind, address, " ".join(found["why"].split())[:REASON_CHARS_MAX])


def _before_the_original(text: str) -> str:
    original = _ORIGINAL.search(text)
    return text if original is None else text[: original.start()]


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


_PARAGRAPH: Final = r"(?P<why>(?:[^\n]*\S[^\n]*(?:\n|\Z)){0,20})"
"""Lines up to an empty one."""

_QMAIL: Final = """\
Hi. This is the qmail-send program at mx.example.net.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<bob@example.com>:
Sorry, no mailbox here by that name. (#5.1.1)
"""
_EXIM: Final = """\
This message was created automatically by mail delivery software.

A message that you sent could not be delivered to one or more of its
recipients. This is a permanent error. The following address(es) failed:

  bob@example.com
    host mx.example.com [192.0.2.1]: 550 5.1.1 user unknown
"""
_POSTFIX: Final = """\
This is the mail system at host mx.example.net.

I'm sorry to have to inform you that your message could not
be delivered to one or more recipients. It's attached below.

<bob@example.com>: host mx.example.com[192.0.2.1] said: 550 5.1.1 user
    unknown (in reply to RCPT TO command)
"""
_SENDMAIL: Final = """\
   ----- The following addresses had permanent fatal errors -----
<bob@example.com>
    (reason: 550 5.1.1 user unknown)
"""
_EXCHANGE: Final = """\
Your message did not reach some or all of the intended recipients.

The following recipient(s) could not be reached:

      'bob@example.com' on 01/02/2026 10:00
            The e-mail account does not exist at the organization this message was sent to.
            <mx.example.com #5.1.1>
"""
_LETTER: Final = """\
Dear shop, your message could not be delivered yesterday, said <bob@example.com>: who is to blame? Bob.
"""

_NOTIFICATION: Final = """\
This is an automatically generated Delivery Status Notification

Delivery to the following recipient failed permanently:

     bob@example.com

Technical details of permanent failure:
550 5.1.1 user unknown
"""
_NAMED: Final = """\
Your message could not be delivered.

Failed Recipient: bob@example.com
Reason: Remote host said: 550 unknown user
"""

SHAPES: Final = (
    Shape(
        name="qmail, Postfix, Yahoo",
        opening=_words(
            r"this is the [\w. -]{1,60} at|i'm sorry to have to inform you|(?:able|unable) to deliver (?:your )?message"
            r"|mail (?:message )?(?:was not delivered )?to the following address"
            r"|there's a problem with the e-mail address"
            r"|your message could not be delivered|failed recipients"
        ),
        entry=_lines(rf"^<(?P<who>[^\s<>]+@[^\s<>]+)>(?:[ \t]*\([^)\n]*\))?:[ \t]*\n?{_PARAGRAPH}"),
        later=_words(r"(?:will|going to) (?:keep|go on|continue) try|this is a warning (?:message )?only"),
        matches=(_QMAIL, _POSTFIX),
        not_matches=(_EXIM, _SENDMAIL, _LETTER),
    ),
    Shape(
        name="Exim",
        opening=_words(
            r"message that you (?:have )?sent (?:\([^)]{1,200}\) )?(?:could not be|has not (?:yet )?been) delivered"
            r"|created by mail delivery software\. your message to"
        ),
        entry=_lines(rf"^[ \t]{{0,8}}<?(?P<who>[^\s<>:;,]+@[^\s<>:;,]+?)>?(?::[ \t]*|[ \t]*(?:\n|\Z)){_PARAGRAPH}"),
        later=_words(r"has not (?:yet )?been delivered|have not yet been delivered"),
        matches=(_EXIM,),
        not_matches=(_QMAIL, _SENDMAIL, _LETTER),
    ),
    Shape(
        name="Sendmail",
        opening=_words(r"-----+ the following addresses? (?:had|have) "),
        entry=_lines(r"^<?(?P<who>[^\s<>]+@[^\s<>]+)>?[ \t]*\n(?P<why>(?:[ \t]+[^\n]+\n)*)"),
        later=_words(r"transient non-fatal errors|delivery problems"),
        matches=(_SENDMAIL,),
        not_matches=(_QMAIL, _EXIM, _LETTER),
    ),
    Shape(
        name="Exchange",
        opening=_words(r"did not reach (?:some or all of the intended|the following) recipient"),
        entry=_lines(rf"^[ \t]*'?(?P<who>[^\s'<>]+@[^\s'<>]+)'?(?: on [^\n]*)?[ \t]*\n{_PARAGRAPH}"),
        matches=(_EXCHANGE,),
        not_matches=(_QMAIL, _EXIM, _LETTER),
    ),
    Shape(
        name="a notification in words alone",  # Gmail, Exchange, IPSwitch
        opening=_words(r"del[ei]very to the following recipients? (?:failed|was aborted|has been delayed)"),
        entry=_lines(r"^[ \t]*(?:\* )?(?P<who>[^\s<>:]+@[^\s<>:]+)[ \t]*$(?=(?P<why>(?:\n[^\n]*){0,12}))"),
        later=_words(r"has been delayed|this is a warning message only"),
        matches=(_NOTIFICATION,),
        not_matches=(_QMAIL, _EXIM, _LETTER),
    ),
    Shape(
        name="fields in words",  # MailEnable, SmarterMail, IMail
        opening=_words(r"could not (?:be )?deliver(?:ed)?\b|\Aunknown user: "),
        entry=_lines(
            r"^[ \t]*(?:failed recipient|recipient|unknown user):[ \t]*(?:\[smtp:)?"
            r"<?(?P<who>[^\s<>\]]+@[^\s<>\]]+)[>\]]*"
            rf"[ \t]*\n{_PARAGRAPH}"
        ),
        matches=(_NAMED, "Unknown user: bob@example.com\n\nRCPT TO generated following response:\n550 no\n"),
        not_matches=(_QMAIL, _EXIM, _LETTER),
    ),
)
"""The first that fits decides."""


def refusals_in(text: str) -> list[Refusal]:
    """What a bounce in words says, recipient by recipient; empty where it is none that is known."""
    lines = text[:LOOKED_AT_CHARS_MAX].split("\n")
    looked_at = "\n".join(line[:LINE_CHARS_MAX] for line in lines)
    shape = first_match(looked_at, SHAPES)
    return [] if shape is None else list(shape.refusals(looked_at))
