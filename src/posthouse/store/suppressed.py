"""New sends that nobody may get, written as `suppressed` at once: on the caller's own connection, as it enqueues.

The caller's transaction goes on as if nothing had happened: a complaint is no reason to lose an order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from posthouse.core.lifecycle import TRANSITIONS, Happening, Status
from posthouse.core.policy import TypePolicy
from posthouse.core.suppression import Suppression, SuppressionCause, stopped, why_not
from posthouse.store.batch import MYSQL_TEXT, ascii_text
from posthouse.store.database import MYSQL, SQLITE
from posthouse.store.enqueue import CHUNK, NewSend, Stored
from posthouse.store.moments import epoch_sql
from posthouse.store.script import Script

_SUPPRESSED: Final = TRANSITIONS[Status.PENDING, Happening.SUPPRESSED]


def why_suppressed(
    dialect: str, new: Sequence[NewSend], policies: Mapping[str, TypePolicy], now: float
) -> Script[dict[str, str]]:
    """The reason, by its key, for each email that none of its recipients may get. One statement for some hundred."""
    addresses = sorted({each.folded for item in new for each in item.email.content.recipients})
    known: dict[str, list[Suppression]] = {}
    for begin in range(0, len(addresses), CHUNK):
        known |= yield from _active(dialect, addresses[begin : begin + CHUNK], now)
    reasons = {}
    for item in new if known else ():
        recipients = [each.email for each in item.email.content.recipients]
        policy = policies[item.email.type]
        left_out = stopped(recipients, known, policy.name, policy.category, now)
        if len(left_out) == len(recipients):
            reasons[item.email.key] = why_not(left_out)
    return reasons


def _active(dialect: str, addresses: Sequence[str], now: float) -> Script[dict[str, list[Suppression]]]:
    found: dict[str, list[Suppression]] = defaultdict(list)
    chosen = ", ".join(
        [
            "id",
            *(_text(dialect, column) for column in ("address", "cause", "scope", "reason", "who")),
            *(epoch_sql(dialect, column) for column in ("until", "updated_at")),
        ]
    )
    marks = ", ".join([_mark(dialect)] * len(addresses))
    given = [_given(dialect, each) for each in addresses]
    rows = yield f"SELECT {chosen} FROM email_suppressions WHERE address IN ({marks})", given
    for id_, *words, until, at in rows:
        address, cause, scope, reason, who = (_read(dialect, word) for word in words)
        ends = None if until is None else float(until)
        each = Suppression(id_, address, SuppressionCause(cause), scope, ends, reason, who, float(at))
        if each.is_on(now):
            found[address].append(each)
    return dict(found)


def suppress_new(dialect: str, stored: Iterable[Stored], reasons: Mapping[str, str]) -> Script[None]:
    """Suppresses those of the new sends for which there is a reason."""
    mine = [(row.id, reasons[row.key]) for row in stored if row.created and row.key in reasons]
    mark, plain = _mark(dialect), "?" if dialect == SQLITE else "%s"
    for begin in range(0, len(mine), CHUNK):
        part = mine[begin : begin + CHUNK]
        cases = " ".join([f"WHEN {plain} THEN {mark}"] * len(part))
        ids = ", ".join([plain] * len(part))
        parameters: list[Any] = [_SUPPRESSED.value]
        for id_, reason in part:
            parameters += [id_, _given(dialect, reason)]
        parameters += [id_ for id_, _ in part]
        yield (
            f"UPDATE email_sends SET status = {plain}, next_try_at = NULL, last_error = CASE id {cases} END "
            f"WHERE id IN ({ids})",
            parameters,
        )


def _mark(dialect: str) -> str:
    return {SQLITE: "?", MYSQL: MYSQL_TEXT}.get(dialect, "%s")


def _given(dialect: str, said: str) -> str:
    return ascii_text(said) if dialect == MYSQL else said


def _text(dialect: str, column: str) -> str:
    """A text that comes back as ASCII: the caller's connection may have a character set that lacks most characters."""
    return f"HEX({column})" if dialect == MYSQL else column


def _read(dialect: str, said: str) -> str:
    return bytes.fromhex(said).decode() if dialect == MYSQL else said
