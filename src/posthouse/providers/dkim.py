"""DKIM signatures (RFC 6376; RFC 8463 for Ed25519) over the bytes that go out: the last thing done to a message.

Both canonicalisations are relaxed, so that a relay may change white space. The time in a signature is the message's
own, so that every attempt has the same bytes.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from posthouse.address import Address
from posthouse.errors import ConfigError
from posthouse.providers.mime_headers import FOLD, LINE_CHARS_WANTED, ascii_domain
from posthouse.raw import fields_of, head_and_rest
from posthouse.setting_values import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

RSA_BITS_MIN: Final = 1024  # RFC 8301 section 3.2
SIGNED: Final = frozenset(
    "from sender reply-to to cc subject date message-id in-reply-to references mime-version content-type "
    "content-transfer-encoding list-id list-help list-unsubscribe list-unsubscribe-post list-subscribe list-post "
    "list-owner list-archive auto-submitted".split()
)
"""The headers that a signature covers where they are there: what people see, and what programs act on."""

_WHITE_SPACE = re.compile(rb"[ \t\r\n]+")


@dataclass(frozen=True, slots=True)
class _Key:
    """A private key."""

    algorithm: str
    sign: Callable[[bytes], bytes]


class DkimSigner:
    """Signs for one domain. The key is read anew for each message, so that a rotation is seen."""

    def __init__(self, place: str, domain: str, selector: str, key: Secret) -> None:
        """Raises ConfigError where the package that signs is not installed."""
        self._place = f"{place}.dkim_key"
        self._domain = domain
        self._selector = selector
        self._key = key
        self._read: tuple[str, _Key] | None = None
        try:
            import cryptography  # noqa: F401 - an extra, which only those need who sign
        except ImportError:
            raise ConfigError(self._place, "needs the package cryptography: pip install 'posthouse[dkim]'") from None

    def covers(self, sender: Address) -> bool:
        """Whether the domain is that of the From or above it: DMARC takes no other (RFC 7489 section 3.1.1)."""
        domain = ascii_domain(sender).rpartition("@")[2].lower()
        return domain == self._domain or domain.endswith(f".{self._domain}")

    def signed(self, content: bytes, date: float) -> bytes:
        """The message with a signature on top. Raises ConfigError where the key can't be read."""
        key = self._current_key()
        head, rest = head_and_rest(content)
        fields = [(name, _relaxed(value)) for name, value in fields_of(head)]
        names, covered = _covered(fields)
        body_hash = b64encode(sha256(_relaxed_body(rest.removeprefix(b"\r\n"))).digest()).decode()
        unsigned = _joined(
            "v=1",
            f"a={key.algorithm}",
            "c=relaxed/relaxed",
            f"d={self._domain}",
            f"s={self._selector}",
            f"t={int(date)}",
            f"h={_folded_names(names)}",
            f"bh={body_hash}",
        )
        to_sign = b"\r\n".join([*covered, b"dkim-signature:" + _relaxed(unsigned.encode())])
        signature = b64encode(key.sign(to_sign)).decode()
        return f"DKIM-Signature: {unsigned}{_folded_octets(signature)}\r\n".encode() + content

    def check(self) -> None:
        """Raises ConfigError where the key can't be read."""
        self._current_key()

    def _current_key(self) -> _Key:
        try:
            text = self._key.reveal()
            if self._read is None or self._read[0] != text:
                self._read = (text, _parsed_key(text))
        except ConfigError as error:
            raise ConfigError(self._place, error.reason) from None
        return self._read[1]


# Canonical forms, RFC 6376 section 3.4.


def _relaxed(value: bytes) -> bytes:
    return _WHITE_SPACE.sub(b" ", value).strip(b" ")


def _relaxed_body(body: bytes) -> bytes:
    text = body.replace(b"\t", b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    text = text.replace(b" \r\n", b"\r\n").rstrip(b"\r\n")
    return text + b"\r\n" if text else b""


def _covered(fields: Sequence[tuple[str, bytes]]) -> tuple[list[str], list[bytes]]:
    """The names to list, and the canonical headers in that order: several of one name count from the bottom.

    From is listed once more than it is there, so that nobody can add another one (RFC 6376 section 8.15).
    """
    chosen = [(name, value) for name, value in reversed(fields) if name in SIGNED]
    return [*(name for name, _ in chosen), "from"], [name.encode() + b":" + value for name, value in chosen]


# The header.


def _joined(*tags: str) -> str:
    """The tags, folded between them; the signature's own comes last, on a line of its own, and is empty."""
    lines = [f"{tags[0]};"]
    for tag in tags[1:]:
        if len(lines[-1]) + len(tag) <= LINE_CHARS_WANTED - len("DKIM-Signature:  ;"):
            lines[-1] += f" {tag};"
        else:
            lines.append(f"{tag};")
    return FOLD.join([*lines, "b="])


def _folded_names(names: Sequence[str]) -> str:
    folded, length = "", 0
    for name in names:
        if length + len(name) > LINE_CHARS_WANTED - len(" h=:"):
            folded, length = f"{folded}{FOLD}", 0
        folded, length = f"{folded}{name}:", length + len(name) + 1
    return folded.removesuffix(":")


def _folded_octets(text: str) -> str:
    size = LINE_CHARS_WANTED - len(" b=")
    return FOLD.join(text[at : at + size] for at in range(0, len(text), size))


# Keys.


def _parsed_key(text: str) -> _Key:
    """A private key in PEM, or an Ed25519 seed in base64. Raises ConfigError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if text.startswith("-----"):
            key = load_pem_private_key(text.encode(), password=None)
        else:
            key = Ed25519PrivateKey.from_private_bytes(b64decode(text, validate=True))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = "is neither a private key in PEM without a password nor an Ed25519 key in base64"
        raise ConfigError("", reason) from None
    if isinstance(key, RSAPrivateKey):
        return _rsa(key)
    if isinstance(key, Ed25519PrivateKey):
        return _Key("ed25519-sha256", lambda octets: key.sign(sha256(octets).digest()))  # RFC 8463 section 3
    raise ConfigError("", "is neither an RSA nor an Ed25519 key")


def _rsa(key: RSAPrivateKey) -> _Key:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    if key.key_size < RSA_BITS_MIN:
        raise ConfigError("", f"is an RSA key of {key.key_size} bits; at least {RSA_BITS_MIN}, better 2048")
    return _Key("rsa-sha256", lambda octets: key.sign(octets, PKCS1v15(), SHA256()))
