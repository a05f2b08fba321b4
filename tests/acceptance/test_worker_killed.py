"""kill -9 of a worker with calls under way: another one takes over, nothing is lost, nothing doubled silently."""

from __future__ import annotations

import time

import pytest

from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import HASTY, Installation, emails, http_route, until
from tests.acceptance.sandbox_thread import SandboxThread

UNDER_WAY = 30
WAITING = 20
ALL = UNDER_WAY + WAITING

HALF_ACCEPTED = ("slow=1s:share=0.5", "slow-not-accepted=1s:share=0.5")
"""Of the calls under way the provider takes some at once, the others only if their caller stays to the end."""

SOON_DEAD = {**HASTY, "dead_after": "1s"}


def kill_in_mid_call(installation: Installation, sandbox: SandboxThread) -> set[str]:
    """Kills a worker with UNDER_WAY calls; the recipients whose message the provider had taken."""
    installation.enqueue(emails(ALL))
    worker = installation.worker()
    until(lambda: sandbox.arrived == UNDER_WAY, "the calls are under way")
    assert installation.statuses() == {"sending": UNDER_WAY, "pending": WAITING}
    worker.kill()
    sandbox.set_faults()
    until(lambda: sandbox.running == 0, "the calls of the dead worker end")
    taken = set(sandbox.copies())
    assert 0 < len(taken) < UNDER_WAY, "the faults were to split the calls"
    return taken


def person(key: str) -> str:
    return f"{key.replace('k-', 'person-')}@example.com"


@pytest.mark.parametrize("offers", ["key", "look-up"])
def test_what_the_dead_worker_had_is_found_out_and_accepted_once(
    installation: Installation, make_sandbox: MakeSandbox, offers: str
) -> None:
    sandbox = make_sandbox(*HALF_ACCEPTED, idempotency=offers == "key", look_up=offers == "look-up")
    route = http_route(sandbox, key=offers == "key", look_up=offers == "look-up", concurrency=UNDER_WAY, timeout="2s")
    installation.configure({"main": route}, worker=SOON_DEAD)
    kill_in_mid_call(installation, sandbox)

    installation.worker()
    installation.until_status({"accepted": ALL})

    assert set(sandbox.copies().values()) == {1}
    assert len(sandbox.copies()) == ALL
    rows = installation.rows()
    assert not any(row.maybe_duplicate for row in rows.values())
    died = [key for key in rows if any(call["code"] == "worker_died" for call in installation.attempts(key))]
    assert len(died) == UNDER_WAY


def test_what_nobody_can_say_is_held_until_a_person_says_it(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox(*HALF_ACCEPTED, idempotency=False, look_up=False)
    installation.configure(
        {"main": http_route(sandbox, key=False, concurrency=UNDER_WAY)},
        {"default": {"on_unknown": "hold", "unknown_wait": "0s"}},
        SOON_DEAD,
    )
    taken = kill_in_mid_call(installation, sandbox)

    installation.worker()
    installation.until_status({"accepted": WAITING, "unknown": UNDER_WAY})
    until(lambda: installation.store.ledger.held_unknown() == UNDER_WAY, "all of them are held")
    held = [key for key, row in installation.rows().items() if row.status == "unknown"]
    there = [key for key in held if person(key) in taken]
    missing = [key for key in held if person(key) not in taken]
    installation.run("resolve", "--accepted", "--by", "ada", *there)
    installation.run("resolve", "--resend", "--by", "ada", *missing)
    installation.until_status({"accepted": ALL})

    assert set(sandbox.copies().values()) == {1}
    assert len(sandbox.copies()) == ALL


def test_what_the_type_says_resend_for_is_sent_again_and_marked(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox(*HALF_ACCEPTED, idempotency=False, look_up=False)
    installation.configure(
        {"main": http_route(sandbox, key=False, concurrency=UNDER_WAY)},
        {"default": {"on_unknown": "resend", "unknown_wait": "0s"}},
        SOON_DEAD,
    )
    taken = kill_in_mid_call(installation, sandbox)

    installation.worker()
    installation.until_status({"accepted": ALL})

    copies = sandbox.copies()
    assert {recipient for recipient, times in copies.items() if times == 2} == taken
    assert set(copies.values()) == {1, 2}
    assert len(copies) == ALL
    marked = [key for key, row in installation.rows().items() if row.maybe_duplicate]
    assert len(marked) == UNDER_WAY, "every send whose call may have been accepted says so, and no other"
    assert taken < {person(key) for key in marked}


def test_another_worker_takes_over_within_half_a_minute_with_the_default_settings(
    on_postgresql: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox(*HALF_ACCEPTED)
    on_postgresql.configure({"main": http_route(sandbox, concurrency=UNDER_WAY)}, worker={})
    kill_in_mid_call(on_postgresql, sandbox)
    killed_at = time.monotonic() - 1.0  # the calls of the dead worker took this long to end

    on_postgresql.worker()
    on_postgresql.until_status({"accepted": ALL}, within_s=killed_at + 30 - time.monotonic())

    assert set(sandbox.copies().values()) == {1}
