"""The ledger says what was accepted, when, how often and with what content."""

from __future__ import annotations

from dataclasses import replace

from posthouse.sandbox.faults import CallKind
from posthouse.sandbox.ledger import Acceptance, CallRecord, CallResult, CaughtFile, Ledger


def acceptance(number: int, key: str | None = None, *recipients: str) -> Acceptance:
    body = {"text": f"body {number}"}
    return Acceptance(f"id-{number}", key, 1000.0 + number, recipients, f"subject {number}", f"hash {number}", body)


def test_an_acceptance_is_found_by_id_key_and_recipient() -> None:
    ledger = Ledger()
    one, two = (
        acceptance(1, "order-1", "ada@example.com"),
        acceptance(2, "order-2", "ada@example.com", "bob@example.com"),
    )
    ledger.accept(one)
    ledger.accept(two)
    assert list(ledger.acceptances) == [one, two]
    assert ledger.by_id("id-2") == two
    assert ledger.by_id("id-3") is None
    assert ledger.by_key("order-1") == [one]
    assert ledger.by_key("order-3") == []
    assert ledger.by_recipient("Ada@Example.com") == [one, two]
    assert ledger.by_recipient("bob@example.com") == [two]


def test_a_recipient_named_twice_in_one_message_has_it_once() -> None:
    ledger = Ledger()
    ledger.accept(acceptance(1, None, "ada@example.com", "ada@example.com"))
    assert len(ledger.by_recipient("ada@example.com")) == 1


def test_duplicates_are_the_acceptances_beyond_the_first_of_a_key() -> None:
    ledger = Ledger()
    for number, key in enumerate(["a", "b", "a", "a", None, None]):
        ledger.accept(acceptance(number, key))
    assert ledger.times_accepted() == {"a": 3, "b": 1}
    assert ledger.duplicates == 2
    assert ledger.distinct_keys == 2


def test_old_bodies_and_calls_go_but_facts_and_counts_stay() -> None:
    ledger = Ledger(kept_max=2)
    for number in range(5):
        ledger.accept(acceptance(number, f"key-{number}", "ada@example.com"))
        ledger.record_call(CallRecord(float(number), CallKind.SEND, CallResult.ACCEPTED))
    assert [one.body for one in ledger.acceptances] == [None, None, None, {"text": "body 3"}, {"text": "body 4"}]
    assert [one.content_hash for one in ledger.by_recipient("ada@example.com")] == [f"hash {n}" for n in range(5)]
    assert [call.at for call in ledger.calls] == [3.0, 4.0]
    assert ledger.results[CallResult.ACCEPTED] == 5


def test_old_bodies_go_when_they_are_too_much_together_but_never_the_newest() -> None:
    ledger = Ledger(kept_octets_max=100)
    for number, size in enumerate([40, 60, 1, 500, 100]):
        ledger.accept(replace(acceptance(number, None), size=size, files=(CaughtFile(b"x"),), raw=b"x"))
        kept = [n for n, one in enumerate(ledger.acceptances) if one.body is not None]
        assert kept == [[0], [0, 1], [1, 2], [3], [4]][number]
        assert [n for n, one in enumerate(ledger.acceptances) if one.files and one.raw] == kept


def test_a_cleared_ledger_knows_nothing() -> None:
    ledger = Ledger()
    ledger.accept(acceptance(1, "a", "ada@example.com"))
    ledger.accept(acceptance(2, "a"))
    ledger.record_call(CallRecord(1.0, CallKind.SEND, CallResult.ACCEPTED))
    ledger.clear()
    assert not ledger.acceptances
    assert not ledger.calls
    assert not ledger.results
    assert ledger.duplicates == 0
    assert ledger.by_key("a") == []
    assert ledger.by_id("id-1") is None
