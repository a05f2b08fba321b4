"""What MAIL and RCPT say: a path and its parameters. RFC 5321 section 4.1.2, RFC 6531 (SMTPUTF8), RFC 1870 (SIZE)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Path:
    """An address in its angle brackets, "" for the null sender, and the parameters that follow, names in capitals."""

    address: str
    parameters: Mapping[str, str | None]

    @property
    def is_international(self) -> bool:
        """Whether it takes SMTPUTF8 to say it."""
        return not self.address.isascii()


_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-\u0080-\U0010ffff]+"
_QUOTED: Final = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e\u0080-\U0010ffff]|\\[\x20-\x7e])*"'
_LABEL: Final = r"[A-Za-z0-9\u0080-\U0010ffff](?:[A-Za-z0-9\-\u0080-\U0010ffff]*[A-Za-z0-9\u0080-\U0010ffff])?"
_DOMAIN: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Za-z:.\-]+\])"
_SOURCE_ROUTE: Final = r"(?:@[^:<>\s]+:)?"  # to be accepted and ignored (RFC 5321 appendix C)
_PATH: Final = re.compile(
    rf" ?<(?:{_SOURCE_ROUTE}(?P<address>(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@{_DOMAIN}))?>(?P<rest>(?: +[^ ]+)*) *"
)
_PARAMETER: Final = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9-]*)(?:=(?P<value>[^=\s]+))?")


def read_path(argument: str, keyword: str) -> Path | None:
    """The path in the argument of MAIL (`keyword` is `FROM:`) or RCPT (`TO:`); None where it is none."""
    if argument[: len(keyword)].upper() != keyword:
        return None
    match = _PATH.fullmatch(argument[len(keyword) :])
    if match is None:
        return None
    parameters: dict[str, str | None] = {}
    for word in match["rest"].split():
        parameter = _PARAMETER.fullmatch(word)
        if parameter is None:
            return None
        parameters[parameter["name"].upper()] = parameter["value"]
    return Path(match["address"] or "", parameters)
