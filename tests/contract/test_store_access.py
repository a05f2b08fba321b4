"""The way to the store says once that the database is away, and once that it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from tests.simulation.virtual_time import run


class Inline:
    """Runs each call at once."""

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)


def away() -> None:
    raise DatabaseUnavailable("the database is not available: nobody is there")


def test_an_outage_is_told_twice_however_many_calls_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        access = StoreAccess(Inline(), asyncio.get_running_loop().time, "nothing is sent")
        assert await access.run(max, 1, 2) == 2
        for _ in range(1000):
            with pytest.raises(DatabaseUnavailable):
                await access.run(away)
            assert access.away
            await asyncio.sleep(0.1)
        for _ in range(10):
            await access.run(max, 1, 2)
        assert not access.away

    run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "the database is not available: nobody is there; nothing is sent until it is back",
        "the database is back after 100 s",
    ]


def test_other_faults_say_nothing_about_the_database(caplog: pytest.LogCaptureFixture) -> None:
    def raise_value_error() -> None:
        raise ValueError("ours")

    async def main() -> None:
        access = StoreAccess(Inline(), asyncio.get_running_loop().time, "nothing is sent")
        with pytest.raises(ValueError, match="ours"):
            await access.run(raise_value_error)
        assert not access.away

    run(main())
    assert not caplog.records


def away_after(_: int) -> None:
    away()


class Slow:
    """Takes as long for each call as its first argument says, in seconds."""

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(args[0])
        return call(*args)


def test_an_answer_that_was_asked_for_before_the_outage_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        access = StoreAccess(Slow(), asyncio.get_running_loop().time, "nothing is sent")
        early = asyncio.create_task(access.run(abs, 2))
        with pytest.raises(DatabaseUnavailable):
            await access.run(away_after, 1)
        await early
        assert access.away
        await access.run(abs, 3)
        assert not access.away

    run(main())
    assert [record.getMessage() for record in caplog.records][1:] == ["the database is back after 4 s"]
