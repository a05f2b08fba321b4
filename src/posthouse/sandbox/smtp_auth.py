"""The dialogues of SMTP AUTH, as generators: they yield challenges, are sent responses, and return whether it matches.

RFC 4954 (AUTH), RFC 4616 (PLAIN), RFC 2195 (CRAM-MD5); LOGIN and XOAUTH2 as they are in use. Any user name will do; the
password or token is the account's API key, None for any.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


class BadResponse(Exception):
    """A response that the mechanism has no meaning for; the text says why."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a dialogue compares with: the password, and a text that no other connection is given."""

    password: str | None
    nonce: str

    def matches(self, given: bytes) -> bool:
        """Whether `given` is the password."""
        return self.password is None or hmac.compare_digest(given, self.password.encode())


Dialogue = Generator[bytes, bytes, bool]


def _plain(secrets: Secrets) -> Dialogue:
    response = yield b""
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise BadResponse("PLAIN takes an identity, a user name and a password with NUL between them")
    return secrets.matches(parts[2])


def _login(secrets: Secrets) -> Dialogue:
    yield b"Username:"
    password = yield b"Password:"
    return secrets.matches(password)


def _cram_md5(secrets: Secrets) -> Dialogue:
    challenge = f"<{secrets.nonce}@sandbox>".encode()
    response = yield challenge
    digest = response.rpartition(b" ")[2]
    if secrets.password is None:
        return True
    return hmac.compare_digest(digest, hmac.digest(secrets.password.encode(), challenge, "md5").hex().encode())


def _xoauth2(secrets: Secrets) -> Dialogue:
    response = yield b""
    words = response.split(b"\x01")
    token = next((word for word in words if word.startswith(b"auth=Bearer ")), None)
    if token is None:
        raise BadResponse("XOAUTH2 takes user=NAME and auth=Bearer TOKEN")
    if secrets.matches(token.removeprefix(b"auth=Bearer ")):
        return True
    yield b'{"status":"401","schemes":"bearer"}'  # the client answers with an empty line, and is refused then
    return False


MECHANISMS: Final[Mapping[str, Callable[[Secrets], Dialogue]]] = MappingProxyType(
    {"PLAIN": _plain, "LOGIN": _login, "CRAM-MD5": _cram_md5, "XOAUTH2": _xoauth2}
)

WITHOUT_INITIAL_RESPONSE: Final = frozenset({"CRAM-MD5"})
"""Where the server has to speak first."""
