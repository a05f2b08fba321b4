"""What an SMTP client gets to see: the reply a step deserves, bent by the effect that hit it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from posthouse.sandbox.api import LateAcceptance
from posthouse.sandbox.faults import Action, CallKind, Effect

HOST_NAME: Final = "sandbox.invalid"

CLOSING: Final = 421
"""The code after which the server closes the connection (RFC 5321 section 3.8)."""


class Then(StrEnum):
    """What a shell does once the lines are written."""

    GO_ON = "go_on"  # reads on
    START_TLS = "start_tls"  # takes the client's handshake, then reads on
    CLOSE = "close"  # closes the connection
    RESET = "reset"  # resets it, so that nothing more arrives
    STALL = "stall"  # says nothing more, and leaves it open until the client leaves


@dataclass(frozen=True, slots=True)
class Output:
    """What a shell has to do after one step."""

    lines: bytes = b""
    then: Then = Then.GO_ON
    delay_s: float = 0.0  # before the lines
    dripped: bool = False  # the lines are spread over `delay_s` instead
    late: LateAcceptance | None = None


def reply(code: int, *texts: str, then: Then = Then.GO_ON) -> Output:
    """A reply of one line or more. RFC 5321 section 4.2.1."""
    *first, last = texts
    lines = [*(f"{code}-{text}" for text in first), f"{code} {last}"]
    return Output("".join(f"{line}\r\n" for line in lines).encode(), then)


FOLLOWING: Final = {
    CallKind.BANNER: reply(250, HOST_NAME),
    CallKind.MAIL: reply(250, "2.1.5 Ok"),
    CallKind.RCPT: reply(354, "End data with <CR><LF>.<CR><LF>"),
    CallKind.DATA: reply(250, "2.0.0 Ok"),
    CallKind.DOT: reply(221, "2.0.0 Bye"),
}
"""How the step after the one that is named is usually answered."""

FOLLOWING_OTHERS: Final = reply(250, "2.1.0 Ok")


def fault_output(effect: Effect, at: CallKind, deserved: Output | None) -> Output:
    """The output under `effect`. `deserved` is the provider's own, None where the step never got so far."""
    if effect.action in (Action.DROP, Action.REFUSE):
        return Output(then=Then.RESET)
    if effect.action is Action.STALL:
        return Output(then=Then.STALL)
    if effect.action is Action.STATUS:
        closes = effect.status == CLOSING or at is CallKind.BANNER
        return reply(effect.status, effect.text or _words(effect.status, at), then=Then.CLOSE if closes else Then.GO_ON)
    if effect.action is Action.MALFORMED:
        return Output(b"sandbox says hello\r\n")
    if effect.action is Action.HTML:
        return Output(_web_page(effect.status), Then.CLOSE)
    deserved = deserved or reply(250, "2.0.0 Ok")
    if effect.action is Action.TRUNCATED:
        return Output(deserved.lines[:2], Then.CLOSE)
    return replace(deserved, delay_s=effect.delay_s, dripped=effect.action is Action.DRIP)


_ENHANCED: Final = {
    421: "4.3.2",
    450: "4.2.1",
    451: "4.3.0",
    452: "4.3.1",
    454: "4.7.0",
    530: "5.7.0",
    534: "5.7.9",
    535: "5.7.8",
    538: "5.7.11",
    550: "5.7.1",
    551: "5.1.6",
    552: "5.3.4",
    553: "5.1.3",
    554: "5.6.0",
    556: "5.1.10",
}
_ENHANCED_AT_RCPT: Final = {550: "5.1.1", 552: "5.2.2"}
_PLAIN_STEPS: Final = frozenset({CallKind.BANNER, CallKind.EHLO})
"""Their replies have no enhanced codes (RFC 2034 section 4)."""


def _words(status: int, at: CallKind) -> str:
    if at in _PLAIN_STEPS:
        return "a fault of the sandbox"
    enhanced = (at is CallKind.RCPT and _ENHANCED_AT_RCPT.get(status)) or _ENHANCED.get(status)
    # The class of an enhanced code is the code's first digit; there is none for 3yz.
    enhanced = enhanced or (f"{status // 100}.0.0" if status >= 400 else "")
    return f"{enhanced} a fault of the sandbox".lstrip()


def _web_page(status: int) -> bytes:
    page = f"<!doctype html>\n<title>{status}</title>\n"
    return f"HTTP/1.1 {status} \r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode()
