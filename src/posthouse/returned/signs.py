"""Mail that a program sent and that says nothing of a delivery, as data: it changes nothing.

Sources: RFC 3834 (Auto-Submitted), RFC 2919 and 2369 (List-*), RFC 8098 (receipts), and what programs are known to
write of themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.core.answers import first_match, said
from posthouse.returned.parts import Fields

Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignRule:
    """Decides mail with one of `headers` whose value fits."""

    name: str
    headers: Sequence[str]  # in small letters
    says: re.Pattern[str]
    matches: tuple[Fields, ...]
    not_matches: tuple[Fields, ...]

    def covers(self, fields: Fields, /) -> bool:
        """Whether one of its headers has such a value."""
        return any(self.says.search(value) for name in self.headers for value in fields.all(name))


def _mail(*pairs: Header) -> Fields:
    return Fields(pairs)


_PERSON: Final = _mail(("from", "ada@example.com"), ("subject", "Re: your order"))

SIGNS: Final = (
    SignRule(
        name="a challenge, by its program",
        headers=("x-boxtrapper", "x-tmda-fingerprint", "x-tmda-confirm", "x-challenge-response", "x-spamarrest-id"),
        says=said(r"\S"),
        matches=(_mail(("x-boxtrapper", "1")),),
        not_matches=(_PERSON,),
    ),
    SignRule(
        name="a challenge, by its subject",
        headers=("subject",),
        says=said(
            r"\b(?:please )?(?:confirm|verify) (?:your|that you) (?:message|e-?mail|identity|sent|are)\b"
            r"|your (?:message|e-?mail) (?:requires|needs|awaits) (?:\w+ )?(?:verification|confirmation|authentication)"
        ),
        matches=(
            _mail(("subject", "Please confirm your message")),
            _mail(("subject", "Your email requires verification verify#abc")),
        ),
        not_matches=(_PERSON, _mail(("subject", "I can confirm that it arrived"))),
    ),
    SignRule(
        name="a receipt",
        headers=("content-type",),
        says=said(r"report-type=\"?disposition-notification"),
        matches=(_mail(("content-type", "multipart/report; report-type=disposition-notification; boundary=x")),),
        not_matches=(_PERSON, _mail(("content-type", "multipart/report; report-type=delivery-status; boundary=x"))),
    ),
    SignRule(
        name="an automatic reply, as the standard has it",
        headers=("auto-submitted",),
        says=said(r"\Aauto-(?:replied|notified)\b"),
        matches=(_mail(("auto-submitted", "auto-replied")), _mail(("auto-submitted", "auto-replied (vacation)"))),
        not_matches=(_mail(("auto-submitted", "no")), _mail(("auto-submitted", "auto-generated")), _PERSON),
    ),
    SignRule(
        name="an automatic reply, by its program",
        headers=(
            "x-autoreply",
            "x-autorespond",
            "x-autoresponder",
            "x-auto-reply",
            "x-autoreply-from",
            "x-mail-autoreply",
        ),
        says=said(r"\A(?!no\Z|false\Z|0\Z)"),
        matches=(_mail(("x-autoreply", "yes")), _mail(("x-autorespond", ""))),
        not_matches=(_mail(("x-autoreply", "no")), _PERSON),
    ),
    SignRule(
        name="an automatic reply, by its precedence",
        headers=("precedence", "x-precedence", "x-auto-response-type"),
        says=said(r"auto[-_ ]?reply"),
        matches=(_mail(("precedence", "auto_reply")),),
        not_matches=(_mail(("precedence", "bulk")), _PERSON),
    ),
    SignRule(
        name="an automatic reply, by its subject",
        headers=("subject",),
        says=said(
            r"\A(?:re: *)?(?:auto(?:matic|matische|mated)?[- ]?(?:re(?:ply|sponse)|antwort|r[ée]ponse)"
            r"|out of (?:the )?office"
            r"|abwesen|vacation|on leave|r[ée]ponse automatique|respuesta autom[áa]tica|risposta automatica)"
        ),
        matches=(
            _mail(("subject", "Automatic reply: Your order")),
            _mail(("subject", "Out of Office: Your order")),
            _mail(("subject", "Abwesenheitsnotiz: Ihre Bestellung")),
        ),
        not_matches=(_PERSON, _mail(("subject", "Is the office out of paper?"))),
    ),
    SignRule(
        name="mail of a list",
        headers=("list-id", "list-post", "list-unsubscribe"),
        says=said(r"\S"),
        matches=(_mail(("list-id", "<news.example.com>")),),
        not_matches=(_PERSON,),
    ),
    SignRule(
        name="mail to many",
        headers=("precedence", "x-precedence"),
        says=said(r"\A(?:bulk|junk|list)\b"),
        matches=(_mail(("precedence", "junk")), _mail(("precedence", "list"))),
        not_matches=(_PERSON,),
    ),
)


def sign_of(fields: Fields) -> SignRule | None:
    """What its headers say that it is, if it is no bounce; asked only then, since bounces are automatic as well."""
    return first_match(fields, SIGNS)
