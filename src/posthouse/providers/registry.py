"""Every provider by name, and how a route of it is built from its settings."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from posthouse.config import RouteSettings, Settings
from posthouse.errors import ConfigError
from posthouse.providers.api import Api, ApiProvider
from posthouse.providers.api_settings import CallSettings
from posthouse.providers.port import Provider
from posthouse.providers.transport import TransportFactory, TransportOptions
from posthouse.setting_faults import validated

if TYPE_CHECKING:
    from posthouse.providers.smtp_wire import Connect
    from posthouse.providers.webhook import Webhook


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a provider is built with."""

    name: str  # the route's
    route: RouteSettings
    transport_factory: TransportFactory
    now: Callable[[], float]  # seconds since 1970
    connect: Connect | None  # for what is not HTTP; None: as the system does


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """One provider: its settings, and how a route of it is built from them."""

    settings: type[Settings]
    build: Callable[[BuildContext, Settings], Provider]
    webhook: Callable[[Any], Webhook] | None = None  # of those settings; None: it has none that we read


Own = TypeVar("Own", bound=CallSettings)
Built = TypeVar("Built")


def _over_http(
    settings: type[Own], api: Callable[[Own], Api], webhook: Callable[[Own], Webhook] | None = None
) -> ProviderKind:
    """A provider with an HTTP API: its settings, and the API that they describe."""

    def build(context: BuildContext, own: Settings) -> Provider:
        if not isinstance(own, settings):
            raise TypeError("settings of another provider")
        options = TransportOptions(
            connect_timeout_s=context.route.connect_timeout,
            concurrency=context.route.concurrency,
            keepalive_s=own.keepalive,
            ca_file=own.ca_file,
        )
        try:
            described = api(own)
        except ConfigError as error:
            raise ConfigError(f"routes.{context.name}.{error.setting}", error.reason) from None
        return ApiProvider(
            context.name, context.route, described, partial(context.transport_factory, options), context.now
        )

    return ProviderKind(settings, build, webhook)


# A provider that no route has is not imported: each costs a process as much as a small library.


def _http() -> ProviderKind:
    from posthouse.providers.http import http_api
    from posthouse.providers.http_settings import HttpSettings

    return _over_http(HttpSettings, http_api)


def _mailgun() -> ProviderKind:
    from posthouse.providers.mailgun import MailgunSettings, mailgun_api
    from posthouse.providers.mailgun_events import mailgun_webhook

    return _over_http(MailgunSettings, mailgun_api, mailgun_webhook)


def _postmark() -> ProviderKind:
    from posthouse.providers.postmark import PostmarkSettings, postmark_api
    from posthouse.providers.postmark_events import postmark_webhook

    return _over_http(PostmarkSettings, postmark_api, postmark_webhook)


def _resend() -> ProviderKind:
    from posthouse.providers.resend import ResendSettings, resend_api
    from posthouse.providers.resend_events import resend_webhook

    return _over_http(ResendSettings, resend_api, resend_webhook)


def _sendgrid() -> ProviderKind:
    from posthouse.providers.sendgrid import SendgridSettings, sendgrid_api
    from posthouse.providers.sendgrid_events import sendgrid_webhook

    return _over_http(SendgridSettings, sendgrid_api, sendgrid_webhook)


def _ses() -> ProviderKind:
    from posthouse.providers.ses import SesSettings, ses_api
    from posthouse.providers.ses_events import ses_webhook

    return _over_http(SesSettings, ses_api, ses_webhook)


def _smtp() -> ProviderKind:
    from posthouse.providers.smtp import SmtpProvider
    from posthouse.providers.smtp_settings import SmtpSettings
    from posthouse.providers.smtp_wire import connect

    def build(context: BuildContext, settings: Settings) -> Provider:
        if not isinstance(settings, SmtpSettings):
            raise TypeError("settings of another provider")
        return SmtpProvider(context.name, context.route, settings, context.connect or connect)

    return ProviderKind(SmtpSettings, build)


SMTP: Final = "smtp"
"""The one that hands over to a mail server."""

PROVIDERS: Final[Mapping[str, Callable[[], ProviderKind]]] = {
    "http": _http,
    "mailgun": _mailgun,
    "postmark": _postmark,
    "resend": _resend,
    "sendgrid": _sendgrid,
    "ses": _ses,
    SMTP: _smtp,
}


def build_provider(
    name: str,
    route: RouteSettings,
    *,
    transport_factory: TransportFactory,
    now: Callable[[], float],
    connect: Connect | None = None,
) -> Provider:
    """The provider of the route `name`. Opens nothing and reads no credential. Raises ConfigError."""
    kind, settings = _configured(name, route)
    provider = kind.build(BuildContext(name, route, transport_factory, now, connect), settings)
    if route.backfill_every is not None and provider.log is None:
        raise ConfigError(
            f"routes.{name}.backfill_every", f"{route.provider} has no log that could be read; take it out"
        )
    return provider


def of_each_route(routes: Iterable[str], build: Callable[[str], Built]) -> dict[str, Built]:
    """What `build` makes of each route. Raises a ConfigError that tells what is wrong with any of them."""
    built: dict[str, Built] = {}
    faults: list[ConfigError] = []
    for name in routes:
        try:
            built[name] = build(name)
        except ConfigError as error:
            faults += error.faults
    if faults:
        raise ConfigError.together(faults)
    return built


def build_webhook(name: str, route: RouteSettings) -> Webhook | None:
    """The webhooks of the route `name`; None where there is nothing to verify them with. Raises ConfigError."""
    kind, settings = _configured(name, route)
    webhook = kind.webhook(settings) if kind.webhook else None
    return webhook if webhook and webhook.secrets else None


def _configured(name: str, route: RouteSettings) -> tuple[ProviderKind, Settings]:
    if route.provider not in PROVIDERS:
        near = difflib.get_close_matches(route.provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(PROVIDERS)}"
        raise ConfigError(f"routes.{name}.provider", f"{route.provider!r} is not a provider; {hint}")
    kind = PROVIDERS[route.provider]()
    return kind, _own_settings(name, kind, route.own)


def _own_settings(name: str, kind: ProviderKind, own: Mapping[str, Any]) -> Settings:
    return validated(kind.settings, own, f"routes.{name}", RouteSettings.model_fields)


def own_faults(document: Mapping[str, Any]) -> Iterator[ConfigError]:
    """What providers refuse of their own settings in a document that may be wrong elsewhere as well."""
    routes = document.get("routes")
    for name, table in routes.items() if isinstance(routes, Mapping) else ():
        kind = PROVIDERS.get(str(table.get("provider"))) if isinstance(table, Mapping) else None
        if kind is None:
            continue
        own = {setting: value for setting, value in table.items() if setting not in RouteSettings.model_fields}
        try:
            _own_settings(name, kind(), own)
        except ConfigError as error:
            yield from error.faults
