"""The tables. Their names are public: support people read them in SQL. Times are UTC on every database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    false,
    literal_column,
    text,
)

from posthouse.core.group_health import OUR_FAULTS
from posthouse.core.lifecycle import TERMINAL, Status
from posthouse.fields import KEY_CHARS_MAX
from posthouse.store.column_types import EMPTY, MYSQL_TABLE, BigId, LongText, PartBytes
from posthouse.store.column_types import Instant as Instant

ADDRESS_CHARS: Final = 320  # RFC 5321 section 4.5.3.1: 64 for the local part, 255 for the domain
ERROR_CHARS_MAX: Final = 2000
ID_CHARS_MAX: Final = 255
CODE_CHARS_MAX: Final = 64
RULE_CHARS_MAX: Final = 128
DIGEST_CHARS: Final = 64

metadata = MetaData()


def status_is(*statuses: Status) -> ColumnElement[bool]:
    """A condition with the statuses as literals: a bound parameter can't prove a partial index's predicate."""
    literals = [literal_column(f"'{status.value}'", String) for status in statuses]
    # A comparison, not a Boolean literal: that one becomes `… = 1` on SQLite, which hides the predicate.
    return sends.c.status == literals[0] if len(literals) == 1 else sends.c.status.in_(literals)


def _status_sql(statuses: Iterable[Status]) -> str:
    quoted = [f"'{status.value}'" for status in statuses]
    return f"status = {quoted[0]}" if len(quoted) == 1 else f"status IN ({', '.join(quoted)})"


def _only(*statuses: Status) -> dict[str, Any]:
    """Index options: only rows of these statuses, where the database has partial indexes."""
    condition = text(_status_sql(statuses))
    return {"postgresql_where": condition, "sqlite_where": condition, "info": {"by_status": True}}


def _present(column: str) -> dict[str, Any]:
    """Index options: only rows that have a value there, where the database has partial indexes."""
    return _only_where(f"{column} IS NOT NULL")


def _only_where(condition: str) -> dict[str, Any]:
    """Index options: only rows that meet a condition, where the database has partial indexes."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


OUR_FAULTS_SQL: Final = f"cause IN {tuple(cause.value for cause in OUR_FAULTS)}"

_ENDED: Final = sorted(TERMINAL, key=str)

sends = Table(
    "email_sends",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("dedupe_key", String(KEY_CHARS_MAX), nullable=False),
    Column("fingerprint", String(64), nullable=False),  # of the content: the same key with another one is noticed
    Column("idempotency_key", String(40), nullable=False),  # what providers see; the same on every call
    Column("type", String(63), nullable=False),
    Column("lane", String(190), nullable=False),
    Column("to_address", String(ADDRESS_CHARS), nullable=False),  # the first recipient, folded for look-ups
    Column("recipients", LongText, nullable=False),  # all of them, a JSON list
    Column("status", String(12), nullable=False),
    Column("delivery", String(12), nullable=False, server_default="none"),
    Column("attempts", Integer, nullable=False, server_default="0"),  # calls made
    Column("failures", Integer, nullable=False, server_default="0"),  # calls that count against max_attempts
    Column("fence", Integer, nullable=False, server_default="0"),  # grows with each claim, never shrinks
    Column("claimed_by", BigId),  # email_workers.id; no foreign key, it would lock that row with every claim
    Column("next_try_at", Instant),  # when its owner looks at it again; NULL: never by itself
    Column("expires_at", Instant, nullable=False),
    Column("route", String(63)),  # of the latest attempt
    Column("message_id", String(ID_CHARS_MAX)),  # the provider's
    Column("last_error", LongText),
    Column("maybe_duplicate", Boolean, nullable=False, server_default=false()),
    Column("unknown_since", Instant),  # start of the first call whose outcome nobody knows yet
    Column("unknown_fence", Integer),  # that call's fence
    Column("after_key", String(KEY_CHARS_MAX)),
    Column("split_from", BigId),  # the send whose other recipients have got the message
    Column("combined_into", BigId),  # the send that it goes out in, where it is combined
    Column("campaign", String(63)),
    Column("service", String(63)),
    Column("tags", LongText),  # a JSON list
    Column("metadata", LongText),  # a JSON object of text to text
    Column("created_at", Instant, nullable=False),
    Column("first_attempt_at", Instant),
    Column("accepted_at", Instant),
    Column("last_event_at", Instant),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("dedupe_key", name="email_sends_dedupe_key"),
    Index("email_sends_due", "lane", "next_try_at", "id", **_only(Status.PENDING)),
    Index("email_sends_claimed", "claimed_by", "id", **_only(Status.SENDING)),
    Index("email_sends_unknown", "next_try_at", "id", **_only(Status.UNKNOWN)),
    Index("email_sends_waiting", "after_key", "id", **_only(Status.WAITING)),
    Index("email_sends_expiring", "expires_at", "id", **_only(Status.PENDING, Status.WAITING)),
    Index("email_sends_ended", "updated_at", "id", **_only(*_ENDED)),
    Index("email_sends_failed", "id", **_only(Status.FAILED)),
    Index("email_sends_to_address", "to_address", "id"),
    Index("email_sends_message_id", "message_id"),
    Index("email_sends_idempotency_key", "idempotency_key"),
    Index("email_sends_split", "split_from", **_present("split_from")),
    Index("email_sends_campaign", "campaign", "id", **_present("campaign")),
    Index("email_sends_combined", "combined_into", **_present("combined_into")),
    sqlite_autoincrement=True,  # an id is never used twice
    **MYSQL_TABLE,
)

