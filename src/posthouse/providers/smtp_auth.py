"""Letting ourselves in: the credential of a route, and the ways to show it (RFC 4954). Only ever over TLS."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from aiosmtplib.auth import auth_crammd5_verify, auth_login_encode, auth_plain_encode, auth_xoauth2_encode
from aiosmtplib.errors import SMTPAuthenticationError

from posthouse.core.smtp_replies import Phase, Reply
from posthouse.errors import ConfigError
from posthouse.providers.rotation import Rotation
from posthouse.providers.smtp_settings import SmtpSettings
from posthouse.providers.smtp_wire import Broken

SECRETS_MAX: Final = 12  # the present credential's forms and those before it

PREFERRED: Final = ("plain", "login", "cram-md5")
"""TLS protects them all alike; the first is the one that every server has right."""

Ask = Callable[..., Awaitable[Reply]]
"""Sends a line and gives the reply: `ask(*parts, expected=(334,))`. Another code raises Refused."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user and the password or token, as they were when a connection was made."""

    user: str
    password: str = field(repr=False)


class SmtpCredential:
    """Reads the credential for each new connection, so that a rotation is seen; remembers what must not show."""

    def __init__(self, place: str, settings: SmtpSettings) -> None:
        self._place = place
        self._settings = settings
        self._rotation = Rotation(self._read)
        self.secrets: tuple[str, ...] = ()

    def read(self) -> Login | None:
        """The login now, None where the route has none. Raises ConfigError."""
        try:
            return self._read()
        except ConfigError:
            self._rotation.refused(None)
            raise

    def refused(self, login: Login) -> None:
        """The server did not let us in with this one."""
        self._rotation.refused(login)

    def changed(self) -> bool:
        """Whether it reads otherwise than what was refused last."""
        return self._rotation.changed()

    def _read(self) -> Login | None:
        user, secret = self._settings.url.user, self._settings.password
        if user is None or secret is None:
            return None
        try:
            password = secret.reveal().strip()
        except ConfigError as error:
            raise ConfigError(f"{self._place}.password", error.reason) from None
        if not password:
            raise ConfigError(f"{self._place}.password", "is empty")
        forms = (password, base64.b64encode(password.encode()).decode(), auth_plain_encode(user, password).decode())
        token = auth_xoauth2_encode(user, password).decode()
        self.secrets = tuple(dict.fromkeys((*forms, token, *self.secrets)))[:SECRETS_MAX]
        return Login(user, password)


def chosen_method(wanted: str | None, offered: Collection[str]) -> str | None:
    """The way to authenticate, None where the server offers none that the route may use."""
    methods = PREFERRED if wanted is None else (wanted,)
    return next((method for method in methods if method in offered), None)


async def authenticate(ask: Ask, method: str, login: Login) -> None:
    """Shows the credential. Raises Refused with the server's reply, Broken where its challenge can't be read."""
    await _WAYS[method](ask, login)


async def _plain(ask: Ask, login: Login) -> None:
    await ask(b"AUTH", b"PLAIN", auth_plain_encode(login.user, login.password), expected=(235,))


async def _login(ask: Ask, login: Login) -> None:
    user, password = auth_login_encode(login.user, login.password)
    await ask(b"AUTH", b"LOGIN", expected=(334,))
    await ask(user, expected=(334,))
    await ask(password, expected=(235,))


async def _cram_md5(ask: Ask, login: Login) -> None:
    challenge = await ask(b"AUTH", b"CRAM-MD5", expected=(334,))
    try:
        answer = auth_crammd5_verify(login.user, login.password, challenge.text)
    except SMTPAuthenticationError:
        raise Broken(Phase.AUTH, "bad_challenge") from None
    await ask(answer, expected=(235,))


async def _xoauth2(ask: Ask, login: Login) -> None:
    reply = await ask(b"AUTH", b"XOAUTH2", auth_xoauth2_encode(login.user, login.password), expected=(235, 334))
    if reply.code == 334:  # the reason, in base64; the refusal itself comes after an empty line
        await ask(b"", expected=(235,))


_WAYS: Final[dict[str, Callable[[Ask, Login], Awaitable[None]]]] = {
    "plain": _plain,
    "login": _login,
    "cram-md5": _cram_md5,
    "xoauth2": _xoauth2,
}
