"""A key that is replaced at the provider first, and in our file only after mail was refused: with real processes."""

from __future__ import annotations

from posthouse.sandbox.ledger import CallResult
from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import Installation, emails, http_route


def test_mail_that_a_rotated_key_held_back_goes_out_when_the_new_key_is_in_the_file(
    on_postgresql: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox(api_key="old-key-1")
    key = on_postgresql.folder / "key"
    key.write_text("old-key-1\n")
    route = http_route(sandbox, auth="bearer", api_key=f"file:{key}", concurrency=5)
    on_postgresql.configure({"main": route}, {"default": {"max_attempts": 1}})
    on_postgresql.enqueue(emails(5))
    worker = on_postgresql.worker()
    on_postgresql.until_status({"accepted": 5})

    sandbox.set_api_key("new-key-2")
    on_postgresql.enqueue(emails(10, first=5))
    worker.until_said("route main is stopped, its sends wait: 401")
    worker.until_said("posthouse.alerts")
    assert on_postgresql.statuses() == {"accepted": 5, "pending": 10}
    assert [alert.name for alert in on_postgresql.store.alerts.since(0.0)] == ["route main"]

    key.write_text("new-key-2\n")
    worker.until_said("the credential of route main has changed; it is tried again")
    on_postgresql.until_status({"accepted": 15})
    assert set(sandbox.copies().values()) == {1}
    assert len(sandbox.copies()) == 15
    assert sandbox.results()[CallResult.UNAUTHORISED] <= 6, "those under way, and at most one that tried the route"
    assert {row.failures for row in on_postgresql.rows().values()} == {1}, (
        "the accepted call is the only one that counts"
    )