contents = Table(
    "email_contents",
    metadata,
    Column("send_id", BigId, primary_key=True, autoincrement=False),
    Column("body", LongText, nullable=False),  # versioned JSON, see `email.Content`
    **MYSQL_TABLE,
)

# The bytes of files, apart from the contents that name them by their digest; see `blobs.py`.

blobs = Table(
    "email_blobs",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("digest", String(DIGEST_CHARS), nullable=False),  # SHA-256 in hexadecimal
    Column("size", BigInteger, nullable=False),  # in bytes
    Column("created_at", Instant, nullable=False),
    Index("email_blobs_digest", "digest", "created_at"),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

blob_parts = Table(
    "email_blob_parts",
    metadata,
    Column("blob_id", BigId, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),  # 0, 1, 2, …
    Column("body", PartBytes, nullable=False),
    **MYSQL_TABLE,
)

blob_uses = Table(
    "email_blob_uses",
    metadata,
    Column("send_id", BigId, primary_key=True, autoincrement=False),
    Column("blob_id", BigId, primary_key=True, autoincrement=False),
    Index("email_blob_uses_blob", "blob_id"),
    **MYSQL_TABLE,
)

attempts = Table(
    "email_attempts",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("send_id", BigId, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("via", String(12), nullable=False),  # send, replay, look-up, reaper, person
    Column("route", String(63), nullable=False),
    Column("worker", BigId),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("maybe_accepted", Boolean, nullable=False, server_default=false()),
    Column("code", String(CODE_CHARS_MAX), nullable=False, server_default=""),
    Column("text", LongText, nullable=False, server_default=EMPTY),
    Column("rule", String(RULE_CHARS_MAX), nullable=False, server_default=""),
    Column("message_id", String(ID_CHARS_MAX)),
    Column("request_id", String(ID_CHARS_MAX)),
    Column("raw", LongText),
    # The guard of every settle: an attempt that is recorded already was settled already.
    UniqueConstraint("send_id", "fence", "via", name="email_attempts_once"),
    Index("email_attempts_ended", "ended_at"),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

events = Table(
    "email_events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("digest", String(DIGEST_CHARS), nullable=False),  # of what it tells: the same news counts once
    Column("route", String(63), nullable=False),  # where it came in
    Column("provider_event_id", String(ID_CHARS_MAX)),
    Column("send_id", BigId),  # NULL: of no send that is known, or not yet
    Column("send_key", String(ID_CHARS_MAX)),  # what the provider calls our id
    Column("message_id", String(ID_CHARS_MAX)),
    Column("recipient", String(ADDRESS_CHARS), nullable=False),  # folded
    Column("kind", String(16), nullable=False),
    Column("cause", String(24), nullable=False, server_default=""),
    Column("hard", Boolean, nullable=False, server_default=false()),
    Column("code", String(CODE_CHARS_MAX), nullable=False, server_default=""),
    Column("text", LongText, nullable=False, server_default=EMPTY),
    Column("url", LongText, nullable=False, server_default=EMPTY),
    Column("at", Instant, nullable=False),  # as the provider says
    Column("received_at", Instant, nullable=False),
    Column("join_at", Instant),  # when its send is looked for again; NULL: not any more
    UniqueConstraint("digest", name="email_events_once"),
    UniqueConstraint("route", "provider_event_id", name="email_events_provider_id"),
    Index("email_events_send", "send_id", "id"),
    Index("email_events_recipient", "recipient", "id"),
    Index("email_events_joining", "join_at", **_present("join_at")),
    Index("email_events_received", "received_at"),
    Index("email_events_faults", "cause", "received_at", **_only_where(OUR_FAULTS_SQL)),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

group_counts = Table(
    "email_group_counts",
    metadata,
    Column("bucket", Instant, primary_key=True),  # the beginning of the five minutes that are counted together
    Column("mailbox_group", String(63), primary_key=True),
    Column("route", String(63), primary_key=True),
    Column("kind", String(16), primary_key=True),  # sent: calls that were accepted; else as events have it
    Column("cause", String(24), primary_key=True),
    Column("number", BigInteger, nullable=False),
    **MYSQL_TABLE,
)

slowdowns = Table(
    "email_slowdowns",
    metadata,
    Column("mailbox_group", String(63), primary_key=True),
    Column("route", String(63), primary_key=True),
    Column("per_minute", Integer, nullable=False),
    Column("was_per_minute", Integer, nullable=False),
    Column("signal", String(16), nullable=False),  # what speaks for it
    Column("reason", LongText, nullable=False, server_default=EMPTY),
    Column("since", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column("too_fast_per_minute", Integer),
    Column("ended_at", Instant),  # a person ended it: kept for a while, so that it doesn't come right back
    **MYSQL_TABLE,
)

quarantine = Table(
    "email_quarantine",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("digest", String(DIGEST_CHARS), nullable=False),  # of the item: what is sent again is kept once
    Column("route", String(63), nullable=False),
    Column("received_at", Instant, nullable=False),
    Column("reason", LongText, nullable=False, server_default=EMPTY),
    Column("item", LongText, nullable=False, server_default=EMPTY),  # as it came
    UniqueConstraint("route", "digest", name="email_quarantine_once"),
    Index("email_quarantine_received", "received_at"),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

webhook_tokens = Table(
    "email_webhook_tokens",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("digest", String(DIGEST_CHARS), nullable=False),  # of the route and the token
    Column("body_digest", String(DIGEST_CHARS), nullable=False),  # of what it came with first
    Column("received_at", Instant, nullable=False),
    UniqueConstraint("digest", name="email_webhook_tokens_once"),
    Index("email_webhook_tokens_received", "received_at"),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

suppressions = Table(
    "email_suppressions",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("address", String(ADDRESS_CHARS), nullable=False),  # folded, its domain as A-labels
    Column("cause", String(16), nullable=False),
    Column("scope", String(80), nullable=False, server_default=""),  # such as `type newsletter`; empty: all mail
    Column("until", Instant),  # NULL: for good
    Column("reason", LongText, nullable=False, server_default=EMPTY),
    Column("who", String(255), nullable=False),  # a person, or the route that told of it
    Column("event_id", BigId),  # that it comes from
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("address", "cause", "scope", name="email_suppressions_once"),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

routes = Table(
    "email_routes",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("state", String(12), nullable=False),
    Column("held_until", Instant, nullable=False),
    Column("reason", LongText, nullable=False, server_default=EMPTY),
    Column("strikes", Integer, nullable=False, server_default="0"),
    Column("breaker", LongText),  # what all workers know of the provider's failures, as JSON; NULL: none
    Column("changed_at", Instant, nullable=False),
    Column("held_since", Instant),
    Column("last_accepted_at", Instant),  # to within a minute
    **MYSQL_TABLE,
)

places = Table(
    "email_places",
    metadata,
    Column("route", String(63), primary_key=True),
    Column("worker", BigId, primary_key=True, autoincrement=False),
    Column("places", Integer, nullable=False),
    Column("wanted", Integer, nullable=False),
    Column("changed_at", Instant, nullable=False),
    **MYSQL_TABLE,
)

workers = Table(
    "email_workers",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("heartbeat_at", Instant, nullable=False),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)

limits = Table(
    "email_limits",
    metadata,
    Column("name", String(190), primary_key=True),  # what is limited, such as `route main`
    Column("tat", Instant, nullable=False),  # how far the slots that were given away reach
    Column("parts", LongText, nullable=False, server_default=EMPTY),  # what a quota's window holds, as JSON
    Column("warned_at", Instant, nullable=False),
    **MYSQL_TABLE,
)

switches = Table(
    "email_switches",
    metadata,
    Column("scope", String(12), primary_key=True),  # what is closed: all, type, service, campaign, group, lane
    Column("value", String(190), primary_key=True),
    Column("reason", LongText, nullable=False, server_default=EMPTY),
    Column("who", String(255), nullable=False),
    Column("since", Instant, nullable=False),
    Column("until", Instant),  # when it opens by itself
    Column("resumed_at", Instant),  # a person opened it: kept for a while, because traffic comes back slowly
    **MYSQL_TABLE,
)

backlog = Table(
    "email_backlog",
    metadata,
    Column("name", String(190), primary_key=True),  # such as `priority bulk`; `turn`: whoever counted last
    Column("pending", Integer, nullable=False),
    Column("counted_at", Instant, nullable=False),
    **MYSQL_TABLE,
)

families = Table(
    "email_families",
    metadata,
    # The primary key, for which MariaDB and MySQL lock no gap: nobody waits for another family's transaction.
    Column("type", String(63), primary_key=True),
    Column("family", String(KEY_CHARS_MAX), primary_key=True),
    Column("dedupe_key", String(KEY_CHARS_MAX), nullable=False),  # of the latest
    Column("last_at", Instant, nullable=False),
    Index("email_families_last_at", "last_at"),
    **MYSQL_TABLE,
)

alerts = Table(
    "email_alerts",
    metadata,
    Column("name", String(190), primary_key=True),  # what it is about, such as `route main`
    Column("text", LongText, nullable=False, server_default=EMPTY),
    Column("raised_at", Instant, nullable=False),
    Column("times", Integer, nullable=False, server_default="0"),
    **MYSQL_TABLE,
)

log_cursors = Table(
    "email_log_cursors",
    metadata,
    Column("route", String(63), primary_key=True),
    Column("read_until", Instant),  # its provider's log was read up to here; NULL: never yet
    Column("turn_at", Instant, nullable=False),  # when it was written last
    Column("failing_since", Instant),
    Column("error", LongText, nullable=False, server_default=EMPTY),  # of the latest pass, while it fails
    **MYSQL_TABLE,
)

audit = Table(
    "email_audit",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    Column("at", Instant, nullable=False),
    Column("who", String(255), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", String(255), nullable=False),
    Column("detail", LongText, nullable=False, server_default=EMPTY),
    Index("email_audit_subject", "subject"),
    sqlite_autoincrement=True,
    **MYSQL_TABLE,
)


def metadata_of(dialect_name: str) -> MetaData:
    """The tables as one database has them: without partial indexes, full ones begin with the status where that is what
    they are partial by."""
    if dialect_name != "mysql":
        return metadata
    full = MetaData()
    for table in metadata.sorted_tables:
        copy = table.to_metadata(full)
        by_status = {index.name for index in table.indexes if index.info.get("by_status")}
        for index in [index for index in copy.indexes if index.name in by_status]:
            copy.indexes.remove(index)
            Index(index.name, copy.c.status, *index.columns)
    return full
