"""Whom a fault hits, how often, and that a seed replays it."""

from __future__ import annotations

import random

import pytest

from posthouse.sandbox.fault_text import fault_text, parse_fault
from posthouse.sandbox.faults import Call, CallKind, Fault, FaultPlan


def plan(*texts: str) -> FaultPlan:
    return FaultPlan([parse_fault(text) for text in texts])


def send(to: str = "ada@example.com", key: str | None = None) -> Call:
    return Call(CallKind.SEND, (to,), key)


def drawn(faults: FaultPlan, *calls: Call, elapsed_s: float = 0.0, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [text_of(faults.draw(call, elapsed_s, chance)) for call in calls]


def text_of(fault: Fault | None) -> str:
    return fault_text(fault) if fault is not None else "-"


def test_the_same_seed_gives_the_same_faults() -> None:
    calls = [send(f"user-{n}@example.com", f"key-{n}") for n in range(500)]
    texts = ("503:share=0.2", "drop-accepted:share=0.02", "slow=8s:share=0.1,first=1")
    assert drawn(plan(*texts), *calls, seed=7) == drawn(plan(*texts), *calls, seed=7)
    assert drawn(plan(*texts), *calls, seed=7) != drawn(plan(*texts), *calls, seed=8)


def test_shares_are_parts_of_all_calls_and_add_up() -> None:
    hits = drawn(plan("503:share=0.3", "500:share=0.3"), *[send()] * 10_000)
    assert hits.count("503:share=0.3") == pytest.approx(3000, abs=200)
    assert hits.count("500:share=0.3") == pytest.approx(3000, abs=200)


def test_a_share_of_nothing_hits_nobody_and_a_whole_share_everybody() -> None:
    assert set(drawn(plan("503:share=0"), *[send()] * 200)) == {"-"}
    assert set(drawn(plan("503"), *[send()] * 200)) == {"503"}


def test_the_first_fault_that_hits_decides() -> None:
    assert drawn(plan("503:to=bob@example.com", "500"), send(), send("bob@example.com")) == [
        "500",
        "503:to=bob@example.com",
    ]


def test_twice_503_then_200_for_one_recipient() -> None:
    text = "503:to=ada@example.com,first=2"
    faults = plan(text)
    assert drawn(faults, send(), send("bob@example.com"), send(), send()) == [text, "-", text, "-"]


def test_an_address_is_met_in_any_case_of_its_letters() -> None:
    assert drawn(plan("503:to=Ada@Example.com"), send()) == ["503:to=Ada@Example.com"]


def test_first_counts_each_recipient_on_its_own() -> None:
    assert drawn(plan("503:first=1"), send("a@x.example"), send("b@x.example"), send("a@x.example")) == [
        "503:first=1",
        "503:first=1",
        "-",
    ]


def test_first_per_key_counts_each_send_on_its_own() -> None:
    faults = plan("503:first=1,per=key")
    hits = drawn(faults, send(key="one"), send(key="two"), send(key="one"), send(key=None), send(key=None))
    assert [hit != "-" for hit in hits] == [True, True, False, True, False]


def test_first_of_all_counts_everybody_together() -> None:
    calls = [send("a@x.example", "one"), send("b@x.example", "two"), send("c@x.example"), send("a@x.example", "one")]
    assert [hit != "-" for hit in drawn(plan("slow=8s:first=2,per=all"), *calls)] == [True, True, False, False]


def test_what_a_used_up_fault_leaves_goes_to_the_next() -> None:
    hits = drawn(plan("500:share=0.5,first=10,per=all", "503:share=0.5"), *[send()] * 1000)
    assert hits.count("500:share=0.5,first=10,per=all") == 10
    assert hits.count("503:share=0.5") == pytest.approx(495, abs=60)


def test_a_schedule_is_an_outage_with_a_beginning_and_an_end() -> None:
    faults = plan("503:from=1m,until=5m")
    hits = {seconds: drawn(faults, send(), elapsed_s=seconds)[0] != "-" for seconds in (0, 59.9, 60, 299.9, 300)}
    assert hits == {0: False, 59.9: False, 60: True, 299.9: True, 300: False}


def test_a_fault_hits_sends_unless_it_says_otherwise() -> None:
    calls = [Call(kind) for kind in (CallKind.SEND, CallKind.LOOK_UP, CallKind.DOT)]
    assert [hit != "-" for hit in drawn(plan("503"), *calls)] == [True, False, False]
    assert [hit != "-" for hit in drawn(plan("503:at=look-up"), *calls)] == [False, True, False]
    assert [hit != "-" for hit in drawn(plan("503:at=any"), *calls)] == [True, True, True]


def test_a_fault_that_is_off_hits_nobody() -> None:
    assert drawn(plan("503:off", "refuse:off"), send()) == ["-"]
    assert plan("refuse:off").refusal(0.0) is None


def test_refused_connections_leave_no_room_for_another_fault() -> None:
    faults = plan("503", "refuse:from=10s,until=20s")
    assert drawn(faults, send("rejected@example.com"), elapsed_s=10) == ["refuse:from=10s,until=20s"]
    assert drawn(faults, send(), elapsed_s=20) == ["503"]
    assert [faults.refusal(seconds) is not None for seconds in (9.9, 10.0, 20.0)] == [False, True, False]


@pytest.mark.parametrize(
    ("recipient", "expected"),
    [
        ("rejected@example.com", ["422", "422", "422"]),
        ("twice-503@anywhere.example", ["503:first=2,per=key", "503:first=2,per=key", "-"]),
        ("throttled+1@example.com", ["429:first=1,per=key,retry-after=1", "-", "-"]),
        ("unknown@example.com", ["drop-accepted:first=1,per=key", "-", "-"]),
        ("rejected.not@example.com", ["-", "-", "-"]),
    ],
)
def test_a_magic_recipient_needs_no_configuration(recipient: str, expected: list[str]) -> None:
    assert drawn(plan(), *[send(recipient)] * 3) == expected


def test_tags_and_keys_tell_magic_recipients_apart() -> None:
    calls = [send("unknown+a@x.example"), send("unknown+b@x.example"), send("unknown+a@x.example", key="other")]
    assert "-" not in drawn(plan(), *calls)


def test_a_magic_recipient_is_found_among_others() -> None:
    assert drawn(plan(), Call(CallKind.SEND, ("ada@example.com", "rejected@example.com"))) == ["422"]
