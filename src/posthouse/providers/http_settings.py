"""The settings of an `http` route, next to those that every route has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from posthouse.providers.api_settings import ApiSettings, Ignorable, UrlValue, url_value
from posthouse.providers.body import DEFAULT_BODY, Body
from posthouse.setting_values import Clash, Duration, PositiveDuration, SecretValue, text_of_form

KEY_LIFETIME_S: Final = 24 * 3600.0
"""How long an idempotency key is trusted where `idempotency_lifetime` doesn't say."""

FORMAT_HEADER: Final = "content-type"
"""The one header that is not for configuration: the body is always JSON."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110 section 5.6.2
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PATH = re.compile(r"[^.\s]+(?:\.[^.\s]+)*")


def _look_up_url(value: object) -> str:
    url = url_value(value)
    if "{id}" not in url:
        raise ValueError("must say with {id} where our id belongs")
    return url


def _header_name(value: object) -> str:
    if not isinstance(value, str) or not _HEADER_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of a header")
    if value.lower() == FORMAT_HEADER:
        raise ValueError("the Content-Type is always application/json")
    return value


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of names and values")
    for name, text in value.items():
        _header_name(name)
        if not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
            raise ValueError(f"the value of {name} must be printable ASCII text")
    return dict(value)


def _path(value: object) -> str:
    if isinstance(value, str) and value.startswith("header:"):
        return f"header:{_header_name(value.removeprefix('header:').strip()).lower()}"
    return _body_path(value)


def _body_path(value: object) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise ValueError(f"{value!r} is not a path into the answer such as 'id' or 'messages.0.id'")
    return value


def _mapping(value: object) -> object:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is text but not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ValueError("must be a table, or text with a JSON object")
    return value


HeaderName = Annotated[str, BeforeValidator(_header_name)]


class HttpSettings(ApiSettings):
    """`[routes.NAME]` with `provider = "http"`."""

    url: UrlValue = Field(description="Where messages are handed in.")
    method: Literal["POST", "PUT"] = Field("POST", description="The method of the call.")
    auth: Literal["bearer", "basic", "header", "none"] = Field(
        "bearer",
        description=(
            "How the call is let in: `bearer` (`Authorization: Bearer` and `api_key`), `basic` (`username` and "
            "`password`), `header` (`api_key` in `auth_header`) or `none`."
        ),
    )
    api_key: SecretValue | None = Field(  # type: ignore[assignment]
        None,
        description=(
            "The key for `bearer` and `header`: `env:NAME` or `file:PATH`. Read at the first call, and again after "
            "the provider refused it (401, 403)."
        ),
    )
    username: SecretValue | None = Field(None, description="For `basic`; `env:NAME`, `file:PATH` or the name itself.")
    password: SecretValue | None = Field(None, description="For `basic`: `env:NAME` or `file:PATH`. Default: empty.")
    auth_header: HeaderName = Field("X-Api-Key", description="For `header`: the name of the header with the key.")
    auth_prefix: Annotated[str, text_of_form(r"[\x20-\x7e]*", "printable ASCII text")] = Field(
        "", description="For `header`: what stands before the key."
    )
    headers: Annotated[dict[str, str], BeforeValidator(_headers)] = Field(
        default_factory=dict, description="Further headers of every call.", repr=False
    )
    address_format: Literal["text", "object"] = Field(
        "text",
        description=(
            'How addresses are written where the body doesn\'t say: `text` (`"Ada" <ada@example.com>`) or `object` '
            '(`{"email": …, "name": …}`).'
        ),
    )
    body: Annotated[Mapping[str, Any], BeforeValidator(_mapping)] = Field(
        DEFAULT_BODY,
        description="The shape of the JSON body: a table with placeholders, or the same as JSON text. See below.",
    )
    ignore: frozenset[Ignorable] = Field(
        frozenset(),
        description=(
            "Parts of an email that may be left out silently when the body has no place for them: `reply_to`, `text`, "
            "`html`, `alternatives`, `attachments`, `inline` (those that the HTML shows), `part_headers` (those of an "
            "attachment's own part), `headers`, `tags`, `metadata`, `message_id`, `envelope_sender`, `track_opens`, "
            "`track_clicks`, `from`, `subject`. An email with any other such part is refused when it is enqueued."
        ),
    )
    idempotency_header: HeaderName | None = Field(
        None,
        description=(
            "The header that carries our key, such as `Idempotency-Key`. Only where the provider's documentation "
            "says that it honours one: a call whose answer was lost is then repeated without a second copy."
        ),
    )
    idempotency_lifetime: PositiveDuration | None = Field(
        None,
        description=(
            "How long the provider remembers a key. Default: `24h` with `idempotency_header`. Set it as well where "
            "the key stands in the body as `{id}`."
        ),
    )
    message_id: Annotated[str, BeforeValidator(_path)] = Field(
        "id",
        description=(
            "Where the answer has the provider's message id: a path such as `id` or `messages.0.id`, or "
            "`header:X-Message-Id`."
        ),
    )
    look_up_url: Annotated[str, BeforeValidator(_look_up_url)] | None = Field(
        None,
        description=(
            "Where to ask, with GET, whether the provider has a message; `{id}` stands for our id. 404 means that it "
            "has not."
        ),
    )
    look_up_found: Annotated[str, BeforeValidator(_body_path)] | None = Field(
        None,
        description=(
            "For look-ups that answer 200 either way: the path that leads to something when the message is there, "
            "such as `messages.0`."
        ),
    )
    look_up_message_id: Annotated[str, BeforeValidator(_body_path)] | None = Field(
        None, description="Where the look-up's answer has the provider's message id."
    )
    look_up_lag: Duration = Field(
        "5m",  # type: ignore[assignment]
        description="How long after a call the provider may not know the message yet: until then a no means nothing.",
    )

    @field_validator("body")
    @classmethod
    def _compiles(cls, value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        Body(value, info.data.get("address_format", "text"))
        return value

    @property
    def has_credential(self) -> bool:
        """Its further headers may hold one."""
        return self.auth != "none" or bool(self.headers)

    @property
    def addresses(self) -> dict[str, str | None]:
        """Where calls go, by setting."""
        return {**super().addresses, "look_up_url": self.look_up_url}

    def clashes(self) -> Iterator[Clash]:
        """What lets us in, what is asked, and what the body carries fit together."""
        yield from super().clashes()
        if self.auth in ("bearer", "header") and self.api_key is None:
            yield "api_key", f'is missing: auth = "{self.auth}" needs it (or set auth = "none")'
        if self.auth == "basic" and self.username is None:
            yield "username", 'is missing: auth = "basic" needs it'
        if self.look_up_url is None and (self.look_up_found or self.look_up_message_id):
            yield "look_up_url", "is missing: look_up_found and look_up_message_id need it"
        yield from self._headers_sent_twice()
        yield from self._body_without_what_it_must_have()

    def _headers_sent_twice(self) -> Iterator[Clash]:
        own = {"bearer": "authorization", "basic": "authorization", "header": self.auth_header.lower()}.get(self.auth)
        names = [name.lower() for name in self.headers] + [name for name in (own,) if name]
        if self.idempotency_header:
            names.append(self.idempotency_header.lower())
        for twice in sorted({name for name in names if names.count(name) > 1}):
            yield "headers", f"the header {twice!r} would be sent twice: by headers, auth or idempotency_header"

    def _body_without_what_it_must_have(self) -> Iterator[Clash]:
        body = Body(self.body, self.address_format)
        finished_alone = body.takes("raw") and not (body.takes("text") or body.takes("html"))
        needed = ("to",) if finished_alone else ("to", "from", "subject")
        missing = {name for name in needed if not body.takes(name)} - self.ignore
        if "recipients" in body.uses and not (finished_alone or "mime" in body.uses):
            yield "body", "{recipients} would show every Bcc; it is for finished messages, {raw} or {mime}"
        for name in sorted(missing):
            hint = "" if name == "to" else f' (or set ignore = ["{name}"])'
            yield "body", f"has no place for {{{name}}}{hint}"
        if self.idempotency_lifetime and not self.idempotency_header and not body.takes("id"):
            yield "idempotency_lifetime", "needs idempotency_header, or a body with {id}"

    @property
    def key_lifetime_s(self) -> float:
        """How long the provider dedupes our key; 0 = it doesn't."""
        return self.idempotency_lifetime or (KEY_LIFETIME_S if self.idempotency_header else 0.0)
