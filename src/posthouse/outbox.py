"""`Outbox.enqueue` and `enqueue_async`: the only way in, on the caller's own transaction."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from posthouse.address import Address
from posthouse.core.cap_policy import CapPolicy
from posthouse.core.combining import refusal
from posthouse.core.policy import TypePolicy
from posthouse.core.suppression import SuppressionPolicy
from posthouse.email import CheckedEmail, Email
from posthouse.errors import InvalidEmail
from posthouse.providers.port import Provider
from posthouse.store.admission import Admission
from posthouse.store.async_runners import write_through_async
from posthouse.store.enqueue import NewSend, Stored, insert_sends
from posthouse.store.runners import write_through
from posthouse.store.script import Script
from posthouse.store.suppressed import suppress_new
from posthouse.unsubscribe import link_headers, takes_headers


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What `enqueue` returns. `created` is False when this key's email had been written before.

    `suppressed` says why this call has written it as suppressed: none of its recipients may get it. Empty: it waits to
    be sent, or was not looked at (`suppression.at_enqueue`).
    """

    id: int
    key: str
    created: bool
    suppressed: str = ""


class Outbox:
    """Writes emails into the application's database, inside its transaction. Safe to share between threads.

    `providers` are asked what their route can't carry; `new_key` makes an idempotency key; `clock` is used only for
    databases that have none of their own.
    """

    def __init__(
        self,
        policies: Mapping[str, TypePolicy],
        providers: Mapping[str, Provider],
        *,
        sender: Address | None,
        clock: Callable[[], float],
        new_key: Callable[[], str],
        caps: CapPolicy | None = None,
        suppression: SuppressionPolicy | None = None,
    ) -> None:
        self._policies = policies
        self._providers = providers
        self._sender = sender
        self._clock = clock
        self._new_key = new_key
        self._admission = Admission(caps or CapPolicy(), clock)
        self._looks_for_suppressions = suppression is not None and suppression.at_enqueue

    def enqueue(self, connection: object, email: Email) -> Enqueued:
        """Writes one email; it exists when the caller's transaction commits, and never existed if it rolls back.

        `connection` is a SQLAlchemy Connection, Session or scoped_session, a Django connection inside
        `transaction.atomic()`, or a sqlite3, psycopg, PyMySQL or mysqlclient connection. Raises InvalidEmail,
        KeyReused, QueueFull, TooSoon, UnsupportedConnection, SchemaError; after each but the last nothing was written
        and the transaction is as usable as before.
        """
        return self.enqueue_many(connection, (email,))[0]

    def enqueue_many(self, connection: object, emails: Iterable[Email]) -> list[Enqueued]:
        """Writes several emails in chunks, all or none of them; else like `enqueue`."""
        new = [self._new_send(email) for email in emails]
        return write_through(connection, self._script(new)) if new else []

    async def enqueue_async(self, connection: object, email: Email) -> Enqueued:
        """Like `enqueue`, for a connection that is awaited.

        `connection` is a SQLAlchemy AsyncConnection, AsyncSession or async_scoped_session, or a
        psycopg.AsyncConnection.
        """
        return (await self.enqueue_many_async(connection, (email,)))[0]

    async def enqueue_many_async(self, connection: object, emails: Iterable[Email]) -> list[Enqueued]:
        """Like `enqueue_many`, for the connections of `enqueue_async`. A cancelled call leaves none of the emails."""
        new = [self._new_send(email) for email in emails]
        return await write_through_async(connection, self._script(new)) if new else []

    def _script(self, new: Sequence[NewSend]) -> Callable[[str], Script[list[Enqueued]]]:
        return partial(self._admit_and_insert, new=new)

    def _admit_and_insert(self, dialect: str, new: Sequence[NewSend]) -> Script[list[Enqueued]]:
        yield from self._admission.admit(dialect, new)
        stored = yield from insert_sends(dialect, new, self._clock)
        reasons: Mapping[int, str] = {}
        if self._looks_for_suppressions:
            reasons = yield from suppress_new(dialect, new, stored, self._policies, self._clock())
        return [_enqueued(row, reasons) for row in stored]

    def _new_send(self, email: Email) -> NewSend:
        if not isinstance(email, Email):
            raise InvalidEmail("email", f"must be a posthouse.Email, not {type(email).__name__}")
        checked = email.checked()
        policy = self._policies.get(checked.type)
        if policy is None:
            raise InvalidEmail("type", f"{checked.type!r} is not configured (there are: {', '.join(self._policies)})")
        if checked.content.sender is None and self._sender is None:
            raise InvalidEmail("sender", "is missing, and the configuration has no `sender` either")
        if policy.combine_s is not None:
            _refuse_what_cannot_be_combined(checked)
        if policy.unsubscribe_link:
            _refuse_several_recipients(checked)
        self._refuse_options_for_nobody(checked.content.options)
        self._refuse_what_no_route_carries(checked, policy)
        return NewSend(checked, self._new_key(), policy.max_age_s, policy.cooldown_s, policy.combine_s or 0.0)

    def _refuse_options_for_nobody(self, options: Iterable[str]) -> None:
        """Options go by the name of a route or of its provider; under any other they would be lost."""
        known = {*self._providers, *(provider.facts.kind for provider in self._providers.values())} - {""}
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, sorted(known), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
                raise InvalidEmail(f"options.{name}", f"is neither a route nor a provider of one; {hint}")

    def _refuse_what_no_route_carries(self, email: CheckedEmail, policy: TypePolicy) -> None:
        reasons = []
        content = email.content if email.content.sender else replace(email.content, sender=self._sender)
        if policy.unsubscribe_link and takes_headers(content):
            content = replace(content, headers=(*content.headers, *link_headers("<https://…>")))
        for name in policy.routes:
            if not (refused := self._providers[name].refusals(content)):
                return
            reasons += [f"{name}: {reason}" for reason in refused]
        if reasons:
            raise InvalidEmail("email", f"no route of type {email.type!r} can carry it ({'; '.join(reasons)})")


def _refuse_what_cannot_be_combined(email: CheckedEmail) -> None:
    refused = refusal(email.content, len(email.stored))
    if refused is None and email.expires is not None:
        refused = "expires", "several that go out as one end as one: the type's max_age says when"
    if refused is not None:
        field, reason = refused
        raise InvalidEmail(field, f"{reason} (emails of type {email.type!r} are combined)")


def _refuse_several_recipients(email: CheckedEmail) -> None:
    """Said to who writes the code, since nobody would notice a newsletter without a way out. One link for all would
    let each unsubscribe the others."""
    count = len(email.content.recipients)
    if count > 1 and takes_headers(email.content):
        reason = (
            f"{count} recipients (with cc and bcc), and emails of type {email.type!r} have a link by which one person "
            "unsubscribes: enqueue one email for each, or give a List-Unsubscribe header of your own"
        )
        raise InvalidEmail("to", reason)


def _enqueued(row: Stored, reasons: Mapping[int, str]) -> Enqueued:
    return Enqueued(row.id, row.key, row.created, reasons.get(row.id, "") if row.created else "")
