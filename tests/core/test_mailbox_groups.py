"""Mailbox groups: who runs the mailbox, told by the address alone."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.config import NAME_PATTERN
from posthouse.core.mailbox_groups import DOMAINS, GROUP_OF, OTHER, REGIONAL, mailbox_group


@pytest.mark.parametrize(
    ("domain", "group"),
    [
        ("gmail.com", "gmail"),
        ("googlemail.com", "gmail"),
        ("outlook.com", "microsoft"),
        ("outlook.com.br", "microsoft"),
        ("outlook.de", "microsoft"),
        ("hotmail.fr", "microsoft"),
        ("hotmail.co.uk", "microsoft"),
        ("live.nl", "microsoft"),
        ("live.com.mx", "microsoft"),
        ("msn.com", "microsoft"),
        ("yahoo.com", "yahoo"),
        ("yahoo.co.uk", "yahoo"),
        ("yahoo.com.ar", "yahoo"),
        ("yahoo.fr", "yahoo"),
        ("aol.de", "yahoo"),
        ("yahoo.co.jp", "yahoo-japan"),
        ("icloud.com", "apple"),
        ("me.com", "apple"),
        ("gmx.de", "united-internet"),
        ("gmx.net", "united-internet"),
        ("gmx.co.uk", "united-internet"),
        ("web.de", "united-internet"),
        ("t-online.de", "t-online"),
        ("orange.fr", "orange"),
        ("wanadoo.fr", "orange"),
        ("laposte.net", "laposte"),
        ("free.fr", "free"),
        ("libero.it", "libero"),
        ("mail.ru", "mail-ru"),
        ("yandex.ru", "yandex"),
        ("yandex.com.tr", "yandex"),
        ("yandex.com", "yandex"),
        ("qq.com", "qq"),
        ("naver.com", "naver"),
        ("proton.me", "proton"),
        ("zoho.eu", "zoho"),
    ],
)
def test_the_big_ones_are_told_by_their_domains(domain: str, group: str) -> None:
    assert mailbox_group(f"ada@{domain}") == group


@pytest.mark.parametrize(
    "domain",
    [
        "example.com",
        "notgmail.com",
        "gmail.com.example.com",
        "mail.gmail.com",
        "yahoo.example.com",
        "hotmail.shop",
        "outlook.com.evil.example",
        "live.example",
        "live.tv",  # not Microsoft's
        "free.com",
        "yahoo",
        "yahoo.",
        "com",
        "yahoo.co.jp.example.com",
    ],
)
def test_everybody_else_is_other(domain: str) -> None:
    assert mailbox_group(f"ada@{domain}") == OTHER


@pytest.mark.parametrize(
    "address",
    [
        "Ada@GMAIL.com",
        "ada@Gmail.Com.",
        "ada@ｇｍａｉｌ.com",
        "ada@gmail。com",
        '"a@yahoo.com"@gmail.com',
        "grüße@gmail.com",
    ],
)
def test_spelling_makes_no_difference(address: str) -> None:
    assert mailbox_group(address) == "gmail"


@pytest.mark.parametrize(
    "address", ["", "@", "ada", "ada@", "ada@bücher.example", "ada@" + "ü" * 300, "ada@\udc80.com", "ada@..com"]
)
def test_whatever_is_no_known_address_is_other(address: str) -> None:
    assert mailbox_group(address) == OTHER


def test_no_domain_is_in_two_groups_or_said_twice() -> None:
    listed = [domain for domains in DOMAINS.values() for domain in domains.split()]
    assert len(listed) == len(set(listed)) == len(GROUP_OF)
    assert set(REGIONAL.values()) <= set(DOMAINS)


def test_every_name_can_stand_in_a_lane_and_in_the_settings() -> None:
    assert all(re.fullmatch(NAME_PATTERN, group) for group in [*DOMAINS, OTHER])


def test_every_domain_of_the_table_is_written_as_it_is_looked_up() -> None:
    assert all(re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", domain) for domain in GROUP_OF)


@given(st.text(max_size=80))
def test_any_text_is_in_some_group(text: str) -> None:
    assert mailbox_group(text) in {*DOMAINS, OTHER}


def test_thousands_of_addresses_take_no_time() -> None:
    addresses = ["ada@gmail.com", "bob@example.com"] * 5000
    begun = time.process_time()
    for address in addresses:
        mailbox_group(address)
    assert time.process_time() - begun < 0.2
