"""What fits into one call for several messages, and what such a call means for each."""

from __future__ import annotations

from posthouse.core.http_rules import judge, judge_failure
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.providers.batch import Payload, as_list, fitting, for_each


def whole(status: int, body: str = "") -> Verdict:
    return judge(status, {}, body, complete=True, now=0.0)


def test_bodies_become_a_list_of_the_same_bytes() -> None:
    bodies = [b'{"a":1}', b'{"b":"\xc3\xbc"}']
    together = as_list([Payload("application/json", body) for body in bodies])
    assert together == Payload("application/json", b'[{"a":1},{"b":"\xc3\xbc"}]')


def test_a_call_is_never_longer_than_it_may_be_and_small_ones_pass_by_a_large_one() -> None:
    sizes = {0: 40, 1: 40, 2: 100, 3: 13}
    places = fitting(sizes, 97)
    assert places == [0, 1, 3]
    payloads = [Payload("application/json", b"x" * sizes[place]) for place in places]
    assert len(as_list(payloads).content) == 97
    assert fitting(sizes, 96) == [0, 1]


def test_the_first_goes_even_where_it_is_too_long() -> None:
    assert fitting({3: 1000, 4: 5}, 99) == [3]
    assert fitting({}, 99) == []


def test_a_refusal_of_the_whole_call_is_nobodys() -> None:
    for status in (400, 413, 422):
        assert for_each(whole(status, '{"message":"no"}')) is None


def test_a_missing_address_for_several_says_nothing_about_the_one_for_a_single_message() -> None:
    assert for_each(whole(404)) is None
    assert for_each(whole(405)) is None


def test_what_is_about_the_route_is_everybodys() -> None:
    for status, outcome in ((401, Outcome.MISCONFIGURED), (429, Outcome.THROTTLED), (503, Outcome.TRANSIENT)):
        each = for_each(whole(status))
        assert each is not None
        assert each == whole(status)
        assert each.outcome is outcome


def test_a_lost_answer_leaves_everybody_in_doubt() -> None:
    lost = judge_failure("exchange", "read_timeout", "no answer")
    assert for_each(lost) == lost
    assert lost.outcome is Outcome.UNKNOWN


def test_a_success_that_can_not_be_read_is_nobodys_acceptance_and_nobodys_refusal() -> None:
    for body in ("", "<html><title>Hello</title></html>", '[{"status":"rejected"}]', "Mailgun Magnificent API"):
        each = for_each(whole(200, body))
        assert each is not None
        assert (each.outcome, each.maybe_accepted, each.spends_attempt) == (Outcome.UNKNOWN, True, True)
        assert each.subject is Subject.ROUTE
