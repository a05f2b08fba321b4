"""An envelope sender of each send's own: made, checked and read back."""

from __future__ import annotations

import pytest

from posthouse.core.bounce_address import address_fault, bounce_address, route_and_key

KEY = "0123456789abcdef0123456789abcdef"
TEMPLATE = "bounces+{id}@shop.example"


def test_what_is_made_is_read_back() -> None:
    made = bounce_address(TEMPLATE, KEY)
    assert made == f"bounces+{KEY}@shop.example"
    assert route_and_key(made, {"standby": "back-{id}@shop.example", "main": TEMPLATE}) == ("main", KEY)


def test_a_server_may_fold_its_case() -> None:
    assert route_and_key(bounce_address(TEMPLATE, KEY).upper(), {"main": TEMPLATE}) == ("main", KEY)


@pytest.mark.parametrize(
    "address", ["", "bounces@shop.example", f"bounces+{KEY}0@shop.example", f"bounces+{KEY}@other.example"]
)
def test_another_address_is_nobodys(address: str) -> None:
    assert route_and_key(address, {"main": TEMPLATE}) is None


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (TEMPLATE, None),
        ("{id}@shop.example", None),
        ("x" * 32 + "{id}@shop.example", None),
        ("x" * 33 + "{id}@shop.example", "65 characters"),
        ("bounces@shop.example", "not of the form"),
        ("bounces+{id}", "not of the form"),
        ("bounces@{id}.shop.example", "not of the form"),
        ("{id}{id}@shop.example", "not of the form"),
    ],
)
def test_an_address_that_can_not_be_used_is_refused(template: str, fault: str | None) -> None:
    said = address_fault(template)
    assert said is None if fault is None else said is not None and fault in said
