"""`posthouse.toml` and the environment, validated as one. Secrets never show in repr, errors or logs.

Every setting's documentation is its `description` here; `docs/configuration.md` is generated from it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from posthouse.errors import ConfigError
from posthouse.group_settings import GroupSettings as GroupSettings
from posthouse.group_settings import HealthSettings as HealthSettings
from posthouse.process_settings import MailboxSettings as MailboxSettings
from posthouse.process_settings import WebSettings as WebSettings
from posthouse.process_settings import WorkerSettings as WorkerSettings
from posthouse.setting_faults import nearest, validated
from posthouse.setting_values import (
    Clash,
    Duration,
    PositiveDuration,
    PositiveSize,
    RateValue,
    SecretValue,
    SenderDomain,
    SenderValue,
    Share,
)
from posthouse.setting_values import Settings as Settings

CONFIG_FILE: Final = "posthouse.toml"
DEFAULT_TYPE: Final = "default"
PENDING_MAX: Final = 10_000_000
"""No cap is larger: more can't be counted every few seconds."""
CANARY_TYPES: Final = "canary."
"""How the types of canaries begin, which are nobody else's."""

EVERY_MIN_S: Final = 300.0
"""No canary goes out, and no log is read, more often."""

NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,62}$"


class WarmUpSettings(Settings):
    """`[routes.NAME.warm_up]`: a daily limit that grows while receivers get to know a new sender."""

    start: date = Field(description="Its first day, such as `2026-12-01`.")
    first: int = Field(ge=1, description="The limit of the first day.")
    growth: float = Field(1.5, gt=1, description="How many times as much each day may carry as the one before.")
    until: int = Field(ge=1, description="Over when a day's limit would be so much.")


class RouteSettings(Settings):
    """`[routes.NAME]`: one provider account. The provider's own settings stand in the same table."""

    model_config = ConfigDict(extra="allow", frozen=True, arbitrary_types_allowed=True, validate_default=True)

    provider: str = Field(description="The provider, such as `http`, `smtp` or `postmark`. See the page of each.")
    concurrency: int = Field(32, ge=1, le=1000, description="Calls at once in one worker process.")
    total_concurrency: int | None = Field(
        None,
        ge=1,
        description=(
            "Calls at once over all worker processes, which share them fairly; over SMTP also the most open "
            "connections. Default: no limit but that of each process."
        ),
    )
    rate: RateValue | None = Field(
        None, description="Messages at most, over all workers, such as `14/second`. Default: no limit."
    )
    burst: int = Field(
        1, ge=1, description="So many at once within `rate`. The rate itself stays: what starts together is paid for."
    )
    quota: RateValue | None = Field(
        None,
        description="Messages at most in a rolling window, such as `50000/day`; at 80 % of it people are told.",
    )
    counts: Literal["messages", "recipients"] = Field(
        "messages", description="What the provider counts against `rate`, `quota` and `warm_up`."
    )
    warm_up: WarmUpSettings | None = Field(
        None,
        description="A daily limit that grows: `{ start = 2026-12-01, first = 200, growth = 1.5, until = 50000 }`.",
    )
    sender_domains: tuple[SenderDomain, ...] = Field(
        (),
        description=(
            "The domains that this account may send for, with all below them. Mail of another sender never goes this "
            "way, not even when every other route is down. Default: any."
        ),
    )
    connect_timeout: PositiveDuration = Field("2s", description="The longest wait for a connection.")  # type: ignore[assignment]
    timeout: PositiveDuration = Field(
        "15s",  # type: ignore[assignment]
        description="The longest wait for a whole call, connecting included. After it the outcome is unknown.",
    )

    max_size: PositiveSize = Field(
        "25MB",  # type: ignore[assignment]
        description=(
            "The largest message that the provider takes, as it is sent: files are about 37 % larger then. A larger "
            "one is refused at `enqueue`, or takes another route."
        ),
    )

    canary_to: SenderValue | None = Field(
        None,
        description="Who gets a message by this route when it was quiet; if that is not accepted, people are told.",
    )
    canary_every: PositiveDuration | None = Field(
        None, description="How long a route may be quiet before `canary_to` gets a message, such as `30m`; at least 5m."
    )

    backfill_every: PositiveDuration | None = Field(
        None,
        description=(
            "How often the provider's own log is read for news whose webhook never came, such as `1h`; at least 5m. "
            "Default: never, since it costs calls, and a key that may only send can't read it."
        ),
    )

    @property
    def own(self) -> dict[str, Any]:
        """The settings that belong to the provider."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Only the fields declared here: a provider's own settings may hold a credential written in the file."""
        return [(name, getattr(self, name)) for name in type(self).model_fields]

    def clashes(self) -> Iterator[Clash]:
        """A wait within another one, a burst without its rate, half a canary."""
        if self.connect_timeout > self.timeout:
            yield "connect_timeout", "is longer than timeout, which it is a part of"
        if self.rate is not None and self.burst > self.rate[0]:
            yield "burst", "is more than the rate allows in all of its time"
        if (self.canary_to is None) != (self.canary_every is None):
            missing = "canary_to" if self.canary_to is None else "canary_every"
            yield missing, "is missing: canary_to and canary_every go together, give both or neither"
        for name, every_s in (("canary_every", self.canary_every), ("backfill_every", self.backfill_every)):
            if every_s is not None and every_s < EVERY_MIN_S:
                yield name, "is less than 5m"


