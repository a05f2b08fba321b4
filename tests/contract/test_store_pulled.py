"""What a provider's list has is written here, but for what is known, and for what a person took back since."""

from __future__ import annotations

import pytest

from posthouse.core.events import Cause, EventKind
from posthouse.core.provider_lists import Listed, to_push
from posthouse.core.suppression import Suppress, SuppressionCause
from tests.contract.store_support import Bench
from tests.contract.test_store_events import hear, news

ADA, BOB = "ada@example.com", "bob@example.com"
BOUNCE, COMPLAINT = SuppressionCause.HARD_BOUNCE, SuppressionCause.COMPLAINT
UNSUBSCRIBE, MANUAL = SuppressionCause.UNSUBSCRIBE, SuppressionCause.MANUAL


def pulled(bench: Bench, *listed: Listed) -> int:
    return bench.store.suppressions.pull(listed, "main", bench.now)


def causes(bench: Bench, address: str = ADA) -> list[str]:
    found = bench.store.suppressions.active([address], bench.now).get(address, [])
    return sorted(f"{each.cause} {each.scope}".strip() for each in found)


def test_what_the_list_has_is_written_once(bench: Bench) -> None:
    assert pulled(bench, Listed("Ada@example.com", BOUNCE, 1000.0, "550 No."), Listed(BOB, COMPLAINT)) == 2
    assert pulled(bench, Listed(ADA, BOUNCE, 1000.0), Listed(BOB, COMPLAINT, bench.now)) == 0
    (kept,) = bench.store.suppressions.active([ADA], bench.now)[ADA]
    assert (kept.cause, kept.scope, kept.reason, kept.who) == (BOUNCE, "", "550 No.", "main")


def test_what_is_known_here_says_more_and_stays(bench: Bench) -> None:
    bench.store.suppressions.add([Suppress(ADA, UNSUBSCRIBE, "type newsletter", None, "", "ada")], bench.now)
    assert pulled(bench, Listed(ADA, UNSUBSCRIBE, bench.now)) == 0
    assert causes(bench) == ["unsubscribe type newsletter"]


def test_what_no_database_stores_as_it_is_becomes_nobody_elses_suppression(bench: Bench) -> None:
    cut = "x" * 400 + "@example.com"
    assert pulled(bench, Listed("a\x00da@example.com", BOUNCE), Listed("\ud800bob@example.com", BOUNCE)) == 0
    assert pulled(bench, Listed(cut, BOUNCE), Listed(BOB, BOUNCE)) == 1
    bench.store.suppressions.import_([Suppress(cut, BOUNCE)], bench.now)
    assert [each.address for each in bench.store.suppressions.find([], None, 10)] == [BOB]


def test_what_was_pushed_is_not_taken_for_news(bench: Bench) -> None:
    bench.store.suppressions.add([Suppress(ADA, BOUNCE, "", None, "", "main")], bench.now)
    assert pulled(bench, Listed(ADA, MANUAL, bench.now)) == 0


@pytest.mark.parametrize(
    ("cause", "since_s", "comes_back"),
    [(BOUNCE, -1, False), (BOUNCE, 1, True), (BOUNCE, None, False), (MANUAL, -1, False), (COMPLAINT, -1, True)],
)
def test_whom_a_person_let_go_comes_back_only_for_what_is_newer(
    bench: Bench, cause: SuppressionCause, since_s: float | None, comes_back: bool
) -> None:
    bench.store.suppressions.add([Suppress(ADA, BOUNCE, "", None, "", "main")], bench.now)
    bench.store.suppressions.remove(ADA, who="eve", now=bench.now)
    listed = Listed(ADA, cause, None if since_s is None else bench.now + since_s)
    assert pulled(bench, listed) == comes_back
    assert causes(bench) == ([cause.value] if comes_back else [])


@pytest.mark.parametrize(("since_s", "comes_back"), [(-1, False), (1, True)])
def test_news_that_is_filled_in_late_brings_back_nobody_who_was_let_go_since(
    bench: Bench, since_s: float, comes_back: bool
) -> None:
    bench.store.suppressions.add([Suppress(ADA, BOUNCE, "", None, "", "main")], bench.now)
    bench.store.suppressions.remove(ADA, who="eve", now=bench.now)
    hear(bench, news(EventKind.BOUNCED, at=bench.now + since_s, cause=Cause.NO_MAILBOX, hard=True))
    assert causes(bench) == (["hard_bounce"] if comes_back else [])


def test_only_what_stops_all_mail_for_good_is_put_on_their_list(bench: Bench) -> None:
    addresses = [f"{name}@example.com" for name in "abcdef"]
    a, b, c, d, e, f = addresses
    bench.store.suppressions.add(
        [
            Suppress(a, BOUNCE),
            Suppress(b, COMPLAINT, "category marketing"),
            Suppress(c, UNSUBSCRIBE),
            Suppress(d, MANUAL, "", bench.now + 60),
            Suppress(e, MANUAL),
            Suppress(f, BOUNCE),
        ],
        bench.now,
    )
    ours = bench.store.suppressions.page(0, 100)
    assert to_push(ours, {f}, {BOUNCE, COMPLAINT, MANUAL}, bench.now) == {a: BOUNCE, e: MANUAL}
    assert to_push(ours, {a, e, f}, set(SuppressionCause), bench.now) == {c: UNSUBSCRIBE}
