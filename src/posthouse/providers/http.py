"""The `http` provider: any HTTP email API that takes JSON, by configuration alone."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from posthouse.providers.api import Api, LookUpCall, found_at
from posthouse.providers.auth import NO_AUTH, Auth, basic, bearer, in_header
from posthouse.providers.body import Body
from posthouse.providers.http_settings import HttpSettings

KIND: Final = "http"


def http_api(settings: HttpSettings) -> Api:
    """The API that the settings describe."""
    return Api(
        kind=KIND,
        url=settings.url,
        method=settings.method,
        auth=_auth(settings),
        headers=settings.headers,
        body=Body(settings.body, settings.address_format),
        ignore=settings.ignore,
        key_header=settings.idempotency_header,
        key_lifetime_s=settings.key_lifetime_s,
        message_id=settings.message_id,
        look_up=_look_up(settings),
        health_url=settings.health_url,
    )


def _auth(settings: HttpSettings) -> Auth:
    if settings.auth == "basic" and settings.username is not None:
        password = {"password": settings.password} if settings.password is not None else {}
        return basic({"username": settings.username, **password})
    if settings.api_key is None or settings.auth == "none":
        return NO_AUTH
    if settings.auth == "bearer":
        return bearer(settings.api_key)
    return in_header(settings.api_key, settings.auth_header, settings.auth_prefix)


def _look_up(settings: HttpSettings) -> LookUpCall | None:
    url = settings.look_up_url
    if url is None:
        return None
    return LookUpCall(
        url=lambda message, _: url.replace("{id}", quote(message.idempotency_key, safe="")),
        read=found_at(settings.look_up_found, settings.look_up_message_id),
        lag_s=settings.look_up_lag,
    )
