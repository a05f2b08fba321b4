"""Every provider by name, and how a route of it is built from its settings."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import ValidationError

from posthouse.config import RouteSettings, Settings, config_error
from posthouse.errors import ConfigError
from posthouse.providers.api import Api, ApiProvider
from posthouse.providers.api_settings import CallSettings
from posthouse.providers.http import http_api
from posthouse.providers.http_settings import HttpSettings
from posthouse.providers.mailgun import MailgunSettings, mailgun_api
from posthouse.providers.port import Provider
from posthouse.providers.postmark import PostmarkSettings, postmark_api
from posthouse.providers.resend import ResendSettings, resend_api
from posthouse.providers.sendgrid import SendgridSettings, sendgrid_api
from posthouse.providers.ses import SesSettings, ses_api
from posthouse.providers.smtp import SmtpProvider
from posthouse.providers.smtp_settings import SmtpSettings
from posthouse.providers.smtp_wire import Connect, connect
from posthouse.providers.transport import TransportFactory, TransportOptions


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a provider is built with."""

    name: str  # the route's
    route: RouteSettings
    transport_factory: TransportFactory
    now: Callable[[], float]  # seconds since 1970
    connect: Connect  # for what is not HTTP


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """One provider: its settings, and how a route of it is built from them."""

    settings: type[Settings]
    build: Callable[[BuildContext, Settings], Provider]


Own = TypeVar("Own", bound=CallSettings)


def _over_http(settings: type[Own], api: Callable[[Own], Api]) -> ProviderKind:
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
        return ApiProvider(context.name, context.route, described, context.transport_factory(options), context.now)

    return ProviderKind(settings, build)


def _build_smtp(context: BuildContext, settings: Settings) -> Provider:
    if not isinstance(settings, SmtpSettings):
        raise TypeError("settings of another provider")
    return SmtpProvider(context.name, context.route, settings, context.connect)


PROVIDERS: Final = {
    "http": _over_http(HttpSettings, http_api),
    "mailgun": _over_http(MailgunSettings, mailgun_api),
    "postmark": _over_http(PostmarkSettings, postmark_api),
    "resend": _over_http(ResendSettings, resend_api),
    "sendgrid": _over_http(SendgridSettings, sendgrid_api),
    "ses": _over_http(SesSettings, ses_api),
    "smtp": ProviderKind(SmtpSettings, _build_smtp),
}


def build_provider(
    name: str,
    route: RouteSettings,
    *,
    transport_factory: TransportFactory,
    now: Callable[[], float],
    connect: Connect = connect,
) -> Provider:
    """The provider of the route `name`. Opens nothing and reads no credential. Raises ConfigError."""
    kind = PROVIDERS.get(route.provider)
    if kind is None:
        near = difflib.get_close_matches(route.provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(PROVIDERS)}"
        raise ConfigError(f"routes.{name}.provider", f"{route.provider!r} is not a provider; {hint}")
    try:
        settings = kind.settings.model_validate(route.own)
    except ValidationError as error:
        raise config_error(error, kind.settings, prefix=f"routes.{name}") from None
    return kind.build(BuildContext(name, route, transport_factory, now, connect), settings)
