"""Alerts: raised by one worker, and not again too soon."""

from __future__ import annotations

from functools import partial

from tests.contract.store_support import Bench, at, race


def test_of_many_workers_one_raises_an_alert_and_not_again_within_the_quiet_time(bench: Bench) -> None:
    raise_once = bench.store.alerts.raise_once

    raised = race([partial(raise_once, "route main", "it is stopped", bench.now, 900.0) for _ in range(6)])

    assert raised.count(True) == 1
    assert not raise_once("route main", "it is stopped again", bench.now + 899.0, 900.0)
    assert (
        race([partial(raise_once, "route main", "and again", bench.now + 900.0, 900.0) for _ in range(6)]).count(True)
        == 1
    )
    (alert,) = bench.store.alerts.since(bench.now)
    assert (alert.name, alert.text, alert.raised_at, alert.times) == ("route main", "and again", at(bench.now + 900), 2)


def test_each_name_has_an_alert_of_its_own(bench: Bench) -> None:
    assert bench.store.alerts.raise_once("route main", "stopped", bench.now, 900.0)
    assert bench.store.alerts.raise_once("route standby", "stopped", bench.now + 1, 900.0)
    assert [alert.name for alert in bench.store.alerts.since(bench.now)] == ["route standby", "route main"]
    assert [alert.name for alert in bench.store.alerts.since(bench.now + 1)] == ["route standby"]
