"""New sends that nobody may get, written as `suppressed` at once: on the caller's own connection, as it enqueues.

The caller's transaction goes on as if nothing had happened: a complaint is no reason to lose an order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from posthouse.core.lifecycle import TRANSITIONS, Happening, Status
from posthouse.core.policy import TypePolicy
from posthouse.core.suppression import Suppression, SuppressionCause, stopped, why_not
from posthouse.store.batch import MYSQL_TEXT, ascii_text
from posthouse.store.database import MYSQL, SQLITE
from posthouse.store.enqueue import CHUNK, NewSend, Stored
from posthouse.store.moments import epoch_sql
from posthouse.store.script import Script

T = TypeVar("T")

_SUPPRESSED: Final = TRANSITIONS[Status.PENDING, Happening.SUPPRESSED]


def suppress_new(
    dialect: str, new: Sequence[NewSend], stored: Sequence[Stored], policies: Mapping[str, TypePolicy], now: float
) -> Script[dict[int, str]]:
    """Suppresses those of the sends just written that none of their recipients may get; the reasons by id.

    It asks after the writing: a SQLite transaction that begins by reading may not be let to write.
    """
    items = {row.id: item for row, item in zip(stored, new, strict=True) if row.created}
    known = yield from _active(
        dialect, {each.folded for item in items.values() for each in item.email.content.recipients}, now
    )
    reasons: dict[int, str] = {}
    for id_, item in items.items() if known else ():
        recipients = [each.email for each in item.email.content.recipients]
        policy = policies[item.email.type]
        left_out = stopped(recipients, known, policy.name, policy.category, now)
        if len(left_out) == len(recipients):
            reasons[id_] = why_not(left_out)
    yield from _suppress(dialect, list(reasons.items()))
    return reasons


def _active(dialect: str, addresses: Collection[str], now: float) -> Script[dict[str, list[Suppression]]]:
    """What holds for these folded addresses: one statement for some hundred of them."""
    found: dict[str, list[Suppression]] = defaultdict(list)
    words = ", ".join(_text(dialect, column) for column in ("address", "cause", "scope", "reason", "who"))
    moments = ", ".join(epoch_sql(dialect, column) for column in ("until", "updated_at"))
    for part in _parts(sorted(addresses)):
        marks = ", ".join([_mark(dialect)] * len(part))
        rows = yield (
            f"SELECT id, {words}, {moments} FROM email_suppressions WHERE address IN ({marks})",
            [_given(dialect, each) for each in part],
        )
        for id_, *said, until, at in rows:
            address, cause, scope, reason, who = (_read(dialect, word) for word in said)
            ends = None if until is None else float(until)
            each = Suppression(id_, address, SuppressionCause(cause), scope, ends, reason, who, float(at))
            if each.is_on(now):
                found[address].append(each)
    return dict(found)


def _suppress(dialect: str, reasons: Sequence[tuple[int, str]]) -> Script[None]:
    plain, mark = "?" if dialect == SQLITE else "%s", _mark(dialect)
    for part in _parts(reasons):
        cases = " ".join([f"WHEN {plain} THEN {mark}"] * len(part))
        ids = ", ".join([plain] * len(part))
        told = [value for id_, reason in part for value in (id_, _given(dialect, reason))]
        yield (
            f"UPDATE email_sends SET status = {plain}, next_try_at = NULL, last_error = CASE id {cases} END "
            f"WHERE id IN ({ids})",
            [_SUPPRESSED.value, *told, *(id_ for id_, _ in part)],
        )


def _parts(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[begin : begin + CHUNK] for begin in range(0, len(items), CHUNK)]


def _mark(dialect: str) -> str:
    return {SQLITE: "?", MYSQL: MYSQL_TEXT}.get(dialect, "%s")


def _given(dialect: str, said: str) -> str:
    return ascii_text(said) if dialect == MYSQL else said


def _text(dialect: str, column: str) -> str:
    """A text that comes back as ASCII: the caller's connection may have a character set that lacks most characters."""
    return f"HEX({column})" if dialect == MYSQL else column


def _read(dialect: str, said: str) -> str:
    return bytes.fromhex(said).decode() if dialect == MYSQL else said
