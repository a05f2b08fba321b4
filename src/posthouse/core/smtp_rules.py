"""Judges what an SMTP call brought: a reply or a fault with its phase in, a Verdict out.

The rules themselves stand in `core.smtp_table`. What goes into a verdict's text may be shown to anybody who looks
at a send, so secrets are taken out here, and what no database stores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Final

from posthouse.core.answers import first_match
from posthouse.core.http_rules import ID_CHARS_MAX, one_line, raw_of, redact
from posthouse.core.outcome import Outcome, Remainder, Subject, Verdict
from posthouse.core.retry import RETRY_AFTER_MAX_S
from posthouse.core.smtp_replies import EVERY_PHASE, Fault, FaultRule, Phase, Reply, SmtpRule
from posthouse.core.smtp_table import FAULT_RULES, SMTP_RULES

JUDGED_CHARS_MAX: Final = 8192

_WAIT = re.compile(
    r"(?:try|retry|back|again|wait|greylist\w*)\b[^.\n]{0,30}?\b(\d{1,6}) ?(s|sec|m|min|h|hour)(?:ond|ute)?s?\b",
    re.IGNORECASE,
)
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_QUEUED_AS = re.compile(
    r"\bqueued (?:mail for delivery )?as:? *([\w.@<>=-]+)|\bid[=: ] *([\w.@<>-]+)"
    r"|\A(?:2\.\d\.\d )?(?:Ok:? +)?((?=\S*\d)[\w-]{8,}(?:\.[\w-]+)*)(?: Message accepted.*)?\Z",
    re.IGNORECASE,
)
"""Postfix, Exim, Sendmail and Exchange; at last a lone word with a digit, as SES says it."""


def judge_reply(reply: Reply, *, secrets: Iterable[str] = (), recipient: str | None = None) -> Verdict:
    """The verdict on a reply. An accepted one carries the id under which the server says it has the message.

    `recipient` is the one whom it is about, where it is about one.
    """
    rule = decide_reply(reply)
    secrets = tuple(secrets)
    accepted = rule.outcome is Outcome.ACCEPTED
    text = one_line(redact(reply.text, secrets))
    told = text if accepted else f"at {reply.phase}: {text or 'no word of why'}"
    return Verdict(
        outcome=rule.outcome,
        maybe_accepted=rule.maybe_accepted,
        spends_attempt=rule.spends_attempt,
        subject=rule.subject,
        code=f"{reply.code:03d}",
        text=told,
        message_id=queue_id(reply.text) if accepted else None,
        retry_after_s=None if accepted else _named_wait_s(reply.text) or rule.wait_s,
        rule=rule.name,
        raw=None if accepted else raw_of(f"{reply.code:03d} {reply.text}", secrets),
        bad_addresses=(recipient,) if rule.bad_address and recipient is not None else (),
    )


def judge_fault(fault: Fault, text: str, *, secrets: Iterable[str] = ()) -> Verdict:
    """The verdict on a call that ended without a reply; `text` is what happened."""
    rule = decide_fault(fault)
    return Verdict(
        outcome=rule.outcome,
        maybe_accepted=rule.maybe_accepted,
        spends_attempt=rule.spends_attempt,
        subject=rule.subject,
        code=fault.code,
        text=one_line(redact(f"at {fault.phase}: {text}", secrets)),
        rule=rule.name,
    )


def decide_reply(reply: Reply) -> SmtpRule:
    """The rule that decides a reply."""
    if len(reply.text) > JUDGED_CHARS_MAX:
        reply = replace(reply, text=reply.text[:JUDGED_CHARS_MAX])
    rule = first_match(reply, SMTP_RULES)
    if rule is None:
        raise AssertionError(f"no rule decides {reply.code} at {reply.phase}")
    return rule


def decide_fault(fault: Fault) -> FaultRule:
    """The rule that decides a fault."""
    rule = first_match(fault, FAULT_RULES)
    if rule is None:
        raise AssertionError(f"no rule decides {fault}")
    return rule


_GRAVEST_FIRST: Final = (Outcome.MISCONFIGURED, Outcome.THROTTLED, Outcome.TRANSIENT, Outcome.REJECTED)


def all_refused(verdicts: Sequence[tuple[str, Verdict]]) -> Verdict:
    """One verdict for a transaction all of whose recipients were refused, from each address's own.

    One that may work later keeps the send alive for all: the others are refused once more, and nobody gets it twice.
    """
    gravest = min(verdicts, key=lambda pair: _GRAVEST_FIRST.index(pair[1].outcome))[1]
    return (
        gravest
        if len(verdicts) == 1
        else replace(gravest, text=one_line(_each(verdicts)), bad_addresses=_bad_addresses(verdicts))
    )


def partly_accepted(accepted: Verdict, refused: Sequence[tuple[str, Verdict]], message_id: str) -> Verdict:
    """What some recipients got is accepted. The others are named, with what was said about them, and remain: those
    with the same outcome together. `message_id` is the message's own."""
    alike: dict[Outcome, list[tuple[str, Verdict]]] = {}
    for pair in refused:
        alike.setdefault(pair[1].outcome, []).append(pair)
    return replace(
        accepted,
        text=one_line(f"{len(refused)} refused: {_each(refused)}"),
        rule="partly accepted",
        raw=raw_of("\n".join(f"{address}: {verdict.raw}" for address, verdict in refused)),
        bad_addresses=_bad_addresses(refused),
        remainders=tuple(
            Remainder(tuple(address for address, _ in group), all_refused(group), message_id)
            for group in alike.values()
        ),
    )


