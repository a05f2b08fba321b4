"""Places: calls at once over all workers, never more than allowed, shared fairly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from posthouse.core.places import Holding, grant


def held(worker: int, places: int, wanted: int) -> Holding:
    return Holding(worker, places, wanted)


def test_a_worker_alone_has_all_it_wants() -> None:
    assert grant(10, held(1, 0, 32), []).places == 10
    assert grant(10, held(1, 0, 4), []).places == 4


def test_whoever_comes_later_waits_until_the_other_gives_back_what_is_over_its_share() -> None:
    first = held(1, 10, 32)
    later = grant(10, held(2, 0, 32), [first])
    assert (later.places, later.fair) == (0, 5)
    shrinking = grant(10, first, [held(2, 0, 32)])
    assert (shrinking.places, shrinking.fair) == (10, 5), "what it uses it keeps until its calls end"
    assert grant(10, held(2, 0, 32), [held(1, 5, 32)]).places == 5


def test_what_one_does_not_want_is_the_others() -> None:
    assert grant(10, held(1, 0, 32), [held(2, 2, 2)]).places == 8


def test_a_share_that_does_not_come_out_even_goes_to_those_who_came_first() -> None:
    everybody = [held(worker, 0, 9) for worker in (1, 2, 3)]
    shares = [grant(10, one, [other for other in everybody if other is not one]).fair for one in everybody]
    assert sorted(shares) == [3, 3, 4]
    assert shares[0] == 4


@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.booleans()), max_size=60),
)
def test_however_workers_ask_and_shrink_the_sum_is_never_exceeded_and_nobody_starves(
    total: int, count: int, moves: list[tuple[int, int, bool]]
) -> None:
    state = {worker: held(worker, 0, 0) for worker in range(count)}

    def ask(worker: int, wanted: int, *, shrink: bool) -> None:
        mine = state[worker]
        others = [other for other in state.values() if other.worker != worker]
        fair = grant(total, held(worker, mine.places, wanted), others).fair
        keep = min(mine.places, fair) if shrink else mine.places
        state[worker] = held(worker, grant(total, held(worker, keep, wanted), others).places, wanted)
        assert sum(one.places for one in state.values()) <= total

    for worker, wanted, shrink in moves:
        ask(worker % count, wanted, shrink=shrink)
    for _ in range(3):
        for worker in state:
            ask(worker, 30, shrink=True)
    places = [one.places for one in state.values()]
    assert sum(places) == min(total, 30 * count)
    assert max(places) - min(places) <= 1
