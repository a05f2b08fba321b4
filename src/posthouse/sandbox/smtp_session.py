"""One SMTP connection to the sandbox without a network: what each step means, what it changes, what its client sees.

The counterpart of `SandboxApi` for a protocol in steps, with the same faults and the same ledger. Nothing here waits: a
shell does what each `Output` says, in real time or in a simulation's, and then calls `finish`.

RFC 5321 (SMTP), 3207 (STARTTLS), 4954 (AUTH), 2920 (PIPELINING), 1870 (SIZE), 6152 (8BITMIME), 6531 (SMTPUTF8),
2034 (ENHANCEDSTATUSCODES).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from posthouse.sandbox.api import LateAcceptance, SandboxApi
from posthouse.sandbox.faults import Action, Call, CallKind
from posthouse.sandbox.ledger import Acceptance, CallRecord, CallResult
from posthouse.sandbox.received import read_summary
from posthouse.sandbox.smtp_auth import MECHANISMS, WITHOUT_INITIAL_RESPONSE, BadResponse, Dialogue, Secrets
from posthouse.sandbox.smtp_commands import Path, read_path
from posthouse.sandbox.smtp_content import refusal_of
from posthouse.sandbox.smtp_framing import CONTENT_BYTES_MAX, Piece
from posthouse.sandbox.smtp_replies import FOLLOWING, FOLLOWING_OTHERS, HOST_NAME, Output, Then, fault_output, reply

_MAIL_PARAMETERS: Final = frozenset({"SIZE", "BODY", "SMTPUTF8", "AUTH"})
_OUT_OF_ORDER: Final = reply(503, "5.5.1 Not now")
_TLS_FIRST: Final = reply(530, "5.7.0 Must issue a STARTTLS command first")


@dataclass(slots=True)
class _Transaction:
    """A message between MAIL and the final dot."""

    sender: str
    international: bool
    recipients: list[str]  # those that were taken


@dataclass(frozen=True, slots=True)
class _Handled:
    """What the provider itself makes of a step."""

    output: Output
    result: CallResult | None = None  # where the step says something about a message or a password
    late: Acceptance | None = None


@dataclass(slots=True)
class _Held:
    """A reply that changes places with the following one."""

    lines: bytes
    at: CallKind
    follows_a_guess: bool = False  # the client has already been told what the following step's reply would be


class SmtpSession:
    """The server's side of one connection.

    `tls` says whether encryption can be had, `encrypted` whether it is there from the beginning. Where it can be had,
    nobody is asked for a password without it. Where the account has an API key, it is the password, and needed.
    """

    def __init__(self, api: SandboxApi, *, tls: bool = False, encrypted: bool = False) -> None:
        self._api = api
        self._tls = tls
        self._encrypted = encrypted
        self._greeted = False
        self._authenticated = False
        self._dialogue: Dialogue | None = None
        self._transaction: _Transaction | None = None
        self._held: _Held | None = None
        self.reads_content = False
        """Whether the client's next bytes are a message, for `content`; else they are lines, for `line`."""

    @property
    def in_transaction(self) -> bool:
        """Whether a message is under way."""
        return self._transaction is not None

    @property
    def is_idle(self) -> bool:
        """Whether the client is greeted and free to begin a message or to leave."""
        return self._greeted and self._transaction is None and self._dialogue is None

    def open(self, now: float) -> Output:
        """A connection has been made."""
        banner = reply(220, f"{HOST_NAME} ESMTP Posthouse sandbox")
        return self._run(Call(CallKind.BANNER), now, lambda _: _Handled(banner))

    def line(self, piece: Piece, now: float) -> Output:
        """A command, or a response to a challenge, has arrived."""
        if piece.too_long:
            return self._in_order(reply(500, "5.5.2 The line is too long"))
        if self._dialogue is not None:
            return self._in_order(self._respond(piece.octets, now))
        try:
            text = piece.octets.decode()
        except UnicodeDecodeError:
            return self._in_order(reply(500, "5.5.2 The line is not UTF-8"))
        verb, _, argument = text.partition(" ")
        stage = _STAGES.get(verb.upper())
        if stage is not None:
            return stage(self, argument, now)
        return self._in_order(self._plain(verb.upper()))

    def content(self, piece: Piece, now: float) -> Output:
        """The message is complete: the final dot has arrived."""
        transaction = self._transaction
        if transaction is None:
            raise RuntimeError("content follows DATA")
        self._transaction = None
        self.reads_content = False
        summary = read_summary(piece.octets)
        call = Call(CallKind.DOT, tuple(transaction.recipients), summary.key)

        def handle(late: bool) -> _Handled:
            if (refusal := refusal_of(piece)) is not None:
                return _Handled(reply(refusal.code, refusal.text), CallResult.INVALID)
            acceptance = Acceptance(
                message_id=self._api.new_message_id(),
                key=summary.key,
                at=now,
                recipients=tuple(transaction.recipients),
                subject=summary.subject,
                content_hash=blake2b(piece.octets, digest_size=16).hexdigest(),
                body=None,
                raw=piece.octets,
                envelope_sender=transaction.sender,
                size=len(piece.octets),
            )
            if not late:
                self._api.ledger.accept(acceptance)
            answer = reply(250, f"2.0.0 Ok: queued as {acceptance.message_id}")
            return _Handled(answer, CallResult.ACCEPTED, acceptance if late else None)

        return self._run(call, now, handle)

    def idle(self, now: float) -> Output | None:
        """The client has said nothing for a while, although `is_idle`. None where that has no consequence."""
        if self._held is not None:  # it waits for the next command
            return None
        output = self._run(Call(CallKind.IDLE), now, lambda _: _Handled(Output()))
        return None if output == Output() else output

    def held_back(self) -> Output | None:
        """The client waits for an answer. None unless it is held back to change places with the following one.

        It is then told what the following step's answer will most likely be, and gets its own answer after that step.
        """
        if self._held is None or self._held.follows_a_guess:
            return None
        self._held.follows_a_guess = True
        return FOLLOWING.get(self._held.at, FOLLOWING_OTHERS)

    def tls_started(self) -> None:
        """The handshake is done: what was said before it is forgotten (RFC 3207 section 4.2)."""
        self._encrypted = True
        self._greeted = False
        self._authenticated = False
        self._transaction = None

    def finish(self, output: Output, now: float, *, client_gone: bool = False) -> None:
        """The shell has waited as long as `output` said: what was to be accepted late is. Once per output."""
        if (late := output.late) is None:
            return
        if client_gone:
            self._api.ledger.record_call(replace(late.call, result=CallResult.ABANDONED))
            return
        for acceptance in late.acceptances:
            self._api.ledger.accept(replace(acceptance, at=now))
        self._api.ledger.record_call(late.call)

    def _run(self, call: Call, now: float, handle: Callable[[bool], _Handled]) -> Output:
        """Draws the fault, lets the provider do its part where the step gets so far, and shapes the output."""
        fault = self._api.draw(call, now)
        effect = fault.effect if fault is not None else None
        if effect is not None and not effect.reaches_provider:
            self._api.ledger.record_call(CallRecord(now, call.kind, CallResult.NOT_ACCEPTED, call.key, fault))
            return self._in_order(fault_output(effect, call.kind, None))
        handled = handle(effect is not None and effect.action is Action.SLOW and not effect.accepted)
        output = handled.output if effect is None else fault_output(effect, call.kind, handled.output)
        result = handled.result or (CallResult.PASSED if fault is not None else None)
        if result is not None:
            record = CallRecord(now, call.kind, result, call.key, fault)
            if handled.late is not None:
                output = replace(output, late=LateAcceptance((handled.late,), record))
            else:
                self._api.ledger.record_call(record)
        if effect is not None and effect.action is Action.SWAPPED:
            return self._hold(output, call.kind)
        return self._in_order(output)

    def _hold(self, output: Output, at: CallKind) -> Output:
        waiting = self._in_order(Output())
        self._held = _Held(output.lines, at)
        return replace(waiting, then=output.then)

    def _in_order(self, output: Output) -> Output:
        """`output`, and after it what was held back before it, or only that where the client had a guess."""
        if (held := self._held) is None:
            return output
        self._held = None
        return replace(output, lines=held.lines if held.follows_a_guess else output.lines + held.lines)

    def _ehlo(self, argument: str, now: float) -> Output:
        def handle(_: bool) -> _Handled:
            if not argument.strip():
                return _Handled(reply(501, "Say who you are"))
            self._greeted = True
            self._transaction = None
            return _Handled(reply(250, HOST_NAME, *self._extensions()))

        return self._run(Call(CallKind.EHLO), now, handle)

    def _helo(self, argument: str, now: float) -> Output:
        def handle(_: bool) -> _Handled:
            self._greeted = True
            self._transaction = None
            return _Handled(reply(250, HOST_NAME))

        return self._run(Call(CallKind.EHLO), now, handle)

    def _extensions(self) -> list[str]:
        extensions = ["PIPELINING", f"SIZE {CONTENT_BYTES_MAX}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        if self._tls and not self._encrypted:
            return [*extensions, "STARTTLS"]
        return [*extensions, f"AUTH {' '.join(MECHANISMS)}"]

    def _starttls(self, argument: str, now: float) -> Output:
        def handle(_: bool) -> _Handled:
            if argument:
                return _Handled(reply(501, "5.5.4 STARTTLS takes nothing"))
            if not self._tls or self._encrypted:
                return _Handled(reply(502, "5.5.1 There is no STARTTLS here"))
            return _Handled(reply(220, "2.0.0 Ready to start TLS", then=Then.START_TLS))

        return self._run(Call(CallKind.STARTTLS), now, handle)

    def _auth(self, argument: str, now: float) -> Output:
        return self._run(Call(CallKind.AUTH), now, lambda _: _Handled(self._begin_dialogue(argument, now)))

    def _begin_dialogue(self, argument: str, now: float) -> Output:
        name, _, initial = argument.strip().partition(" ")
        if self._tls and not self._encrypted:
            return reply(538, "5.7.11 Encryption required for the requested mechanism")
        if not self._greeted or self._authenticated or self._transaction is not None:
            return _OUT_OF_ORDER
        if (mechanism := MECHANISMS.get(name.upper())) is None:
            return reply(504, "5.5.4 There is no such mechanism")
        if initial and name.upper() in WITHOUT_INITIAL_RESPONSE:
            return reply(501, "5.5.4 This mechanism has no initial response")
        self._dialogue = mechanism(Secrets(self._api.api_key, self._api.new_message_id()))
        challenge = next(self._dialogue)
        if initial:
            return self._respond(b"" if initial == "=" else initial.encode(), now)
        return _challenge(challenge)

    def _respond(self, response: bytes, now: float) -> Output:
        dialogue = self._dialogue
        if dialogue is None or response == b"*":
            self._dialogue = None
            return reply(501, "5.7.0 Cancelled")
        try:
            return _challenge(dialogue.send(b64decode(response, validate=True)))
        except StopIteration as end:
            self._dialogue = None
            self._authenticated = bool(end.value)
        except (binascii.Error, BadResponse) as error:
            self._dialogue = None
            return reply(501, f"5.5.2 {error}")
        if self._authenticated:
            return reply(235, "2.7.0 Welcome")
        self._api.ledger.record_call(CallRecord(now, CallKind.AUTH, CallResult.UNAUTHORISED))
        return reply(535, "5.7.8 The user name or the password is wrong")

    def _mail(self, argument: str, now: float) -> Output:
        return self._run(Call(CallKind.MAIL), now, lambda _: _Handled(self._begin_message(argument)))

    def _begin_message(self, argument: str) -> Output:
        if not self._greeted or self._transaction is not None:
            return _OUT_OF_ORDER
        if not self._authenticated and self._api.api_key is not None:
            return _TLS_FIRST if self._tls and not self._encrypted else reply(530, "5.7.0 Authentication required")
        path = read_path(argument, "FROM:")
        if path is None:
            return reply(501, "5.1.7 Write MAIL FROM:<address>")
        if (refusal := _wrong_parameters(path)) is not None:
            return refusal
        international = "SMTPUTF8" in path.parameters
        if path.is_international and not international:
            return reply(553, "5.6.7 This address needs SMTPUTF8")
        self._transaction = _Transaction(path.address, international, [])
        return reply(250, "2.1.0 Ok")

    def _rcpt(self, argument: str, now: float) -> Output:
        path = read_path(argument, "TO:")
        recipients = (path.address.casefold(),) if path is not None and path.address else ()
        return self._run(Call(CallKind.RCPT, recipients), now, lambda _: _Handled(self._add_recipient(path)))

    def _add_recipient(self, path: Path | None) -> Output:
        if self._transaction is None:
            return _OUT_OF_ORDER
        if path is None or not path.address:
            return reply(501, "5.1.3 Write RCPT TO:<address>")
        if path.parameters:
            return reply(555, f"5.5.4 There is no {min(path.parameters)} here")
        if path.is_international and not self._transaction.international:
            return reply(553, "5.6.7 This address needs SMTPUTF8")
        self._transaction.recipients.append(path.address.casefold())
        return reply(250, "2.1.5 Ok")

    def _data(self, argument: str, now: float) -> Output:
        return self._run(Call(CallKind.DATA), now, lambda _: _Handled(self._begin_content(argument)))

    def _begin_content(self, argument: str) -> Output:
        if argument:
            return reply(501, "5.5.4 DATA takes nothing")
        if self._transaction is None:
            return _OUT_OF_ORDER
        if not self._transaction.recipients:
            return reply(554, "5.5.1 No valid recipients")
        self.reads_content = True
        return reply(354, "End data with <CR><LF>.<CR><LF>")

    def _plain(self, verb: str) -> Output:
        """The commands that no fault hits."""
        if verb == "RSET":
            self._transaction = None
        return _PLAIN_REPLIES.get(verb) or reply(500, "5.5.1 There is no such command")


_STAGES: Final[dict[str, Callable[[SmtpSession, str, float], Output]]] = {
    "EHLO": SmtpSession._ehlo,
    "HELO": SmtpSession._helo,
    "STARTTLS": SmtpSession._starttls,
    "AUTH": SmtpSession._auth,
    "MAIL": SmtpSession._mail,
    "RCPT": SmtpSession._rcpt,
    "DATA": SmtpSession._data,
}

_PLAIN_REPLIES: Final = {
    "RSET": reply(250, "2.0.0 Ok"),
    "NOOP": reply(250, "2.0.0 Ok"),
    "VRFY": reply(252, "2.5.2 Send it and see"),
    "HELP": reply(214, "2.0.0 See RFC 5321"),
    "QUIT": reply(221, "2.0.0 Bye", then=Then.CLOSE),
}


def _challenge(challenge: bytes) -> Output:
    return reply(334, b64encode(challenge).decode())


def _wrong_parameters(path: Path) -> Output | None:
    """Why the parameters of MAIL can't be taken."""
    if unknown := set(path.parameters) - _MAIL_PARAMETERS:
        return reply(555, f"5.5.4 There is no {min(unknown)} here")
    if (path.parameters.get("BODY") or "7BIT").upper() not in ("7BIT", "8BITMIME"):
        return reply(501, "5.5.4 BODY is 7BIT or 8BITMIME")
    size = path.parameters.get("SIZE", "0") or ""
    if not (size.isascii() and size.isdecimal() and len(size) <= 20):
        return reply(501, "5.5.4 SIZE is a number")
    if int(size) > CONTENT_BYTES_MAX:
        return reply(552, "5.3.4 The message is too long")
    return None
