"""Splitting: who was refused beside somebody who got the message has a send of their own, and nobody gets it twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import delete, update

from posthouse.attachment import Attachment
from posthouse.content import Content
from posthouse.core.outcome import Outcome, Remainder, Verdict
from posthouse.core.sends import SendState
from posthouse.fields import KEY_CHARS_MAX
from posthouse.store.schema import contents
from tests.contract.store_support import CODE, RECEIPT, Bench, accepted, rejected, report, transient

TO = ["ada@example.com", "Bob <bob@example.com>"]
MESSAGE_ID = "<ik-1@shop.example>"


def partly(**left_out: Verdict) -> Verdict:
    """Accepted, but not for these."""
    remainders = tuple(Remainder((f"{name}@example.com",), verdict, MESSAGE_ID) for name, verdict in left_out.items())
    return Verdict(Outcome.ACCEPTED, code="250", message_id="m-1", remainders=remainders)


def claimed(bench: Bench, key: str = "k", **fields: Any) -> SendState:
    bench.enqueue(key, **({"to": TO, "cc": "cleo@example.com"} | fields))
    return bench.claim_one("one-time-code" if fields.get("type") == "one-time-code" else "receipt")


def rest_of(bench: Bench, key: str = "k") -> list[dict[str, Any]]:
    """The sends that were split off, in the order in which they were made."""
    return bench.store.ledger.story(key).splits


def body(bench: Bench, key: str) -> str | None:
    return bench.store.ledger.story(key).body


def change_content(bench: Bench, key: str, stored: str | None) -> None:
    mine = contents.c.send_id == bench.row(key)["id"]
    with bench.store.database.write() as connection:
        connection.execute(
            delete(contents).where(mine) if stored is None else update(contents).where(mine).values(body=stored)
        )


def test_whoever_was_put_off_is_tried_again_alone(bench: Bench) -> None:
    state = claimed(bench, tags=["receipt"], metadata={"order": "1042"})

    bench.settle(report(state, partly(bob=transient(), cleo=transient()), bench.now), now=bench.now)

    whole, bobs, cleos = bench.row("k"), *rest_of(bench)
    assert (whole["status"], json.loads(whole["recipients"])) == ("accepted", ["ada@example.com"])
    assert (bobs["status"], json.loads(bobs["recipients"]), bobs["to_address"]) == (
        "pending",
        ["bob@example.com"],
        "bob@example.com",
    )
    assert json.loads(cleos["recipients"]) == ["cleo@example.com"]
    assert bobs["dedupe_key"].startswith("k#")
    assert len({whole["idempotency_key"], bobs["idempotency_key"], cleos["idempotency_key"]}) == 3
    inherited = ("type", "lane", "expires_at", "created_at", "first_attempt_at", "tags", "metadata", "service")
    assert [bobs[name] for name in inherited] == [whole[name] for name in inherited]
    assert bobs["next_try_at"] > bench.now

    again = bench.claim_one(now=bobs["next_try_at"])
    assert (again.id, again.attempts, again.failures) == (bobs["id"], 1, 1)


def test_the_new_send_has_the_whole_message_for_its_own_recipients(bench: Bench) -> None:
    state = claimed(bench)
    bench.settle(report(state, partly(bob=transient()), bench.now))

    (bobs,) = rest_of(bench)
    content = Content.from_json(body(bench, bobs["dedupe_key"]) or "")
    assert [str(address) for address in content.to] == ["ada@example.com", '"Bob" <bob@example.com>']
    assert [address.email for address in content.recipients] == ["bob@example.com"]
    assert content.message_id == MESSAGE_ID


def test_the_new_send_shares_the_files_and_keeps_them_when_the_other_is_gone(bench: Bench) -> None:
    state = claimed(bench, attachments=[Attachment(b"an invoice", "invoice.pdf")])
    bench.settle(report(state, partly(bob=transient()), bench.now))

    (bobs,) = rest_of(bench)
    (file,) = Content.from_json(body(bench, bobs["dedupe_key"]) or "").attachments
    assert bench.store.blobs.read(bobs["id"], [file.digest]) == {file.digest: b"an invoice"}


def test_the_call_is_the_first_attempt_of_the_new_send(bench: Bench) -> None:
    state = claimed(bench)
    bench.settle(report(state, partly(bob=rejected()), bench.now))

    (bobs,) = rest_of(bench)
    (tried,) = bench.attempts(bobs["dedupe_key"])
    assert (bobs["status"], bobs["last_error"]) == ("failed", "rejected on main: 422 no such mailbox")
    assert (tried["outcome"], tried["route"], tried["worker"]) == ("rejected", "main", bench.worker)
    assert bobs["attempts"] == 1


def test_a_result_that_is_written_again_splits_once(bench: Bench) -> None:
    result = report(claimed(bench), partly(bob=transient()), bench.now)
    bench.settle(result)
    assert bench.settle(result) == [None]
    assert len(rest_of(bench)) == 1


def test_security_mail_is_kept_for_those_who_have_not_got_it(bench: Bench) -> None:
    state = claimed(bench, type="one-time-code")
    bench.settle(report(state, partly(bob=transient()), bench.now, policy=CODE))

    (bobs,) = rest_of(bench)
    assert body(bench, "k") is None
    assert body(bench, bobs["dedupe_key"]) is not None


def test_a_remainder_can_be_split_again(bench: Bench) -> None:
    bench.settle(report(claimed(bench), partly(bob=transient(), cleo=transient()), bench.now))
    bobs, _ = rest_of(bench)
    both = bench.row(bobs["dedupe_key"])
    again = bench.claim_one(now=both["next_try_at"])
    bench.settle(report(again, accepted("m-2"), bench.now + 600))
    assert [row["status"] for row in rest_of(bench)] == ["accepted", "pending"]


def test_the_longest_key_still_leaves_room_for_its_remainder(bench: Bench) -> None:
    key = "k" * KEY_CHARS_MAX
    bench.settle(report(claimed(bench, key), partly(bob=transient(), cleo=rejected()), bench.now, policy=RECEIPT))
    assert len({row["dedupe_key"] for row in rest_of(bench, key)}) == 2


def test_content_that_is_no_longer_kept_makes_a_send_without_one(bench: Bench) -> None:
    state = claimed(bench)
    change_content(bench, "k", None)
    bench.settle(report(state, partly(bob=transient()), bench.now))
    (bobs,) = rest_of(bench)
    assert body(bench, bobs["dedupe_key"]) is None


@pytest.mark.parametrize("damaged", ["{}", "not json"])
def test_content_that_cannot_be_read_does_not_hold_up_what_was_accepted(bench: Bench, damaged: str) -> None:
    state = claimed(bench)
    change_content(bench, "k", damaged)
    bench.settle(report(state, partly(bob=transient()), bench.now))
    assert bench.row("k")["status"] == "accepted"
    assert len(rest_of(bench)) == 1


def test_what_is_split_off_stays_in_its_campaign_and_lane(bench: Bench) -> None:
    bench.enqueue("k", to=TO, service="shop", campaign="spring")
    state = bench.claim_one("receipt/shop/spring")

    bench.settle(report(state, partly(bob=transient()), bench.now), now=bench.now)

    (bobs,) = rest_of(bench)
    assert (bobs["campaign"], bobs["lane"]) == ("spring", "receipt/shop/spring")
    assert len(bench.claim(5, "receipt/shop/spring", now=bench.now + 60)) == 1