class ServiceSettings(Settings):
    """`[services.NAME]`: one internal caller, as `Email.service` names it."""

    rate: RateValue | None = Field(None, description="Its sends at most, over all workers, such as `20/second`.")
    quota: RateValue | None = Field(
        None, description="Its sends at most in a rolling window, such as `5000/hour`; at 80 % of it people are told."
    )


class TypeSettings(Settings):
    """`[types.NAME]`: one message type. The type `default` always exists."""

    category: Literal["security", "transactional", "marketing"] = Field(
        "transactional",
        description="What kind of mail it is. The content of `security` mail is deleted in the write that accepts it.",
    )
    priority: Literal["urgent", "normal", "bulk"] = Field(
        "normal", description="Served in this order; each priority that has due mail gets a part of every round."
    )
    max_age: PositiveDuration = Field(
        "3d",  # type: ignore[assignment]
        description="How long after its time an email may still be sent. An email's own `expires` wins.",
    )
    routes: tuple[str, ...] = Field(
        (), description="The routes it may take, in order of preference. Default: all, in the order of the file."
    )
    failover: Literal["automatic", "manual"] = Field(
        "automatic",
        description=(
            "When the first route may not be used: the next one takes over by itself, or (`manual`) the mail waits "
            "until a person says `posthouse route close`."
        ),
    )
    standby_share: Share = Field(
        "0%",  # type: ignore[assignment]
        description=(
            "A small steady part of the mail that goes through the second route, so that it is known to work on the "
            "day it is needed, such as `1%`."
        ),
    )
    max_attempts: int = Field(
        10, ge=1, description="Tries before it fails. Outages, throttling and stopped routes don't count."
    )
    retry_first: PositiveDuration = Field("5s", description="The wait after the first try; it doubles from there.")  # type: ignore[assignment]
    retry_max: PositiveDuration = Field(
        "10m",  # type: ignore[assignment]
        description="The longest wait between tries; never more than a tenth of `max_age`.",
    )
    on_unknown: Literal["resend", "hold"] = Field(
        "hold",
        description=(
            "When nobody can say whether a call was accepted: `resend` (at least once, marked `maybe_duplicate`) "
            "or `hold` for `posthouse resolve` (at most once)."
        ),
    )
    unknown_wait: Duration = Field("1h", description="How long to look for the answer before `on_unknown` applies.")  # type: ignore[assignment]
    unknown_may_change_route: bool = Field(
        False, description="Whether `resend` may take another route than the one that may have accepted it."
    )
    cooldown: PositiveDuration | None = Field(
        None,
        description=(
            "The time between two emails of one `family`, such as `30s` between the codes for one person: until then "
            "`enqueue` raises `TooSoon`. Default: none."
        ),
    )
    max_pending: int | None = Field(
        None,
        ge=1,
        le=PENDING_MAX,
        description="Pending sends of this type at most; more are refused with `QueueFull`. Default: no limit.",
    )
    combine: PositiveDuration | None = Field(
        None,
        description=(
            "How long an email of this type waits for others to the same recipient, such as `10m`; they go out as one "
            "then, which the template renders from `items` and `count`. Default: each goes out by itself, at once."
        ),
    )
    unsubscribe: bool | None = Field(
        None,
        description=(
            "Whether its messages have a link by which people unsubscribe from this type, with one click. Default: "
            "`marketing` mail has, where `web.unsubscribe_secrets` are set. `true` insists on it."
        ),
    )


