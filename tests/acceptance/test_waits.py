"""What has to wait, and for how long: asked for by the provider, by the email, by its priority, by a wrong key."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from posthouse.sandbox.ledger import CallResult
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import Installation, email, emails, http_route, until

ASKED_S = 2


def test_a_throttled_route_waits_as_long_as_it_was_asked_and_no_send_loses_an_attempt(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    throttles = {"seconds": str(ASKED_S), "date": f"date+{ASKED_S}"}
    sandboxes = {name: make_sandbox(f"429:retry-after={asked},first=1,per=all") for name, asked in throttles.items()}
    installation.configure(
        {name: http_route(sandbox, concurrency=1) for name, sandbox in sandboxes.items()},
        {name: {"routes": [name], "max_attempts": 1} for name in sandboxes},
    )
    for name in sandboxes:
        installation.enqueue([email(f"{name}-{number}", type=name) for number in range(3)])
    installation.worker()
    installation.until_status({"accepted": 6})

    for name, sandbox in sandboxes.items():
        throttled, *rest = sandbox.send_times()
        assert len(rest) == 3
        assert min(rest) >= throttled + ASKED_S, f"{name}: the whole route waited"
        assert max(rest) < throttled + ASKED_S + 4, f"{name}: and not much longer"
    assert sorted(row.attempts for row in installation.rows().values()) == [1, 1, 1, 1, 2, 2]


def test_nothing_goes_out_before_its_time_after_its_expiry_or_ahead_of_what_it_follows(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox()
    installation.configure({"main": http_route(sandbox)}, {"default": {"retry_first": "200ms", "max_attempts": 2}})
    now = datetime.now(UTC)
    begins, ends = now + timedelta(seconds=3), now + timedelta(seconds=8)
    installation.enqueue(
        [
            email("later", send_at=begins),
            email("in vain", to="unavailable@example.com", expires=ends),
            email("in the end", to="twice-503@example.com"),
            email("follows", after="k-in the end"),
            email("refused", to="rejected@example.com"),
            email("orphan", after="k-refused"),
        ]
    )
    installation.worker()
    installation.until_status({"accepted": 3, "failed": 1, "cancelled": 1, "expired": 1})

    assert sandbox.accepted_at("person-later@example.com") >= begins.timestamp()
    assert installation.row("k-in vain")["status"] == "expired"
    assert {attempt["code"] for attempt in installation.attempts("k-in vain")} == {"503"}
    assert [attempt["code"] for attempt in installation.attempts("k-in the end")] == ["503", "503", "200"]
    assert sandbox.accepted_at("person-follows@example.com") > sandbox.accepted_at("twice-503@example.com")
    assert installation.row("k-orphan")["last_error"] == "the email it waits for, k-refused, ended as failed"
    assert "unavailable@example.com" not in sandbox.copies()
    assert "person-orphan@example.com" not in sandbox.copies()


def test_urgent_mail_overtakes_two_thousand_of_bulk_on_a_slow_route(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox("slow=100ms")
    installation.configure(
        {"main": http_route(sandbox, concurrency=1)},
        {"newsletter": {"priority": "bulk"}, "code": {"priority": "urgent"}},
    )
    installation.enqueue(emails(2000, type="newsletter"))
    installation.worker()
    until(lambda: sandbox.arrived > 3, "bulk is on its way")

    installation.enqueue([email("code", type="code")])
    asked_at = time.time()
    until(lambda: sandbox.copies()["person-code@example.com"], "the code is accepted")

    assert sandbox.accepted_at("person-code@example.com") - asked_at < 2


def test_a_route_that_is_refused_keeps_its_mail_and_goes_on_with_the_new_key(
    on_postgresql: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox(api_key="new-key-2")
    key = on_postgresql.folder / "key"
    key.write_text("old-key-1\n")
    route = http_route(sandbox, auth="bearer", api_key=f"file:{key}", concurrency=5)
    on_postgresql.configure({"main": route}, {"default": {"max_attempts": 1}})
    on_postgresql.enqueue(emails(20))
    workers = [on_postgresql.worker() for _ in range(2)]
    workers[0].until_said("route main is stopped, its sends wait: 401")
    until(lambda: sandbox.running == 0, "the calls that were under way are refused as well")
    refused = sandbox.results()[CallResult.UNAUTHORISED]
    assert refused <= 10
    sandbox.set_faults()

    key.write_text("new-key-2\n")
    until(lambda: sandbox.arrived > refused, "one tries again")
    assert sandbox.running_max <= 2, "one call at a time in each worker"
    on_postgresql.until_status({"accepted": 20})

    assert sandbox.results()[CallResult.UNAUTHORISED] <= refused + 2
    assert set(sandbox.copies().values()) == {1}
    assert sum(worker.times_said("route main works again") for worker in workers) >= 1
