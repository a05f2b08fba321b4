"""A worker that drains into a real Postfix which is killed, stopped or unwilling in the middle of it."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import posthouse
from tests.acceptance.installation import DEADLINE_S, Installation, Table, until
from tests.integration.hard_messages import HARD, parts_of, read
from tests.integration.policy_server import Attributes, PolicyServer
from tests.integration.postfix import PASSWORD, USER, Postfix

EMAILS: Final = 40
CONNECTIONS: Final = 4

HASTY_TYPE: Final = {"retry_first": "100ms", "retry_max": "500ms", "unknown_wait": "0s"}
"""Whatever may be tried again is, at once; whatever is unknown is held."""


def open_route(postfix: Postfix) -> Table:
    """To the port whose every step is asked about."""
    return {"provider": "smtp", "url": f"smtp://127.0.0.1:{postfix.ports['policy']}", "concurrency": CONNECTIONS}


def member_route(postfix: Postfix) -> Table:
    """Encrypted, with a password."""
    url = f"smtp+starttls://{USER}@127.0.0.1:{postfix.ports['submission']}"
    credential = {"password": PASSWORD, "ca_file": str(postfix.ca_file)}
    return {"provider": "smtp", "url": url, "concurrency": CONNECTIONS, **credential}


def reader(key: str) -> str:
    return f"box-{key}@inbox.test"


def emails(name: str) -> list[posthouse.Email]:
    """One for each of EMAILS mailboxes, with a text that is its key."""
    keys = [f"{name}-{number}" for number in range(EMAILS)]
    return [posthouse.Email(key=key, to=reader(key), subject="Hello", text=key, html=f"<p>{key}</p>") for key in keys]


def copies(postfix: Postfix, installation: Installation) -> Counter[str]:
    """How often each send's message is in its mailbox."""
    mail = postfix.mail()
    return Counter({key: len(mail[reader(key)]) for key in installation.rows()})


def until_settled(installation: Installation) -> Counter[str]:
    """Waits until nothing is under way; the statuses."""
    wanted = {"accepted", "unknown"}
    until(lambda: set(installation.statuses()) <= wanted, "nothing is under way")
    return installation.statuses()


def assert_nothing_is_lost_or_doubled(postfix: Postfix, installation: Installation) -> None:
    """Every accepted send is in its mailbox once; of an unknown one nobody can say, but it is there once at most."""
    statuses = {key: row.status for key, row in installation.rows().items()}
    accepted = [key for key, status in statuses.items() if status == "accepted"]
    until(lambda: set(accepted) <= set(+copies(postfix, installation)), "everything accepted has arrived")
    assert set((+copies(postfix, installation)).values()) == {1}
    assert not any(row.maybe_duplicate for row in installation.rows().values())


def at_requests(numbers: dict[str, int], act: Callable[[], None]) -> Callable[[Attributes], str]:
    """A policy against nothing, which acts once at the request of a number within each state."""
    counts = {state: itertools.count(1) for state in numbers}  # each session asks in a thread of its own

    def policy(attributes: Attributes) -> str:
        state = attributes["protocol_state"]
        if state in counts and next(counts[state]) == numbers[state]:
            act()
        return "DUNNO"

    return policy


def test_everything_goes_from_the_outbox_to_the_mailboxes(on_sqlite: Installation, postfix: Postfix) -> None:
    on_sqlite.configure({"main": member_route(postfix)}, sender="Shop <orders@shop.example>")
    on_sqlite.enqueue(emails("all"))
    hard = {name: HARD["beyond ASCII"][name] for name in ("subject", "text", "html")}
    on_sqlite.enqueue([posthouse.Email(key="hard", to=f"Ädä <{reader('hard')}>", bcc=[reader("all-hidden")], **hard)])
    worker = on_sqlite.worker()
    on_sqlite.until_status({"accepted": EMAILS + 1})
    assert worker.stopped() == 0

    assert_nothing_is_lost_or_doubled(postfix, on_sqlite)
    mail = postfix.mail()
    for key in on_sqlite.rows():
        (raw,) = mail[reader(key)]
        assert parts_of(read(raw)) == ((key, f"<p>{key}</p>") if key != "hard" else _texts(hard))
    (hidden,) = mail[reader("all-hidden")]
    assert read(hidden)["Bcc"] is None
    assert read(hidden)["To"] == f"Ädä <{reader('hard')}>"
    assert read(hidden)["Subject"] == hard["subject"]
    until(lambda: _goodbyes(postfix), "the worker has said goodbye")
    assert _goodbyes(postfix) <= CONNECTIONS, "its connections are used again"


