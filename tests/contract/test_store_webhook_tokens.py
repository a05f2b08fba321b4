"""Tokens of webhooks: each comes with one body alone, in all processes together."""

from __future__ import annotations

from functools import partial

from sqlalchemy import func, select

from posthouse.store.retention import Limits
from posthouse.store.schema import webhook_tokens
from posthouse.store.webhook_tokens import TOKENS_KEPT_S
from tests.contract.store_support import Bench, race

LONG_S = 1000 * 86_400.0


def test_a_token_comes_with_the_body_that_it_came_with_first(bench: Bench) -> None:
    comes_with = bench.store.webhook_tokens.comes_with
    for _ in range(2):
        assert comes_with("main", "token", b"delivered", bench.now)
        assert not comes_with("main", "token", b"bounced", bench.now)
    assert comes_with("other", "token", b"bounced", bench.now), "another account's tokens are its own"
    assert comes_with("main", "Token", b"bounced", bench.now)


def test_of_several_at_once_one_body_is_the_first(bench: Bench) -> None:
    comes_with = bench.store.webhook_tokens.comes_with
    for number in range(5):
        bodies = [b"a", b"b", b"a", b"b"]
        told = race([partial(comes_with, "main", f"t-{number}", body, bench.now) for body in bodies])
        assert {body for body, first in zip(bodies, told, strict=True) if first} in ({b"a"}, {b"b"})
        assert sum(told) == 2


def test_tokens_are_kept_for_longer_than_any_signature_counts(bench: Bench) -> None:
    def kept(now: float) -> int:
        bench.store.retention.purge(Limits(LONG_S, LONG_S, LONG_S, LONG_S), now)
        with bench.store.database.read() as connection:
            return connection.scalar(select(func.count()).select_from(webhook_tokens)) or 0

    bench.store.webhook_tokens.comes_with("main", "token", b"", bench.now)
    assert kept(bench.now + TOKENS_KEPT_S - 1) == 1
    assert kept(bench.now + TOKENS_KEPT_S + 1) == 0