class OutboxSettings(Settings):
    """`[outbox]`: what may wait, all in all."""

    max_pending: int | None = Field(
        None,
        ge=1,
        le=PENDING_MAX,
        description=(
            "Pending sends of all types at most. Then `enqueue` raises `QueueFull`: for bulk mail from 80 % of it on, "
            "for urgent mail never. Default: no limit."
        ),
    )
    when_full: Literal["refuse", "shed"] = Field(
        "refuse",
        description=(
            "`refuse`, or `shed`: mail of a higher priority makes room for itself, and workers cancel the newest sends "
            "of a lower one for which no call was made."
        ),
    )

    def clashes(self) -> Iterator[Clash]:
        """Nothing can be full without a cap."""
        if self.when_full == "shed" and self.max_pending is None:
            yield "when_full", '"shed" needs max_pending'


class SuppressionSettings(Settings):
    """`[suppression]`: addresses that must not get mail. They are always held against right before a call."""

    at_enqueue: bool = Field(
        False,
        description=(
            "Whether `enqueue` looks as well: an email that none of its recipients may get is then written as "
            "`suppressed` at once, for one more statement a call."
        ),
    )
    hard_bounce_for: PositiveDuration | None = Field(
        None,
        description=(
            "How long an address that bounced for good is left in peace, such as `180d`; the next bounce begins it "
            "anew. Default: for good. Complaints and unsubscriptions never run out."
        ),
    )


class AlertSettings(Settings):
    """`[alerts]`: how people are told what needs them."""

    url: SecretValue | None = Field(
        None,
        description=(
            'Where an alert is posted as JSON, `{"text": …, "name": …}`, which most chat programs take. Default: the '
            "log alone."
        ),
    )
    quiet: PositiveDuration = Field(  # type: ignore[assignment]
        "15m",
        description="The same alert is not raised again within this time; what lasts longer is raised again then.",
    )


class RetentionSettings(Settings):
    """`[retention]`: how long finished sends and what belongs to them are kept."""

    contents: PositiveDuration = Field("30d", description="Bodies, variables and files of ended sends.")  # type: ignore[assignment]
    attempts: PositiveDuration = Field("90d", description="The time-line of attempts.")  # type: ignore[assignment]
    raw_answers: PositiveDuration = Field("7d", description="What providers answered, word for word.")  # type: ignore[assignment]
    events: PositiveDuration = Field("400d", description="What was heard of sends, and what of it could not be read.")  # type: ignore[assignment]
    sends: PositiveDuration = Field("400d", description="The ledger itself. A key can be used again after this.")  # type: ignore[assignment]


