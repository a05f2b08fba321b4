"""One-click unsubscription (RFC 8058): the token in a message's link, and the headers that carry the link.

A token says who wants no more of what, and in which send they read it. It has no time in it, so that every call for a
send has the same bytes, and no end: people unsubscribe years later.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from posthouse.config import WebSettings
from posthouse.content import Content
from posthouse.errors import ConfigError
from posthouse.header import HeaderPairs

LIST_UNSUBSCRIBE: Final = "List-Unsubscribe"
"""The header with the links (RFC 2369), and the field of the form that is posted to one of them (RFC 8058)."""
ONE_CLICK: Final = "One-Click"
URL_VARIABLE: Final = "unsubscribe_url"
"""What templates call the link."""
WHO: Final = "unsubscribe"
"""Who says it, in events, suppressions and the audit: somebody who has the link."""
SECRET_CHARS_MIN: Final = 16
TOKEN_CHARS_MAX: Final = 800
"""Longer than the token of any address, so that nothing else is looked at for long."""

_SETTING: Final = "web.unsubscribe_secrets"
_VERSION: Final = "1"
_MAC_OCTETS: Final = 16  # RFC 2104 section 5: no less than half of the hash
_BETWEEN: Final = "\n"  # in no key, scope or address


@dataclass(frozen=True, slots=True)
class Unsubscription:
    """What a token says."""

    send_key: str  # our id of the send, as providers know it
    scope: str  # of the suppression, such as `type newsletter`
    address: str


def signed(wish: Unsubscription, secret: str) -> str:
    """The token: a version, then in base64url (RFC 4648 section 5) a MAC and the words it is about."""
    said = _BETWEEN.join((wish.send_key, wish.scope, wish.address)).encode()
    mac = hmac.digest(secret.encode(), f"posthouse unsubscribe {_VERSION}\n".encode() + said, sha256)[:_MAC_OCTETS]
    return _VERSION + urlsafe_b64encode(mac + said).decode().rstrip("=")


def verified(token: str, secrets: Iterable[str]) -> Unsubscription | None:
    """What a token says that one of the secrets has signed; None for any other text.

    It is signed anew and compared as a whole, so that there is one way alone to write it.
    """
    said = _said(token)
    if said is None:
        return None
    given = token.encode()
    genuine = [hmac.compare_digest(signed(said, secret).encode(), given) for secret in secrets]
    return said if any(genuine) else None


def _said(token: str) -> Unsubscription | None:
    if len(token) > TOKEN_CHARS_MAX or not token.startswith(_VERSION):
        return None
    try:
        octets = urlsafe_b64decode(token[len(_VERSION) :] + "==")
        send_key, scope, address = octets[_MAC_OCTETS:].decode().split(_BETWEEN)
    except ValueError:
        return None
    return Unsubscription(send_key, scope, address)


def unsubscribe_secrets(web: WebSettings) -> tuple[str, ...]:
    """The secrets as they are now: the first signs, each verifies. Raises ConfigError."""
    try:
        secrets = tuple(secret.reveal().strip() for secret in web.unsubscribe_secrets)
    except ConfigError as error:
        raise ConfigError(_SETTING, error.reason) from None
    if any(len(secret) < SECRET_CHARS_MIN for secret in secrets):
        reason = f"one of them has less than {SECRET_CHARS_MIN} characters; make one with: openssl rand -hex 32"
        raise ConfigError(_SETTING, reason)
    return secrets


def path_of(token: str) -> str:
    """Where a link leads, below the public URL."""
    return f"/unsubscribe/{token}"


def names_its_own(headers: HeaderPairs) -> bool:
    """Whether an email says itself how one unsubscribes."""
    return any(name.lower() == LIST_UNSUBSCRIBE.lower() for name, _ in headers)


def takes_headers(content: Content) -> bool:
    """Whether the headers are added to such a message: not to one that is finished, or has its own."""
    return content.raw is None and not names_its_own(content.headers)


def link_headers(links: str) -> HeaderPairs:
    """Both headers; RFC 8058 section 3.1 has them go together."""
    return (LIST_UNSUBSCRIBE, links), (f"{LIST_UNSUBSCRIBE}-Post", f"{LIST_UNSUBSCRIBE}={ONE_CLICK}")


@dataclass(frozen=True, slots=True)
class UnsubscribeLinks:
    """Puts the link into messages of the `types` that have one."""

    types: frozenset[str]
    secret: str
    public_url: str
    mailto: str = ""

    def added(self, content: Content, type_: str, send_key: str) -> Content:
        """The content with the link, the same each time. A message to several has none: all of them would see it,
        and each could unsubscribe the others."""
        everybody: Sequence[object] = (*content.to, *content.cc, *content.bcc)
        if type_ not in self.types or len(everybody) != 1:
            return content
        address = content.recipients[0].email
        token = signed(Unsubscription(send_key, f"type {type_}", address), self.secret)
        url = self.public_url.rstrip("/") + path_of(token)
        headers = content.headers
        if takes_headers(content):
            ours = link_headers(self._links(url, type_, address))
            headers = (*(pair for pair in headers if pair[0].lower() != ours[1][0].lower()), *ours)
        # A variable of this name of the email's own wins, as its own header does.
        return replace(content, headers=headers, variables={URL_VARIABLE: url, **content.variables})

    def _links(self, url: str, type_: str, address: str) -> str:
        """The link for programs first, which take the first that they can use (RFC 2369 section 2)."""
        if not self.mailto:
            return f"<{url}>"
        subject = quote(f"unsubscribe {address} from {type_}", safe="@")
        return f"<{url}>, <mailto:{quote(self.mailto, safe='@')}?subject={subject}>"


def unsubscribe_links(web: WebSettings, types: Iterable[str]) -> UnsubscribeLinks | None:
    """The links of a configuration; None where no type has one. Raises ConfigError."""
    with_link = frozenset(types)
    if not with_link or web.public_url is None:
        return None
    mailto = web.unsubscribe_mailto.email if web.unsubscribe_mailto else ""
    return UnsubscribeLinks(with_link, unsubscribe_secrets(web)[0], web.public_url, mailto)