def _texts(fields: dict[str, object]) -> tuple[str, str]:
    return str(fields["text"]).removesuffix("\n"), str(fields["html"]).removesuffix("\n")


def _goodbyes(postfix: Postfix) -> int:
    """How many connections of several messages have ended with QUIT."""
    ends = re.findall(r"postfix/submission/smtpd\[\d+\]: disconnect from \S+ (.*)", postfix.log)
    return sum("rset=" in end and "quit=1" in end for end in ends)


def test_sessions_that_are_killed_lose_nothing_and_double_nothing(
    on_sqlite: Installation, postfix: Postfix, policy: PolicyServer
) -> None:
    policy.policy = at_requests({"RCPT": 5, "DATA": 15, "END-OF-MESSAGE": 25}, postfix.kill_sessions)
    on_sqlite.configure({"main": open_route(postfix)}, {"default": HASTY_TYPE})
    on_sqlite.enqueue(emails("killed"))
    worker = on_sqlite.worker()
    statuses = until_settled(on_sqlite)
    assert worker.stopped() == 0

    assert 1 <= statuses["unknown"] <= 3 * CONNECTIONS, "only what had a call under way"
    assert_nothing_is_lost_or_doubled(postfix, on_sqlite)


def test_a_postfix_that_is_stopped_and_started_again_gets_everything_once(
    on_sqlite: Installation, postfix: Postfix, policy: PolicyServer
) -> None:
    def stop() -> None:
        postfix.stop()
        stopped.set()

    stopped = threading.Event()
    policy.policy = at_requests({"DATA": 10}, stop)
    on_sqlite.configure({"main": open_route(postfix)}, {"default": HASTY_TYPE})
    on_sqlite.enqueue(emails("stopped"))
    worker = on_sqlite.worker()
    assert stopped.wait(DEADLINE_S)
    until(lambda: _is_given_up(on_sqlite), "the worker finds that nobody listens, and tries it only now and then")
    assert not set(on_sqlite.statuses()) & {"failed", "expired"}
    postfix.start()
    until_settled(on_sqlite)
    assert worker.stopped() == 0

    # Beside the calls that were accepted, those that were under way may have had an answer.
    assert sum(row.failures for row in on_sqlite.rows().values()) <= EMAILS + CONNECTIONS, "an outage spends no attempt"
    assert_nothing_is_lost_or_doubled(postfix, on_sqlite)


def _is_given_up(installation: Installation) -> bool:
    health = installation.store.control.route_health().get("main")
    return health is not None and health.is_tripped


def test_a_greylisted_send_waits_as_long_as_it_is_told(
    on_sqlite: Installation, postfix: Postfix, policy: PolicyServer
) -> None:
    policy.policy = lambda _: "defer_if_permit 4.2.0 Greylisted, try again in 59 seconds"
    on_sqlite.configure({"main": open_route(postfix)}, {"default": HASTY_TYPE})
    on_sqlite.enqueue(emails("grey")[:1])
    on_sqlite.worker()
    until(lambda: on_sqlite.row("grey-0")["failures"] == 1, "it was put back")
    wait_s = on_sqlite.row("grey-0")["next_try_at"] - time.time()
    policy.policy = lambda _: "DUNNO"
    on_sqlite.run("retry", "--by", "ada", "grey-0")
    on_sqlite.until_status({"accepted": 1})

    assert 55 < wait_s < 65
    assert [call["code"] for call in on_sqlite.attempts("grey-0")] == ["450", "250"]
    assert_nothing_is_lost_or_doubled(postfix, on_sqlite)