class Config(Settings):
    """`posthouse.toml`."""

    database: Annotated[SecretValue, Field(repr=False)] = Field(
        description=(
            "The application's own database: `sqlite:///posthouse.db`, `postgresql://user@host/name` or "
            "`mysql://user@host/name` (MariaDB, MySQL); also `env:NAME` or `file:PATH`. "
            "The environment variable `POSTHOUSE_DATABASE` wins."
        )
    )
    sender: SenderValue | None = Field(None, description="The From of emails that name no sender themselves.")
    templates: Path = Field(Path("templates"), description="The folder of the templates, from the file's own folder.")
    routes: dict[str, RouteSettings] = Field(
        default_factory=dict, description="`[routes.NAME]`, one a provider account."
    )
    types: dict[str, TypeSettings] = Field(default_factory=dict, description="`[types.NAME]`, one a message type.")
    services: dict[str, ServiceSettings] = Field(
        default_factory=dict, description="`[services.NAME]`, one an internal caller."
    )
    groups: dict[str, GroupSettings] = Field(default_factory=dict, description="`[groups.NAME]`, one a mailbox group.")
    mailboxes: dict[str, MailboxSettings] = Field(
        default_factory=dict, description="`[mailboxes.NAME]`, one a mailbox that bounces come to."
    )
    health: HealthSettings = Field(HealthSettings(), description="`[health]`.")
    outbox: OutboxSettings = Field(OutboxSettings(), description="`[outbox]`.")
    worker: WorkerSettings = Field(WorkerSettings(), description="`[worker]`.")
    web: WebSettings = Field(WebSettings(), description="`[web]`.")
    alerts: AlertSettings = Field(AlertSettings(), description="`[alerts]`.")
    suppression: SuppressionSettings = Field(SuppressionSettings(), description="`[suppression]`.")
    retention: RetentionSettings = Field(RetentionSettings(), description="`[retention]`.")

    @property
    def database_url(self) -> str:
        """The URL with its password. Raises ConfigError where it can't be found out."""
        try:
            return self.database.reveal()
        except ConfigError as error:
            raise ConfigError("database", error.reason) from None

    @property
    def database_shown(self) -> str:
        """The URL without its password."""
        return make_url(self.database_url).render_as_string(hide_password=True)

    @model_validator(mode="before")
    @classmethod
    def _default_type(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            types = data.get("types", {})
            return {**data, "types": {DEFAULT_TYPE: {}, **types} if isinstance(types, Mapping) else types}
        return data

    def clashes(self) -> Iterator[Clash]:
        """Names that none may have, and tables that need what others haven't."""
        yield from self._wrong_names()
        yield from self._wrong_routes()
        yield from self._wrong_links()
        yield from self._wrong_canaries()

    def _wrong_names(self) -> Iterator[Clash]:
        tables: dict[str, Mapping[str, Settings]] = {
            "routes": self.routes,
            "types": self.types,
            "services": self.services,
            "mailboxes": self.mailboxes,
        }
        for table, names in tables.items():
            for name in names:
                if not re.fullmatch(NAME_PATTERN, name):
                    yield f"{table}.{name}", "a name has small letters, digits and . _ - (at most 63 characters)"
        for name in filter(lambda name: name.startswith(CANARY_TYPES), self.types):
            yield f"types.{name}", f"{CANARY_TYPES}… is the type of canaries; take another name"

    def _wrong_routes(self) -> Iterator[Clash]:
        named = [(f"types.{name}.routes", route) for name, type_ in self.types.items() for route in type_.routes]
        named += [(f"mailboxes.{name}.route", box.route) for name, box in self.mailboxes.items() if box.route]
        for setting, route in named:
            if route not in self.routes:
                yield setting, f"{route!r} is not a route{nearest(route, self.routes)}"

    def _wrong_links(self) -> Iterator[Clash]:
        for name in (name for name, type_ in self.types.items() if type_.unsubscribe):
            if self.types[name].category != "marketing":
                reason = "stops `marketing` mail alone; with this category the link would do nothing"
                yield f"types.{name}.unsubscribe", reason
            elif not self.web.has_unsubscribe_links:
                yield f"types.{name}.unsubscribe", "needs web.public_url and web.unsubscribe_secrets"

    def _wrong_canaries(self) -> Iterator[Clash]:
        for name in (name for name, route in self.routes.items() if route.canary_to is not None):
            if self.sender is None:
                yield f"routes.{name}.canary_to", "needs a `sender` at the top of the file"
            if not re.fullmatch(NAME_PATTERN, CANARY_TYPES + name):
                yield f"routes.{name}", "the name of a route with canary_to has at most 56 characters"


def load_config(path: str | Path | None = None, *, environment: Mapping[str, str] = os.environ) -> Config:
    """Reads the file at `path`, else at `POSTHOUSE_CONFIG`, else `posthouse.toml` here. Raises ConfigError."""
    document, folder = read_document(path, environment=environment)
    return parse_config(document, folder=folder, environment=environment)


def read_document(
    path: str | Path | None = None, *, environment: Mapping[str, str] = os.environ
) -> tuple[dict[str, Any], Path]:
    """What stands in that file, and its folder. Raises ConfigError."""
    place = Path(path or environment.get("POSTHOUSE_CONFIG") or CONFIG_FILE)
    try:
        document = tomllib.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if "POSTHOUSE_DATABASE" not in environment or path or environment.get("POSTHOUSE_CONFIG"):
            raise ConfigError("", f"{place} does not exist; `posthouse init` writes one") from None
        document = {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("", f"{place} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("", f"{place} is not TOML: {error}") from None
    return document, place.parent


def parse_config(
    document: Mapping[str, Any], *, folder: Path = Path(), environment: Mapping[str, str] = os.environ
) -> Config:
    """A Config from a decoded document. `folder` is where relative paths start. Raises ConfigError."""
    merged = dict(document)
    if url := environment.get("POSTHOUSE_DATABASE"):
        merged["database"] = url
    config = validated(Config, merged)
    try:
        make_url(config.database_url)
    except (ArgumentError, ValueError):  # a ValueError quotes what it took for the port, perhaps the password
        raise ConfigError("database", "is not a database URL such as sqlite:///posthouse.db") from None
    return config.model_copy(update={"templates": folder / config.templates})