def _bad_addresses(verdicts: Sequence[tuple[str, Verdict]]) -> tuple[str, ...]:
    return tuple(address for _, verdict in verdicts for address in verdict.bad_addresses)


def _each(verdicts: Sequence[tuple[str, Verdict]]) -> str:
    return "; ".join(f"{address}: {verdict.outcome}, {verdict.code} {verdict.text}" for address, verdict in verdicts)


def queue_id(text: str) -> str | None:
    """The server's own id for an accepted message, where its words have one."""
    found = _QUEUED_AS.search(one_line(text))
    identifier = next((group for group in found.groups() if group), "").strip("<>.") if found else ""
    return identifier if 0 < len(identifier) <= ID_CHARS_MAX else None


def _named_wait_s(text: str) -> float | None:
    """The wait that a reply asks for in words: `try again in 5 minutes`."""
    found = _WAIT.search(text)
    return min(int(found[1]) * _UNITS[found[2][0].lower()], RETRY_AFTER_MAX_S) if found else None


def smtp_rules_as_markdown() -> str:
    """The rules as a table for the documentation, in the order in which they are asked."""
    names = ("At", "Reply", "Outcome", "About", "May have been accepted", "Spends an attempt", "Source")
    head = f"| {' | '.join(names)} |\n{'|---' * len(names)}|\n"
    rows = [_row(rule.phases, _codes(rule.codes) + rule.name, rule) for rule in SMTP_RULES]
    rows += [_row(rule.phases, f"none: {rule.name}", rule) for rule in FAULT_RULES]
    return head + "".join(rows)


def _row(phases: Set[Phase], what: str, rule: SmtpRule | FaultRule) -> str:
    yes = {True: "yes", False: "no"}
    maybe = yes[rule.maybe_accepted or rule.outcome is Outcome.ACCEPTED]
    about = rule.subject if rule.outcome is not Outcome.ACCEPTED else Subject.MESSAGE
    cells = (_steps(phases), what, rule.outcome, about, maybe, yes[rule.spends_attempt], rule.source)
    return f"| {' | '.join(cells)} |\n"


def _steps(phases: Set[Phase]) -> str:
    if phases == EVERY_PHASE:
        return "every step"
    missing = EVERY_PHASE - phases
    if len(missing) == 1:
        return f"every step but {min(missing)}"
    ordered = [phase for phase in Phase if phase in phases]
    first, last = list(Phase).index(ordered[0]), list(Phase).index(ordered[-1])
    if len(ordered) > 2 and last - first + 1 == len(ordered):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(ordered)


def _codes(codes: Set[int]) -> str:
    if len(codes) <= 6:
        return ", ".join(f"{code:03d}" for code in sorted(codes)) + ": "
    hundreds = sorted({code // 100 for code in codes if 2 <= code // 100 <= 5})
    return ", ".join(f"{hundred}yz" for hundred in hundreds) + ": "
