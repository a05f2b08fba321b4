"""Over SMTP, with real processes: several recipients with different answers, and connections that several share."""

from __future__ import annotations

import json
from collections import Counter

from tests.acceptance.conftest import MakeSandbox
from tests.acceptance.installation import Installation, email, smtp_route


def test_of_three_recipients_one_gets_it_one_gets_it_later_and_one_never_and_nobody_twice(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    sandbox = make_sandbox()
    installation.configure({"main": smtp_route(sandbox)}, {"default": {"retry_first": "200ms"}})
    installation.enqueue([email(1, to=["ada@example.com", "rejected@example.com"], bcc="twice-503@example.com")])
    installation.worker()
    installation.until_status({"accepted": 2, "failed": 1})

    copies = Counter(who for one in sandbox.acceptances() for who in one.recipients)
    assert copies == {"ada@example.com": 1, "twice-503@example.com": 1}
    by_recipient = {json.loads(row.recipients)[0]: row for row in installation.rows().values()}
    assert by_recipient["ada@example.com"].dedupe_key == "k-1"
    assert (by_recipient["rejected@example.com"].status, by_recipient["rejected@example.com"].attempts) == ("failed", 1)
    assert (by_recipient["twice-503@example.com"].status, by_recipient["twice-503@example.com"].attempts) == (
        "accepted",
        3,
    )
    first, second = sandbox.acceptances()
    assert first.raw == second.raw, "the same message, its Message-ID and Date included"


def test_a_server_that_takes_few_recipients_at_once_gets_the_rest_in_further_messages(
    installation: Installation, make_sandbox: MakeSandbox
) -> None:
    everybody = [f"person-{number}@example.com" for number in range(7)]
    sandbox = make_sandbox(
        *(
            f"452:at=rcpt,to={who},first={place // 3},text=4.5.3 Too many recipients"
            for place, who in enumerate(everybody)
            if place >= 3
        )
    )
    installation.configure({"main": smtp_route(sandbox)}, {"default": {"retry_first": "200ms", "max_attempts": 1}})
    installation.enqueue([email(1, to=everybody)])
    installation.worker()
    installation.until_status({"accepted": 3})

    assert [len(one.recipients) for one in sandbox.acceptances()] == [3, 3, 1]
    assert Counter(who for one in sandbox.acceptances() for who in one.recipients) == dict.fromkeys(everybody, 1)
