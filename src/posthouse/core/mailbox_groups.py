"""Who receives: the mailbox group of an address, by its domain. Each of them limits and blocks senders in its own way.

Groups are those who run the mailboxes, not brands: hotmail.fr and outlook.com are one, and the Yahoo of Japan is none
of Yahoo's. Who has mailboxes at one of them under a domain of their own is `other`: only DNS would tell.
"""

from __future__ import annotations

import re
from typing import Final

OTHER: Final = "other"

DOMAINS: Final[dict[str, str]] = {
    "gmail": "gmail.com googlemail.com",
    "microsoft": """
        outlook.com hotmail.com live.com msn.com windowslive.com passport.com
        live.at live.be live.ca live.cl live.cn live.de live.dk live.fi live.fr live.hk live.ie live.in live.it live.jp
        live.nl live.no live.ru live.se live.co.kr live.co.uk live.co.za live.com.ar live.com.au live.com.co live.com.mx
        live.com.my live.com.pe live.com.ph live.com.pt live.com.sg live.com.ve""",
    "yahoo": "yahoo.com ymail.com rocketmail.com myyahoo.com aol.com aim.com love.com verizon.net netscape.net",
    "yahoo-japan": "yahoo.co.jp ymail.ne.jp ybb.ne.jp",
    "apple": "icloud.com me.com mac.com privaterelay.appleid.com",
    "united-internet": "gmx.com gmx.net gmx.org gmx.info gmx.biz web.de email.de mail.com",
    "t-online": "t-online.de magenta.de",
    "freenet": "freenet.de",
    "orange": "orange.fr wanadoo.fr",
    "laposte": "laposte.net",
    "free": "free.fr aliceadsl.fr",
    "sfr": "sfr.fr neuf.fr cegetel.net club-internet.fr numericable.fr",
    "libero": "libero.it virgilio.it inwind.it iol.it blu.it giallo.it",
    "proton": "proton.me protonmail.com protonmail.ch pm.me",
    "zoho": "zoho.com zohomail.com zoho.eu zohomail.eu zoho.in zohomail.in",
    "fastmail": "fastmail.com fastmail.fm fastmail.net fastmail.org sent.com",
    "mail-ru": "mail.ru inbox.ru list.ru bk.ru internet.ru xmail.ru",
    "yandex": "ya.ru narod.ru",
    "rambler": "rambler.ru lenta.ru ro.ru myrambler.ru autorambler.ru",
    "qq": "qq.com vip.qq.com foxmail.com",
    "netease": "163.com 126.com yeah.net vip.163.com vip.126.com",
    "naver": "naver.com",
    "kakao": "daum.net hanmail.net kakao.com",
    "docomo": "docomo.ne.jp",
    "au": "au.com ezweb.ne.jp",
    "softbank": "softbank.ne.jp i.softbank.jp",
    "seznam": "seznam.cz email.cz post.cz",
    "wp": "wp.pl o2.pl",
    "onet": "onet.pl op.pl onet.eu vp.pl poczta.onet.pl",
    "interia": "interia.pl interia.eu poczta.fm",
    "uol": "uol.com.br bol.com.br",
    "comcast": "comcast.net",
    "rediff": "rediffmail.com",
}
"""The domains of each group, but for the regional ones of `REGIONAL`."""

REGIONAL: Final = {
    "hotmail": "microsoft",
    "outlook": "microsoft",
    "yahoo": "yahoo",
    "ymail": "yahoo",
    "aol": "yahoo",
    "gmx": "united-internet",
    "yandex": "yandex",
}
"""First labels that mean a group in every country: hotmail.fr, yahoo.co.uk, outlook.com.br. Words that others have too,
like `live` and `free`, stand with their domains above."""

_COUNTRY = re.compile(r"(?:com?\.)?[a-z]{2}|com", re.ASCII)

GROUP_OF: Final = {domain: group for group, domains in DOMAINS.items() for domain in domains.split()}


def mailbox_group(address: str) -> str:
    """The group that an address's mailbox is in, `other` where it is none of the big ones."""
    domain = address.rpartition("@")[2]
    return GROUP_OF.get(domain) or _of_another_spelling(domain)


def _of_another_spelling(domain: str) -> str:
    domain = _folded(domain)
    if (group := GROUP_OF.get(domain)) is not None:
        return group
    label, _, rest = domain.partition(".")
    regional = REGIONAL.get(label)
    return regional if regional is not None and _COUNTRY.fullmatch(rest) else OTHER


def _folded(domain: str) -> str:
    """Small letters without the root's dot, and what isn't ASCII as RFC 3490 writes it."""
    if not domain.isascii():
        try:
            domain = domain.encode("idna").decode("ascii")
        except UnicodeError:
            return ""
    return domain.lower().rstrip(".")
