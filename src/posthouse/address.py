"""Mailboxes, structured."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.errors import InvalidEmail
from posthouse.text import one_line, shorten

NAME_CHARS_MAX: Final = 256
ADDRESS_TEXT_CHARS_MAX: Final = 1024

_NAMED = re.compile(
    r"""
    (?: "(?P<quoted> (?:[^"\\]|\\.)* )"  # RFC 5322 section 3.2.4
      | (?P<plain> [^"\\<>,;@]* )          # more than its section 3.2.5 allows: people write Zoë and Dr. Who
    ) \s* < (?P<bare> .* ) >
    """,
    re.VERBOSE,
)

_PLAIN = re.compile(
    r"""
    (?=.{1,64}@) (?=.{3,254}$)
    (?P<local> [a-z0-9!#$%&'*+/=?^_`{|}~-]+ (?: \.[a-z0-9!#$%&'*+/=?^_`{|}~-]+ )* )
    @ (?P<domain> (?: (?!xn--) [a-z0-9] (?: [a-z0-9]{0,61} [a-z0-9] )? \. )+ [a-z] [a-z]{0,61} [a-z] )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
"""The addresses that nearly everybody has: told in no time. A property test holds them against the validator."""


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox: `Address("ada@example.com", "Ada")`. Structured, so that no comma in a name can split it."""

    email: str
    name: str = ""

    @staticmethod
    def parse(text: str, field_name: str = "address") -> Address:
        """One address, bare or as `Name <ada@example.com>`. Raises InvalidEmail.

        A name with any of `, ; @ < > " \\` in it stands in double quotes, as `str(address)` writes it.
        """
        text = one_line(text, field_name, ADDRESS_TEXT_CHARS_MAX)
        named = _NAMED.fullmatch(text.strip())
        bare = named["bare"] if named else text.strip()
        name = _name_of(named, field_name) if named else ""
        if (plain := _PLAIN.fullmatch(bare)) is not None:
            return Address(f"{plain['local']}@{plain['domain'].lower()}", name)
        from email_validator import EmailNotValidError, validate_email  # large, and hardly an address needs it

        try:
            found = validate_email(
                bare,
                check_deliverability=False,
                allow_quoted_local=True,
                allow_smtputf8=True,
                globally_deliverable=False,
                test_environment=True,  # RFC 6761 keeps .test for just that
            )
        except EmailNotValidError as error:
            reason = f"{shorten(text)!r} is not an email address: {error}{_address_hint(text)}"
            raise InvalidEmail(field_name, reason) from None
        return Address(found.normalized, name)

    def checked(self, field_name: str) -> Address:
        """The same address, validated. Raises InvalidEmail."""
        bare = Address.parse(self.email, field_name)
        if bare.name:
            raise InvalidEmail(field_name, f"{self.email!r} carries a name; give it as Address(email, name)")
        return Address(bare.email, one_line(self.name, f"{field_name} (the name)", NAME_CHARS_MAX))

    def __str__(self) -> str:
        if not self.name:
            return self.email
        quoted = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}" <{self.email}>'

    @property
    def folded(self) -> str:
        """The form in which addresses are compared and looked up."""
        return fold(self.email)


def fold(email: str) -> str:
    """The one form in which addresses are compared: case means nothing, and a domain is written as A-labels.

    Strictly case means something before the @ (RFC 5321 section 2.4); no receiver of any size lets it. Takes whatever
    a provider says, and never raises.
    """
    if email.isascii():
        return email.lower()
    local, at, domain = email.rpartition("@")
    return _folded_text(local) + at + _a_labels(domain)


def _a_labels(domain: str) -> str:
    import idna  # large, and hardly an address needs it

    try:
        return idna.encode(domain, uts46=True).decode("ascii").lower()
    except idna.IDNAError:
        return _folded_text(domain)


def _folded_text(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


AddressLike = str | Address
AddressesLike = AddressLike | Sequence[AddressLike]


def _name_of(named: re.Match[str], field_name: str) -> str:
    quoted = named["quoted"]
    name = named["plain"].strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return one_line(name, f"{field_name} (the name)", NAME_CHARS_MAX)


def _address_hint(text: str) -> str:
    if text.count("@") == 1 and re.search(r'[,;"\\].*<', text):
        return ' (such a name stands in double quotes: "Doe, Jane" <jane@example.com>)'
    return " (several addresses are given as a list)" if "," in text or ";" in text else ""
