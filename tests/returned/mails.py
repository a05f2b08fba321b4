"""Messages that came back, as servers write them: made here, in every shape that there is."""

from __future__ import annotations

from collections.abc import Sequence

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
KEY = "0123456789abcdef0123456789abcdef"
OURS = f"<{KEY}@shop.example>"

RETURNED = f"""\
From: Shop <orders@shop.example>
To: bob@example.com
Subject: Your order
Message-ID: {OURS}

Thank you.
"""


def bytes_of(text: str) -> bytes:
    """The text as it comes: with CRLF line ends."""
    return text.replace("\n", "\r\n").encode()


def report(*recipients: str, returned: str = RETURNED, head: str = "", type_: str = "message/delivery-status") -> bytes:
    """A report on recipients, each given as the lines that a server writes of one."""
    status = "\n".join(["Reporting-MTA: dns; mx.example.net\n", *(f"{lines.strip()}\n" for lines in recipients)])
    return bytes_of(
        f"""\
From: Mail Delivery System <MAILER-DAEMON@mx.example.net>
To: orders@shop.example
Subject: Undelivered Mail
Date: Fri, 15 Jan 2027 07:00:00 +0000
Message-ID: <report-1@mx.example.net>
Auto-Submitted: auto-replied
MIME-Version: 1.0
{head}Content-Type: multipart/report; report-type=delivery-status; boundary="b-1"

For people.

--b-1
Content-Type: text/plain

I could not deliver it.

--b-1
Content-Type: {type_}

{status}
--b-1
Content-Type: message/rfc822

{returned}
--b-1--
"""
    )


def recipient(address: str, action: str, status: str, said: str = "", *more: str) -> str:
    """What a report says of one."""
    diagnostic = f"Diagnostic-Code: smtp; {said}" if said else ""
    lines = (f"Final-Recipient: rfc822; {address}", f"Action: {action}", f"Status: {status}", diagnostic, *more)
    return "\n".join(filter(None, lines))


GONE = recipient("bob@example.com", "failed", "5.1.1", "550 5.1.1 <bob@example.com>: user unknown")


def complaint(*fields: str, returned: str = RETURNED) -> bytes:
    """A complaint, given as the lines of its machine-readable part."""
    lines = "\n".join(fields)
    return bytes_of(
        f"""\
From: feedback@isp.example
To: abuse@shop.example
Subject: FW: Your order
Date: Fri, 15 Jan 2027 07:00:00 +0000
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary=b-1

--b-1
Content-Type: text/plain

This is an email abuse report.

--b-1
Content-Type: message/feedback-report

{lines}
User-Agent: Feedback/1.0
Version: 1

--b-1
Content-Type: message/rfc822

{returned}
--b-1--
"""
    )


def mail(text: str, *headers: str, of: str = "MAILER-DAEMON@mx.example.net", returned: str = "") -> bytes:
    """A message in words, with the original below where there is one."""
    below = f"\n--- Below this line is a copy of the message.\n\n{returned}" if returned else ""
    return bytes_of("\n".join([f"From: {of}", "To: orders@shop.example", *headers, "", text + below]))


def without(lines: str, name: str) -> str:
    """A recipient's lines without one of them."""
    return "\n".join(line for line in lines.splitlines() if not line.startswith(name))


def each_without_one(lines: str) -> Sequence[str]:
    """The lines, each time without another of them."""
    names = [line.partition(":")[0] for line in lines.splitlines()]
    return [without(lines, name) for name in names]
