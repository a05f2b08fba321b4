"""A verdict can't contradict itself."""

from __future__ import annotations

import pytest

from posthouse.core.outcome import Outcome, Verdict


@pytest.mark.parametrize("outcome", [Outcome.THROTTLED, Outcome.REJECTED, Outcome.MISCONFIGURED])
def test_a_certain_refusal_cannot_be_doubtful(outcome: Outcome) -> None:
    with pytest.raises(ValueError, match="certainly not accepted"):
        Verdict(outcome, maybe_accepted=True)


def test_an_unknown_outcome_cannot_be_certain() -> None:
    with pytest.raises(ValueError, match="may have been accepted"):
        Verdict(Outcome.UNKNOWN)


@pytest.mark.parametrize("doubtful", [True, False])
def test_a_passing_fault_may_be_either(doubtful: bool) -> None:
    assert Verdict(Outcome.TRANSIENT, maybe_accepted=doubtful).maybe_accepted is doubtful
